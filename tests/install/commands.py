"""A command of these tests: what it printed, or the end of the test where its status is not the expected one."""
import subprocess
import sys


def run(command, expected=0, **options):
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != expected:
        sys.exit("%s\nended with status %d, expected %d:\n%s" % (" ".join(command), done.returncode, expected, done.stdout))
    return done.stdout
