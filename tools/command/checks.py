"""The subcommand check: clang-format, gersemi, codespell, the rules, results in documents, lists of planted faults and clang-tidy, cheapest first."""
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess

from . import build, help_texts
from .places import BUILD, PYTHON, ROOT, call, environment, jobs, output, step, tool, tracked

# Words that codespell would report: names in the formulas, the glossary and the C library.
WORDS = "ans,nd,ue,ot,te,inout,sie,ist,vas,strat,als,dout,fo,fpr,hist,mis,finitel"


def format_cpp(fix):
    files = tracked("*.cpp", "*.h", "*.c")
    mode = ["-i"] if fix else ["--dry-run", "--Werror"]
    return not files or call([tool("clang-format")] + mode + files, check=False) == 0


def format_cmake(fix):
    files = tracked("CMakeLists.txt", "*/CMakeLists.txt", "*.cmake")
    mode = ["--in-place"] if fix else ["--check", "--diff"]
    return call([tool("gersemi")] + mode + ["--no-cache", "--quiet"] + files, check=False) == 0


def spelling(_):
    files = [name for name in tracked() if not name.endswith((".npz", ".npy", ".png", ".safetensors", ".pdf"))]
    files = [name for name in files if not name.startswith("tests/fuzz/corpus/") and name != "NOTICE"]  # random text, licenses of others
    return call([tool("codespell"), "--ignore-words-list", WORDS, "--check-filenames"] + files, check=False) == 0


def rules(fix):
    return call([PYTHON, os.path.join("tools", "check_rules.py")] + (["--fix"] if fix else []), check=False) == 0


def results(fix):
    """Checks that the results of the peer bench in the documents agree with its result files."""
    command = [PYTHON, "-m", "compare.documents"] + (["--write"] if fix else []) + tracked("*.md")
    return call(command, check=False, env=dict(environment(), PYTHONPATH=os.path.join(ROOT, "bench", "peers"))) == 0


def planted_faults(_):
    """The old text of every planted fault stands once in its file: code that is written anew takes its fault along."""
    return call([PYTHON, os.path.join("tests", "tool_faults.py")], check=False) == 0


INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)


def our_includes(source, seen):
    """The source, and every header of the project that it includes."""
    if source in seen:
        return seen
    seen.add(source)
    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
        names = INCLUDE.findall(file.read())
    for name in names:
        for folder in (os.path.dirname(source), "", "tests", "tools", os.path.join("runtime", "include")):
            path = os.path.normpath(os.path.join(folder, name))
            if os.path.isfile(os.path.join(ROOT, path)):
                our_includes(path, seen)
                break
    return seen


def tidy_key(source):
    """A hash that changes when the file, a project header that it includes, or the settings change."""
    digest = hashlib.sha256()
    for name in sorted(our_includes(source, set())) + [".clang-tidy", "tests/.clang-tidy", "requirements/check.txt"]:
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(name.encode() + file.read())
    return digest.hexdigest()


def tidy_one(source, folder):
    done = subprocess.run([tool("clang-tidy"), "-p", folder, "--quiet", "--warnings-as-errors=*", os.path.join(ROOT, source)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT)
    return done.returncode == 0, done.stdout + (done.stderr if done.returncode else "")


def changed():
    """Files that differ from the upstream branch, or from the last commit if there is none."""
    base = output(["git", "merge-base", "HEAD", "@{upstream}"]) or output(["git", "merge-base", "HEAD", "origin/HEAD"]) or "HEAD"
    differing = output(["git", "diff", "--name-only", base.strip()]) or ""
    new = output(["git", "ls-files", "--others", "--exclude-standard"]) or ""
    return set(differing.split("\n")) | set(new.split("\n"))


def sources_to_read(everything):
    """All sources; or those that changed, those whose header changed, and for each other changed header one that includes it."""
    sources = tracked("*.cpp")
    if everything:
        return sources
    names = changed()
    wanted = [name for name in sources if name in names or name[:-3] + "h" in names]
    for header in sorted(name for name in names if name.endswith(".h") and name[:-1] + "cpp" not in sources):
        wanted += [name for name in sources if header in our_includes(name, set())][:1]
    return sorted(set(wanted))


def commands_of_sources(folder):
    """A folder with the compile commands of the release build for each source by itself, and the sources that it has."""
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
        together = json.load(file)
    apart = []
    for entry in together:
        names = [entry["file"]]
        if "/Unity/" in entry["file"]:
            with open(entry["file"], encoding="utf-8") as file:
                names = re.findall(r'^#include "(.*)"$', file.read(), re.M)
        apart += [{"directory": entry["directory"], "command": entry["command"].replace(entry["file"], name), "file": name} for name in names]
    target = os.path.join(BUILD, "tidy")
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(apart, file)
    return target, {os.path.relpath(entry["file"], ROOT) for entry in apart}


def tidy(sources):
    """Runs clang-tidy on these sources, if they are in the release build. A file without findings is not read again until it changes."""
    folder, known = commands_of_sources(build.directory("release"))
    sources = [name for name in sources if name in known]
    cache_path = os.path.join(BUILD, "tidy.json")
    try:
        with open(cache_path, encoding="utf-8") as file:
            clean = set(json.load(file))
    except (OSError, ValueError):
        clean = set()
    keys = {name: tidy_key(name) for name in sources}
    wanted = [name for name in sources if keys[name] not in clean]
    good = True
    with concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
        for index, (name, (ok, text)) in enumerate(zip(wanted, pool.map(lambda name: tidy_one(name, folder), wanted)), 1):
            print("[%d/%d] clang-tidy %s" % (index, len(wanted), name), flush=True)
            if ok:
                clean.add(keys[name])
            else:
                print(text)
                good = False
    with open(cache_path, "w", encoding="utf-8") as file:
        json.dump(sorted(clean & set(keys.values())), file)
    return good


def run(fix=False, sources=()):
    """Runs the checks, with clang-tidy on these sources."""
    steps = [("clang-format", format_cpp), ("gersemi", format_cmake), ("codespell", spelling), ("rules", rules), ("results", results),
             ("help", help_texts.check), ("planted faults", planted_faults)]
    if sources:
        steps.append(("clang-tidy", lambda _: tidy(sources)))
    failed = []
    for name, action in steps:
        step(name)
        if not action(fix):
            failed.append(name)
    print("check: %s" % ("failed: %s" % ", ".join(failed) if failed else "clean"))
    return 1 if failed else 0
