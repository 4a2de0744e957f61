"""Files and folders that are complete or do not exist: also after kill -9, on a full disk, and with several writers at the same time."""
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
import stat
import tempfile
import time
from typing import IO, Iterator, Optional, Union

Path = Union[str, "os.PathLike[str]"]
LOCK = "lock"  # a file in work folders
LONGEST_WAIT = 10  # seconds


class Replacement:
    """The new content of a file. It replaces the file at the end of replacing(), if write() was called."""

    def __init__(self, target: pathlib.Path, file: IO[bytes]) -> None:
        self.target, self.file, self.written = target, file, False

    def read(self) -> Optional[bytes]:
        """The present content of the file; None when it does not exist."""
        try:
            return self.target.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, data: Union[bytes, str]) -> None:
        self.file.write(data.encode() if isinstance(data, str) else data)
        self.written = True


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Replacement]:
    """Replaces a file completely or not at all: the new file is renamed into place at the end of the block; an exception keeps the old one.

    The block writes to .NAME.new in the same folder. That file is locked from the beginning, so a block that reads and then writes loses
    nothing that others write meanwhile. The lock ends with its process; the next writer uses the .NAME.new that a killed one left.
    """
    target = pathlib.Path(os.path.realpath(path))  # the file that a link points to, not the link
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    missing = [folder for folder in target.parents if not folder.exists()]
    new = target.with_name(".%s.new" % target.name)
    done = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(new) as file:
            try:
                replacement = Replacement(target, file)
                yield replacement
                if replacement.written:
                    _put(file, new, target)
                    done = True
            finally:
                if not done:
                    _remove(new)
    finally:
        for folder in missing if not done else []:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only if it is empty


def write(path: Path, data: Union[bytes, str]) -> None:
    """Writes a whole file, or nothing. A path that is not a regular file, such as /dev/stdout, is written to and not replaced."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
        return
    with replacing(path) as replacement:
        replacement.write(data)


@contextlib.contextmanager
def work_folder(prefix: str) -> Iterator[str]:
    """A folder under TMPDIR that is removed at the end. Folders with this prefix that killed processes left are removed, too."""
    parent = pathlib.Path(tempfile.gettempdir())
    for old in parent.glob(prefix + "*"):
        _remove_left_over(old)
    path, lock = _locked_folder(parent, prefix)
    with lock:
        try:
            yield path
        finally:
            for _ in range(2):  # a second time in case of a temporary error
                shutil.rmtree(path, ignore_errors=True)


def _locked_folder(parent: pathlib.Path, prefix: str) -> tuple[str, IO[bytes]]:
    """A new folder, and an open file in it. A lock on the file shows that the folder is in use; it ends with the process."""
    while True:
        path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            lock = open(os.path.join(path, LOCK), "xb")  # noqa: SIM115 (stays open)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_still(lock.fileno(), pathlib.Path(path, LOCK)):
                return path, lock
        except FileNotFoundError:
            pass  # another process removed it as a left-over
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise


def _remove_left_over(folder: pathlib.Path) -> None:
    """Removes a work folder of this user that no process has locked."""
    with contextlib.suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        with contextlib.suppress(OSError):
            folder.rmdir()  # killed before there was a lock
            return
        with open(folder / LOCK, "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(lock.fileno(), folder / LOCK):
                shutil.rmtree(folder)


@contextlib.contextmanager
def _locked(new: pathlib.Path) -> Iterator[IO[bytes]]:
    """The empty file `new`, as soon as no other process has locked it."""
    while True:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        with open(descriptor, "wb") as file:
            _lock(file, new)
            if _is_still(file.fileno(), new):  # otherwise the process that had it has renamed or removed it
                try:
                    os.ftruncate(file.fileno(), 0)
                except OSError:
                    _remove(new)
                    raise
                yield file
                return


def _lock(file: IO[bytes], path: pathlib.Path) -> None:
    """Locks a file that others lock only while they read and write it; after some seconds an error says that one of them does not go on."""
    end = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise OSError(errno.EBUSY, "another process has held it for %d s" % LONGEST_WAIT, os.fspath(path)) from None
            time.sleep(0.01)


def _is_still(descriptor: int, path: pathlib.Path) -> bool:
    """Whether this path is still the name of the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _put(file: IO[bytes], new: pathlib.Path, target: pathlib.Path) -> None:
    file.flush()
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(file.fileno(), stat.S_IMODE(os.stat(target).st_mode))
    os.fsync(file.fileno())
    os.replace(new, target)
    with contextlib.suppress(OSError):  # the file is in place; its name survives a power cut where the system allows this sync
        descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(path: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
