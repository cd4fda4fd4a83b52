"""A real Postfix that sends a blind copy of everything to the journal, unpacked from Debian's package and run as root.

It listens on one port, discards what it delivers, and keeps its queue and its logs in a folder of the test's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.debian import unpacked
from tests.support.ports import free_port
from tests.support.waiting import eventually

_QUEUES = (
    "active",
    "bounce",
    "corrupt",
    "defer",
    "deferred",
    "flush",
    "hold",
    "incoming",
    "maildrop",
    "pid",
    "private",
    "public",
)
_MASTER = """
127.0.0.1:{port} inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 1 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
smtp unix - - n - - smtp
relay unix - - n - - smtp
discard unix - - n - - discard
error unix - - n - - error
retry unix - - n - - error
proxymap unix - - n - - proxymap
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
"""


@dataclass(frozen=True, slots=True)
class Postfix:
    port: int
    folder: Path
    programs: Path
    environment: dict[str, str]

    def run(self, program: str, *arguments: str) -> str:
        command = [str(self.programs / "usr/sbin" / program), "-c", str(self.folder / "etc"), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60).stdout

    def queued(self) -> int:
        return sum(
            1
            for queue in ("active", "deferred", "incoming")
            for path in (self.folder / "spool" / queue).rglob("*")
            if path.is_file()
        )

    def flush(self) -> None:
        """Tries deferred mail again at once."""
        self.run("postqueue", "-f")

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""


@contextmanager
def running_postfix(journal_port: int) -> Iterator[Postfix]:
    """`always_bcc` to journal@archive.example, which goes to the port of the journal."""
    if os.geteuid() != 0:
        pytest.skip("Postfix can only be started by root")
    programs = unpacked("postfix", "postfix")
    folder = Path(tempfile.mkdtemp(prefix="archiver-postfix-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        port = free_port()
        _configure(folder, programs, port, journal_port)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(programs / "usr/lib/postfix"), "MAIL_CONFIG": str(folder / "etc")}
        server = Postfix(port, folder, programs, environment)
        with (folder / "out").open("wb") as out:
            master = subprocess.Popen(
                [programs / "usr/lib/postfix/sbin/master", "-d", "-c", folder / "etc"], env=environment, stdout=out, stderr=out
            )
        try:
            eventually(lambda: _answers(server, master), what="Postfix to listen")
            yield server
        finally:
            master.terminate()
            master.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(server: Postfix, master: subprocess.Popen[bytes]) -> bool:
    import socket

    if master.poll() is not None:
        pytest.skip(f"Postfix does not run here: {(server.folder / 'out').read_text()[-300:]}{server.log[-300:]}")
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            return connection.recv(100).startswith(b"220")
    except OSError:
        return False


def _configure(folder: Path, programs: Path, port: int, journal_port: int) -> None:
    for name in ("etc", "spool", "data"):
        (folder / name).mkdir()
    for queue in _QUEUES:
        (folder / "spool" / queue).mkdir()
        if queue not in ("pid",):
            shutil.chown(folder / "spool" / queue, "mail", "uucp" if queue in ("maildrop", "public") else None)
    shutil.chown(folder / "data", "mail")
    (folder / "spool" / "maildrop").chmod(0o730)
    (folder / "spool" / "public").chmod(0o710)
    (folder / "etc" / "main.cf").write_text(
        f"""
compatibility_level = 3.6
mail_owner = mail
setgid_group = uucp
default_privs = nobody
queue_directory = {folder}/spool
data_directory = {folder}/data
daemon_directory = {programs}/usr/lib/postfix/sbin
shlib_directory = {programs}/usr/lib/postfix
command_directory = {programs}/usr/sbin
meta_directory = {programs}/etc/postfix
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
import_environment = MAIL_CONFIG LD_LIBRARY_PATH
export_environment = LD_LIBRARY_PATH
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mail.example.org
mydestination =
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
alias_maps =
local_recipient_maps =
default_transport = discard:
transport_maps = inline:{{ {{ archive.example = smtp:[127.0.0.1]:{journal_port} }} }}
always_bcc = journal@archive.example
smtp_host_lookup = native
disable_dns_lookups = yes
smtp_tls_security_level = none
minimal_backoff_time = 1s
maximal_backoff_time = 2s
queue_run_delay = 1s
"""
    )
    (folder / "etc" / "master.cf").write_text(_MASTER.format(port=port))
