"""The data folder: its layout, its version, and the lock that gives it a single supervisor."""

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
"""Increased when older versions can no longer use the folder."""

_SOCKET_PATH_MAX = 100  # the kernel allows 107 bytes (104 on macOS) for the whole path of a unix socket
_LONGEST_SOCKET_NAME = len(".s.PGSQL.5432")


class DataFolder:
    """`ARCHIVER_DATA`, which contains everything that Archiver stores locally."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.postgres = path / "postgres"
        self.valkey = path / "valkey"
        self.search = path / "search"
        self.logs = path / "logs"
        self._lock_file = path / "archiver.lock"
        self._version_file = path / "archiver.json"

    def prepare(self) -> None:
        """Creates the folder, or checks that the existing one can be used. Safe to call from several processes at once."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise DataFolderError(f"ARCHIVER_DATA={str(self.path)!r}: not a writable folder ({error.strerror})") from error
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
            raise DataFolderError(
                f"{self._version_file}: not a valid version file of an Archiver data folder; restore it, or use another folder"
            ) from error
        if written > FORMAT:
            raise DataFolderError(
                f"ARCHIVER_DATA={str(self.path)!r}: belongs to a newer version (its format is {written}; Archiver "
                f"{__version__} supports {FORMAT}): use the newer version, or another folder"
            )

    @property
    def run(self) -> Path:
        """For sockets: in the data folder or, if that path is too long for a socket, a private folder in /tmp."""
        inside = self.path / "run"
        if len(os.fsencode(inside)) + 1 + _LONGEST_SOCKET_NAME <= _SOCKET_PATH_MAX:
            return inside
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"archiver-{os.geteuid()}-{digest}"

    def create_run(self) -> Path:
        run = self.run
        run.mkdir(mode=0o700, exist_ok=True)
        status = run.lstat()
        if run.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise DataFolderError(f"{run}: belongs to another user, or is writable by others; remove it and start again")
        return run

    def allow_traversal(self, group: int) -> None:
        """As root, PostgreSQL runs as another user, whose group may traverse these folders to its own, but read nothing."""
        for path in (self.path, self.run):
            os.chown(path, -1, group)
            path.chmod(0o710)

    @property
    def control_socket(self) -> Path:
        return self.run / "control.sock"

    @property
    def search_socket(self) -> Path:
        """Where the web process answers searches of commands."""
        return self.run / "search.sock"

    @contextlib.contextmanager
    def lock(self, holder: str) -> Iterator[None]:
        """Holds the folder's lock. The file names the pid and `holder`, for the error that another process reports."""
        with self._lock_file.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise DataFolderError(f"{self._lock_file}: can't be locked ({error.strerror})") from error
                raise InUse(
                    f"ARCHIVER_DATA={str(self.path)!r}: in use by {self.owner()}; stop it, or use another folder"
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()} {holder}\n")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)

    def owner(self) -> str:
        """For messages only: the lock, not this text, decides whether the folder is in use."""
        pid, _, holder = self._lock_file.read_text().strip().partition(" ")
        return f"pid {pid} ({holder})" if pid else "another process"
