"""The set-up of ./polyhead: a .venv of another folder or Python is made again, and a link to one is refused. Nothing is installed here."""
import json
import os
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))
import pin_hashes  # noqa: E402
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


class Packages(unittest.TestCase):
    def administrator(self, terminal, **variables):
        with unittest.mock.patch.object(os, "geteuid", lambda: 1000), unittest.mock.patch.object(environment.shutil, "which", lambda name: name), \
                unittest.mock.patch.dict(os.environ, variables), unittest.mock.patch.object(sys, "stdin") as stdin, \
                unittest.mock.patch.object(sys, "stdout") as stdout, unittest.mock.patch("builtins.input", lambda _: "n"), \
                unittest.mock.patch.object(environment.subprocess, "call", lambda *_, **__: self.fail("sudo was called")):
            stdin.isatty.return_value = stdout.isatty.return_value = terminal
            return environment.administrator()

    def test_sudo_only_when_asked(self):
        self.assertIsNone(self.administrator(False, POLYHEAD_SUDO=""))
        self.assertIsNone(self.administrator(True, POLYHEAD_SUDO=""))
        self.assertEqual(self.administrator(False, POLYHEAD_SUDO="1"), ["sudo", "-n"])

    def test_every_pin_has_hashes(self):
        for folder in pin_hashes.FOLDERS:
            for name in os.listdir(folder):
                if not name.endswith(".txt"):
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    lines = file.read().splitlines()
                for line, after in zip(lines, lines[1:] + [""]):
                    if line and not line.startswith(("#", " ")):
                        self.assertRegex(line, pin_hashes.PIN)
                        self.assertTrue(line.endswith("\\") and after.startswith(pin_hashes.HASH), "%s of %s has no hash" % (line, name))

    def test_an_archive_with_another_hash_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            wheel, wanted = os.path.join(folder, "thing-1.0-py3-none-any.whl"), os.path.join(folder, "wanted.txt")
            with zipfile.ZipFile(wheel, "w") as file:
                file.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
                file.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                file.writestr("thing-1.0.dist-info/RECORD", "")
            with open(wanted, "w", encoding="utf-8") as file:
                file.write("thing==1.0 \\\n" + pin_hashes.HASH + 64 * "0" + "\n")
            commands = []
            with unittest.mock.patch.object(environment, "call", lambda command, **_: commands.append(command) or 0), \
                    unittest.mock.patch.object(environment, "requirements", lambda need: wanted):
                environment.install_requirements(["arrays"])
            words = [sys.executable] + commands[0][1:-1] + [wanted, "--no-index", "--find-links", folder, "--target", os.path.join(folder, "out")]
            done = environment.subprocess.run(words, stdout=-1, stderr=-2, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("THESE PACKAGES DO NOT MATCH THE HASHES", done.stdout)


if __name__ == "__main__":
    unittest.main()
