"""The set-up of ./polyhead: a .venv of another folder or Python is made again, and a link to one is refused. Nothing is installed here."""
import json
import os
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))
from command import environment  # noqa: E402
from command.places import Failure  # noqa: E402


class Venv(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.other, self.venv = (os.path.join(folder.name, name) for name in ("other", "venv"))
        self.commands = []
        for name, value in (("VENV", self.venv), ("STAMP", os.path.join(self.venv, "stamp.json")), ("PYTHON", os.path.join(self.venv, "python")),
                            ("call", lambda command, **_: self.commands.append(command) or 0), ("link_package", lambda: None),
                            ("can_make_venv", lambda: True), ("install_packages", lambda packages: self.fail(packages))):
            patch = unittest.mock.patch.object(environment, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def made(self, folder, interpreter):
        os.mkdir(folder)
        with open(os.path.join(folder, "stamp.json"), "w", encoding="utf-8") as file:
            json.dump({"interpreter": interpreter, "arrays": environment.fingerprint("arrays")}, file)
        open(os.path.join(folder, "python"), "w", encoding="utf-8").close()

    def test_a_link_to_the_one_of_another_folder(self):
        self.made(self.other, "/other/.venv 3.11")
        before = sorted(os.listdir(self.other))
        os.symlink(self.other, self.venv)
        for force in (False, True):
            with self.assertRaises(Failure) as caught:
                environment.ensure("arrays", force=force)
            self.assertIn("found a link to " + os.path.realpath(self.other), str(caught.exception))
        self.assertEqual((sorted(os.listdir(self.other)), os.path.islink(self.venv), self.commands), (before, True, []))

    def test_a_link_to_nothing(self):
        os.symlink(self.other, self.venv)
        with self.assertRaises(Failure):
            environment.ensure("arrays")
        self.assertFalse(os.path.exists(self.other) or self.commands)

    def test_its_own(self):
        self.made(self.venv, environment.interpreter())
        environment.ensure("arrays")
        self.assertEqual(self.commands, [])

    def test_a_folder_that_was_copied_is_made_again(self):
        self.made(self.venv, "/other/.venv 3.11")
        with unittest.mock.patch.object(environment, "call", lambda command, **_: self.commands.append(command) or os.makedirs(self.venv, exist_ok=True) or 0):
            environment.ensure("arrays")
        self.assertEqual(([command[1:3] for command in self.commands], os.listdir(self.venv)), ([["-m", "venv"], ["-m", "pip"]], ["stamp.json"]))


if __name__ == "__main__":
    unittest.main()
