"""The ONNX node cases of Attention and FlexAttention have to pass, with the suite's own tolerances; a quick run takes a fifth of them."""
import pathlib
import sys
import unittest

try:
    import onnx  # noqa: F401
except ImportError:
    sys.exit(print("NOT RUN: the whole test: onnx is not installed"))

import onnx_cases

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tier import sampled  # noqa: E402

EXPECTED = {"Attention": 93, "FlexAttention": 11}


class Cases(unittest.TestCase):
    def test_cases(self):
        found = onnx_cases.collect()
        self.assertEqual({operator: len(cases) for operator, cases in found.items()}, EXPECTED)
        for operator, cases in found.items():
            for case in sampled(operator, cases, 5):
                with self.subTest(operator + ": " + case.name):
                    self.assertIsNone(onnx_cases.run(case))


if __name__ == "__main__":
    unittest.main()
