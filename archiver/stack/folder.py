"""The data folder: its layout, its version, and the lock that makes one supervisor its only owner."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from archiver import __version__
from archiver.errors import DataFolderError, InUse

FORMAT = 1
"""Raised when an older program could no longer use the folder."""

_SOCKET_PATH_MAX = 100  # the kernel allows 107 bytes (104 on macOS) for the whole path of a unix socket
_LONGEST_SOCKET_NAME = len(".s.PGSQL.5432")


class DataFolder:
    """`ARCHIVER_DATA`. Everything that we keep lies below it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.postgres = path / "postgres"
        self.valkey = path / "valkey"
        self.search = path / "search"
        self.logs = path / "logs"
        self._lock_file = path / "archiver.lock"
        self._version_file = path / "archiver.json"

    def prepare(self) -> None:
        """Creates the folder, or checks that the one that is there can be used. Safe to call from several processes at once."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise DataFolderError(
                f"ARCHIVER_DATA={str(self.path)!r}: not a folder that can be written to ({error.strerror})"
            ) from error
        self._check_version()

    def _check_version(self) -> None:
        try:
            recorded = json.loads(self._version_file.read_text())
            written = int(recorded["format"])
        except FileNotFoundError:
            temporary = self._version_file.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps({"format": FORMAT, "created_by": __version__}) + "\n")
            temporary.replace(self._version_file)
            return
        except (ValueError, KeyError, TypeError) as error:
            raise DataFolderError(f"{self._version_file}: not readable as the record of an Archiver data folder") from error
        if written > FORMAT:
            raise DataFolderError(
                f"ARCHIVER_DATA={str(self.path)!r}: belongs to a newer version (its format is {written}, and Archiver "
                f"{__version__} knows {FORMAT}): use that version, or another folder"
            )

    @property
    def run(self) -> Path:
        """For sockets: below the data folder, or, where that path is too long for them, in a private folder in /tmp."""
        inside = self.path / "run"
        if len(os.fsencode(inside)) + 1 + _LONGEST_SOCKET_NAME <= _SOCKET_PATH_MAX:
            return inside
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"archiver-{os.geteuid()}-{digest}"

    def make_run(self) -> Path:
        run = self.run
        run.mkdir(mode=0o700, exist_ok=True)
        status = run.lstat()
        if run.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise DataFolderError(f"{run}: belongs to somebody else, or others may write to it; remove it and start again")
        return run

    def let_pass(self, group: int) -> None:
        """As root, PostgreSQL runs as another user: that user's group may pass through to its own folders, and read nothing."""
        for path in (self.path, self.run):
            os.chown(path, -1, group)
            path.chmod(0o710)

    @property
    def control_socket(self) -> Path:
        return self.run / "control.sock"

    @contextlib.contextmanager
    def owned(self, what: str) -> Iterator[None]:
        """Holds the folder's lock. `what` and our pid stand in the file, for the message that the next one gets."""
        with self._lock_file.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise DataFolderError(f"{self._lock_file}: can't be locked ({error.strerror})") from error
                raise InUse(f"ARCHIVER_DATA={str(self.path)!r}: in use by {self.owner()}") from None
            file.truncate(0)
            file.write(f"{os.getpid()} {what}\n")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)

    def owner(self) -> str:
        """For showing only: the lock, not this text, says whether somebody is there."""
        pid, _, what = self._lock_file.read_text().strip().partition(" ")
        return f"pid {pid} ({what})" if pid else "another process"
