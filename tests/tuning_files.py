"""Files of the tuner: records and logs under kills, full disks and several writers; what is not ours is refused or kept."""
import collections
import errno
import fcntl
import json
import os
import pathlib
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from failing_calls import Shim
from tier import ALL
from tuning_record import record

from polyhead import Error, _files
from polyhead.tuning import records
from polyhead.tuning.log import Log


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    record = staticmethod(record)

    def path(self, name, *entries):
        path = self.folder / name
        path.write_text(json.dumps({"format": 1, "records": entries}))
        return str(path)

    def test_log_survives_a_cut_line(self):
        path = self.folder / "deep" / "log"
        log = Log(str(path))
        log.append(task="a", kind="measured", ratio=1.0)
        log.close()
        with open(path, "ab") as file:
            file.write(b'{"task": "a", "kind": "meas')
        log = Log(str(path))
        self.assertEqual((log.broken, len(log.entries("a", "measured"))), (1, 1))
        log.append(task="a", kind="measured", ratio=2.0)
        log.close()
        log = Log(str(path))
        self.assertEqual([e["ratio"] for e in log.entries("a", "measured")], [1.0, 2.0])
        log.close()

    def test_adding_replaces_what_it_covers(self):
        linear = self.record(problem="--op linear --embed-dim 8 --out-features 8", frame="linear", tiling="linear_rows=2", min_seq_len_q=0)
        path = self.path("f.json", self.record(max_seq_len_q=256), self.record(min_seq_len_q=257), linear)
        records.add(path, [self.record(run="b", tiling="q_tile=24")])
        self.assertEqual(self.left(), ["f.json"])
        found, complaints = records.read(path)
        self.assertEqual(complaints, [])
        self.assertEqual(sorted(r["tiling"] for r in found), ["linear_rows=2", "q_tile=24"])

    def test_merge_keeps_the_newer_and_says_what_it_drops(self):
        old, new = self.record(), self.record(date="2026-02-02T00:00:00Z", tiling="q_tile=24")
        first = self.path("a.json", old, self.record(min_seq_len_q=1, max_seq_len_q=16))
        second = self.path("b.json", new, self.record(halide="1.0.0", min_seq_len_q=3))
        output = self.path("c.json", self.record(run="c", problem="--op linear --embed-dim 8 --out-features 8", frame="linear", tiling="linear_rows=2"))
        count, complaints = records.merge([first, second], output)
        self.assertEqual((count, len(complaints)), (4, 1))
        self.assertIn("stale, measured with Halide 1.0.0", complaints[0])
        found = records.read(output)[0]
        self.assertEqual({r["tiling"] for r in found if r["min_seq_len_q"] == 17 and r["run"] == "a"}, {"q_tile=24"})
        self.assertEqual(len(found), 3)  # what was in the output, too
        self.assertEqual([r["halide"] for r in self.entries(output)[3:]], ["1.0.0"])

    def entries(self, path):
        return json.loads(pathlib.Path(path).read_text())["records"]

    def left(self):
        return sorted(p.name for p in self.folder.iterdir())

    def test_what_is_not_ours_is_kept(self):
        here = {"machine": {"cpu": "here"}}
        other = self.record(machine={"cpu": "there"}, date="2027-01-01T00:00:00Z")
        stale, odd = self.record(halide="1.0.0", **here), {"from": "a later version"}
        path = self.folder / "f.json"
        path.write_text(json.dumps({"format": 1, "note": "é", "records": [odd, stale, other, 5, self.record(**here)]}))
        new = self.record(run="b", tiling="q_tile=24", date="2028-01-01T00:00:00Z", **here)
        records.add(str(path), [new])
        self.assertEqual(self.entries(path), [new, other, odd, stale, 5])  # what was measured last serves first
        self.assertEqual(json.loads(path.read_text())["note"], "é")
        records.remove(str(path), new)
        self.assertEqual(self.entries(path), [other, odd, stale, 5])
        self.assertEqual(self.left(), ["f.json"])

    def test_foreign_files_are_refused(self):
        path = self.folder / "f.json"
        for text in (b"My notes.\n", b"{}", b'{"format": 2, "records": []}', b'{"format": 1, "records": {}}', b"[" * 100000, b"\xff{"):
            path.write_bytes(text)
            good = self.path("good.json", self.record())
            for edit in (lambda: records.check_output(str(path)), lambda: records.add(str(path), [self.record()]),
                         lambda: records.remove(str(path), self.record()), lambda: records.merge([good], str(path)),
                         lambda: records.merge([good, str(path)], str(self.folder / "new.json"))):
                with self.assertRaisesRegex(Error, "records: '.*f.json' is no file of tuning records and was not changed"):
                    edit()
            self.assertEqual(path.read_bytes(), text)
            self.assertEqual(self.left(), ["f.json", "good.json"])
        for special in ("/dev/null", str(self.folder)):
            with self.assertRaisesRegex(Error, "records: cannot write '%s': it is no regular file" % special):
                records.check_output(special)
        path.write_bytes(b"")
        records.add(str(path), [self.record()])
        self.assertEqual(len(self.entries(path)), 1)

    def test_a_foreign_log_is_refused(self):
        path = self.folder / "log"
        for text in (b"My notes.\n", b'{"some": "json"}\n', b"\n\n", b"[" * 100000):
            path.write_bytes(text)
            with self.assertRaisesRegex(Error, "log: '.*log' is no log of measurements and was not changed"):
                Log(str(path))
            self.assertEqual(path.read_bytes(), text)
        path.write_bytes(b'{"task": "a", "ki')  # killed in the first line
        log = Log(str(path))
        log.append(task="a", kind="measured", ratio=1.0)
        self.assertEqual(path.read_bytes().count(b"\n"), 2)
        log.close()

    def test_a_full_disk_loses_nothing(self):
        path = self.path("f.json", self.record())
        before = pathlib.Path(path).read_bytes()
        new = self.record(problem="--op linear --embed-dim 8 --out-features 8", frame="linear", tiling="linear_rows=2", note="x" * 5000)
        said = self.limited(len(before) + 4000, "records.add(%r, [%r])" % (path, new))
        self.assertIn("records: cannot write '%s': File too large" % path, said)
        said = self.limited(10, "log = Log(%r); log.append(task='a', kind='measured')" % str(self.folder / "log"))
        self.assertIn("log: cannot write '%s/log': " % self.folder, said)
        said = self.limited(4000, "_files.write(%r, b'x' * 9000)" % str(self.folder / "below" / "report"))
        self.assertIn("File too large", said)
        self.assertEqual((pathlib.Path(path).read_bytes(), self.left()), (before, ["f.json", "log"]))

    def limited(self, size, statement):
        """What is raised in a process whose files have no more bytes than that."""
        program = ("import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
                   "from polyhead import _files\nfrom polyhead.tuning import records\nfrom polyhead.tuning.log import Log\n"
                   "resource.setrlimit(resource.RLIMIT_FSIZE, (%d, %d))\n%s" % (size, size, statement))
        done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_one_operation_fails(self):
        """Every one of adding to records: what was there stays, or what is new is there; and of the log."""
        area = self.folder / "area"
        shim = Shim(self.folder, area, os.environ.get("CC", "cc"))
        path, log = area / "f.json", area / "log"
        new = self.record(min_seq_len_q=1, max_seq_len_q=16)
        program = ("import sys\nfrom polyhead import Error\nfrom polyhead.tuning import records\nfrom polyhead.tuning.log import Log\ntry:\n"
                   "    log = Log(%r)\n    log.append(task='a', kind='measured')\n    log.append(task='a', kind='raced')\n"
                   "    records.check_output(%r)\n    records.add(%r, [%r])\nexcept Error as error:\n    sys.exit(str(error))\n") % (
                       str(log), str(path), str(path), new)

        def run(at, reason=errno.EIO):
            shutil.rmtree(area, ignore_errors=True)
            area.mkdir()
            path.write_text(json.dumps({"format": 1, "records": [self.record()]}))
            return subprocess.run([sys.executable, "-c", program], env=shim.environment(at, reason), stderr=subprocess.PIPE, text=True)

        self.assertEqual(run(0).stderr, "")
        total, failed = shim.counted(), 0
        self.assertEqual(len(self.entries(path)), 2)
        self.assertGreater(total, 12)
        for at in range(1, total + 1, 1 if ALL else 3):
            done = run(at, [errno.ENOSPC, errno.EIO, errno.EMFILE][at % 3])
            with self.subTest(at=at, of=total, said=done.stderr):
                self.assertEqual(len(self.entries(path)), 1 if done.returncode else 2)
                self.assertLessEqual({p.name for p in area.iterdir()}, {"f.json", "log"})
                if done.returncode:
                    failed += 1
                    self.assertRegex(done.stderr, r"\A(records|log): cannot (read|write) '[^\n]*\n\Z")
                again = Log(str(log))  # what is left of a line is passed over
                again.append(task="b", kind="measured")
                self.assertEqual(len(Log(str(log)).entries("b", "measured")), 1)
                again.close()
        self.assertGreater(failed, 0)

    def test_writers_side_by_side_and_killed_lose_nothing(self):
        """Each says what it has added, once it is there; one is killed again and again."""
        path = str(self.folder / "f.json")
        program = ("import json, sys\nfrom polyhead.tuning import records\nrecord = json.loads(sys.argv[2])\n"
                   "for i in range(int(sys.argv[3])):\n"
                   "    records.add(sys.argv[1], [{**record, 'seq_len_q': i + 1}])\n    print(i + 1, flush=True)\n")
        start = lambda name, count: subprocess.Popen(  # noqa: E731
            [sys.executable, "-c", program, path, json.dumps(self.record(machine={"cpu": name})), str(count)], stdout=subprocess.PIPE)
        steady, said = [start(name, 25) for name in ("a", "b", "c")], {}
        moments = random.Random(4)
        for i in range(12 if ALL else 3):
            victim = start("victim%d" % i, 10000)
            victim.stdout.readline()
            time.sleep(moments.uniform(0, 0.1))
            victim.kill()
            said["victim%d" % i] = 1 + len(victim.communicate()[0].splitlines())
        for process in steady:
            process.communicate()
            self.assertEqual(process.returncode, 0)
        found = collections.Counter(r["machine"]["cpu"] for r in self.entries(path))
        self.assertEqual([found[name] for name in ("a", "b", "c")], [25, 25, 25])
        for name, count in said.items():
            self.assertIn(found[name] - count, (0, 1))  # one may be written and not yet reported
        records.add(path, [])
        self.assertEqual(self.left(), ["f.json"])

    def test_work_folders_of_killed_processes_are_removed_by_the_next(self):
        program = ("import sys, time\nfrom polyhead import _files\nwith _files.work_folder('polyhead-test-') as folder:\n"
                   "    open(folder + '/data', 'w').close()\n    print(folder, flush=True)\n    time.sleep(1000)\n")
        start = lambda: subprocess.Popen([sys.executable, "-c", program], env=dict(os.environ, TMPDIR=str(self.folder)), stdout=subprocess.PIPE, text=True)  # noqa: E731
        (self.folder / "polyhead-test-early").mkdir()  # killed before there was a lock
        (self.folder / "polyhead-test-file").touch()
        killed, lives = start(), start()
        folders = [pathlib.Path(p.stdout.readline().strip()) for p in (killed, lives)]
        killed.kill()
        killed.communicate()
        last = start()
        here = pathlib.Path(last.stdout.readline().strip()).name
        self.assertEqual(self.left(), sorted([folders[1].name, here, "polyhead-test-file"]))
        for process in (lives, last):
            process.kill()
            process.communicate()

    def test_a_lock_that_is_held(self):
        path, before = self.folder / "held.json", sorted(self.folder.iterdir())
        with unittest.mock.patch.object(_files, "LONGEST_WAIT", 0.05), open(self.folder / ".held.json.new", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with self.assertRaisesRegex(OSError, "another process has held it") as caught:
                _files.write(path, "new")
        self.assertIn(".held.json.new", str(caught.exception))
        os.unlink(self.folder / ".held.json.new")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_what_is_replaced_keeps_its_mode_and_links(self):
        path = self.folder / "file"
        path.write_text("old")
        path.chmod(0o640)
        (self.folder / "link").symlink_to("file")
        _files.write(self.folder / "link", "new")
        self.assertEqual((path.read_text(), stat.S_IMODE(path.stat().st_mode)), ("new", 0o640))
        self.assertTrue((self.folder / "link").is_symlink())
        _files.write("/dev/null", "nothing")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        with self.assertRaises(ValueError), _files.replacing(path) as file:
            file.write("half")
            raise ValueError
        self.assertEqual((path.read_text(), self.left()), ("new", ["file", "link"]))

    def test_diff(self):
        first = self.path("a.json", self.record(), self.record(min_seq_len_q=1, max_seq_len_q=16))
        second = self.path("b.json", self.record(tiling="q_tile=24"))
        rows, _ = records.compare(first, second)
        self.assertEqual(sorted(what for what, _, _ in rows), ["only in " + first, "other tiling"])

    def test_what_cannot_be_read_or_written_is_a_sentence(self):
        with self.assertRaisesRegex(Error, "records: cannot read"):
            records.read("/nowhere/at_all.json")
        with self.assertRaisesRegex(Error, "records: cannot write"):
            records.add("/proc/nowhere/at_all.json", [])
        (self.folder / "bad.json").write_text("{")
        self.assertIn("bad.json: found text that is not JSON", records.read(str(self.folder / "bad.json"))[1][0])


if __name__ == "__main__":
    unittest.main()
