"""The ONNX node cases of Attention and FlexAttention: all of them have to pass, with the suite's own tolerances."""
import sys
import unittest

try:
    import onnx  # noqa: F401
except ImportError:
    sys.exit(print("NOT RUN: the whole test: onnx is not installed"))

import onnx_cases

EXPECTED = {"Attention": 93, "FlexAttention": 11}


class Cases(unittest.TestCase):
    def test_every_case(self):
        found = onnx_cases.collect()
        self.assertEqual({operator: len(cases) for operator, cases in found.items()}, EXPECTED)
        for operator, cases in found.items():
            for case in cases:
                with self.subTest(operator + ": " + case.name):
                    self.assertIsNone(onnx_cases.run(case))


if __name__ == "__main__":
    unittest.main()
