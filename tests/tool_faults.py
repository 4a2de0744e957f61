"""The lists of planted faults: their form, their number, and that each old text stands once in its file."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))
from command import faults, fuzzing  # noqa: E402


class Lists(unittest.TestCase):
    def test_each_can_be_planted(self):
        every = faults.all_faults()
        for fault in every:
            self.assertNotEqual(faults.planted(fault), "", fault.name)
            self.assertTrue(faults.targets_of(fault), fault.name)
        count = {part: sum(fault.part == part for fault in every) for part in faults.parts()}
        self.assertGreaterEqual(count.pop("runtime"), 50)
        self.assertEqual(set(count), {"devices", "formulas", "fuzzers", "schedules", "python", "tools"})
        self.assertGreaterEqual(min(count.values()), 6)
        self.assertLessEqual(sum(bool(fault.equivalent) for fault in every), faults.MOST_EQUIVALENT * len(every))

    def test_those_of_the_runtime_are_found_by_its_own_test(self):
        for fault in faults.read_list("runtime"):
            self.assertRegex(fault.find, "^test_runtime(_asan|_tsan)? ", fault.name)

    def test_every_fuzzer_has_one(self):
        found = {fault.find for fault in faults.read_list("fuzzers")}
        self.assertEqual(found, {"fuzz " + name for name in [*fuzzing.names(), fuzzing.SCRIPT]})

    def test_parts_of_the_list(self):
        every = list(range(7))
        options = type("Options", (), {"filter": None})
        taken = []
        for number in (1, 2, 3):
            options.part = "%d/3" % number
            taken += faults.select(every, options)
        self.assertEqual(sorted(taken), every)


if __name__ == "__main__":
    unittest.main()
