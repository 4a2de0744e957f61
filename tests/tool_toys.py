"""What a new thing costs: the patches of tests/toys/ still apply, and change no more files of the product than they may."""
import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_FILES = {"architecture": 5, "frame": 5, "instruction": 6, "knob": 3, "modifier": 8, "operation": 7, "storage": 12}
NOT_PRODUCT = re.compile(r"^(tests|docs|golden|tools/command/help)/|\.md$")


class Toys(unittest.TestCase):
    def test_each_applies_and_is_small(self):
        folder = os.path.join(ROOT, "tests", "toys")
        self.assertEqual({name[:-6] for name in os.listdir(folder) if name.endswith(".patch")}, set(MOST_FILES))
        for name, most in MOST_FILES.items():
            with self.subTest(name):
                patch = os.path.join(folder, name + ".patch")
                done = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual((done.returncode, done.stdout), (0, ""))
                with open(patch, encoding="utf-8") as file:
                    changed = re.findall(r"^\+\+\+ b/(.*)$", file.read(), re.M)
                self.assertGreater(len(changed), 0)
                self.assertLessEqual(len([path for path in changed if not NOT_PRODUCT.search(path)]), most)


if __name__ == "__main__":
    unittest.main()
