"""Help that is printed before anything is built: the committed texts are what the programs print, and printing them needs no set-up."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tools"))
from command import help_texts  # noqa: E402


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--generate")
    options.add_argument("--python", action="store_true")
    options = options.parse_args()
    programs = {"generate": [options.generate]} if options.generate else {}
    if options.python:
        programs.update((command, [sys.executable, "-m", module]) for command, module in help_texts.MODULES.items())
    for command, words in programs.items():
        now = help_texts.printed(words, os.environ)
        assert help_texts.meaning(now) == help_texts.meaning(help_texts.committed(command)), "tools/command/help/%s.txt is old" % command
    with tempfile.TemporaryDirectory() as folder:  # a clone of nothing but the command
        shutil.copy(os.path.join(SOURCE, "polyhead"), folder)
        shutil.copy(os.path.join(SOURCE, "CMakeLists.txt"), folder)
        shutil.copy(os.path.join(SOURCE, "CMakePresets.json"), folder)
        shutil.copytree(os.path.join(SOURCE, "tools", "command"), os.path.join(folder, "tools", "command"))
        for words in (["--version"], ["generate", "--version"], ["help"], ["help", "bench"], ["help", "test"], [], ["demo", "--help"], ["generate", "--from", "--help"], *([c, "--help"] for c in help_texts.COMMANDS)):
            done = subprocess.run([sys.executable, os.path.join(folder, "polyhead"), *words], stdout=subprocess.PIPE, text=True, timeout=20,
                                  env={"PATH": "/nowhere", "HOME": folder})
            assert done.returncode == 0 and done.stdout, "%s: status %d, %r" % (words, done.returncode, done.stdout)
        found = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, 'tools'); from command import help_texts; print(help_texts.programs())"],
                               stdout=subprocess.PIPE, text=True, cwd=folder, check=True, timeout=20).stdout
        assert found == "{}\n", "programs where nothing is built: " + found
        assert not os.path.exists(os.path.join(folder, ".venv")), "help has set something up"
    print("help: as the programs have it, at once")


if __name__ == "__main__":
    main()
