"""Real IMAP servers that are not Dovecot, each a process of its own: Cyrus and Courier."""

from __future__ import annotations

import imaplib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from imapclient.imap_utf7 import encode as encode_utf7

from tests.support.debian import library_path, unpacked
from tests.support.dovecot import PASSWORD
from tests.support.ports import free_port
from tests.support.waiting import eventually

_CYRUS = ("cyrus-imapd", "cyrus-caldav", "cyrus-common", "libxapian30", "libpcre3", "libical3", "libshp2")
_COURIER = ("courier-imap", "courier-authlib", "libidn12", "libcourier-unicode4", "libgamin0")
_IMAPD_CONF = """
configdirectory: {place}/conf
defaultpartition: default
partition-default: {place}/spool
admins: admin
allowplaintext: yes
cyrus_user: {user}
sasl_pwcheck_method: saslauthd
sasl_saslauthd_path: {place}/passwords
sasl_mech_list: PLAIN
unixhierarchysep: yes
altnamespace: yes
autocreate_users: anyone
autocreate_quota: 0
conversations: yes
httpmodules: jmap
"""
_CYRUS_CONF = """
START {{
  recover cmd="{bin}/ctl_cyrusdb -C {place}/imapd.conf -r"
}}
SERVICES {{
  imap cmd="{bin}/imapd -C {place}/imapd.conf" listen="127.0.0.1:{port}" prefork=0 maxchild=100
  http cmd="{bin}/httpd -C {place}/imapd.conf" listen="127.0.0.1:{http_port}" prefork=0 maxchild=100
}}
EVENTS {{
}}
"""


class OtherImap:
    """Filled through IMAP itself."""

    def __init__(self, port: int, http_port: int = 0) -> None:
        self.port, self.http_port = port, http_port
        self.filled: dict[str, Counter[str]] = {}

    def settings(self, user: str, **more: Any) -> dict[str, Any]:
        return {"host": "localhost", "port": self.port, "tls": "none", "user": user, **more}

    def fill(self, user: str, folder: str, messages: Sequence[bytes]) -> None:
        with imaplib.IMAP4("127.0.0.1", self.port) as client:
            client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.login(user, PASSWORD)
            _, (about,) = client.list('""', '""')
            delimiter = about.decode().split('"')[1] if isinstance(about, bytes) else "/"
            prefix = "INBOX." if delimiter == "." else ""
            name = f'"{prefix if folder != "INBOX" else ""}{encode_utf7(folder.replace("/", delimiter)).decode()}"'
            if folder != "INBOX":
                kind, told = client.create(name)
                assert kind == "OK", told
            for message in messages:
                kind, said = client.append(name, "", "", message)
                assert kind == "OK", said
                self.filled.setdefault(user, Counter())[sha256(message).hexdigest()] += 1


def _owner() -> tuple[str, list[str]]:
    """Who runs a server, and how a command becomes that user."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name, []
    return "nobody", ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@contextmanager
def _place(name: str) -> Iterator[Path]:
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix=f"archiver-{name}-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _give_away(place: Path, user: str) -> None:
    if os.getuid() == 0:
        for path in (place, *place.rglob("*")):
            os.lchown(path, pwd.getpwnam(user).pw_uid, -1)


@contextmanager
def cyrus() -> Iterator[OtherImap]:
    folder = unpacked("cyrus-with-jmap", *_CYRUS)
    user, become = _owner()
    with _place("cyrus") as place, _readable(folder) as root, _passwords(place / "passwords"):
        values = {
            "place": place,
            "user": user,
            "bin": root / "usr/lib/cyrus/bin",
            "port": free_port(),
            "http_port": free_port(),
        }
        for name in ("conf/db", "conf/socket", "conf/proc", "conf/log", "spool"):
            (place / name).mkdir(parents=True)
        (place / "imapd.conf").write_text(_IMAPD_CONF.format(**values))
        (place / "cyrus.conf").write_text(_CYRUS_CONF.format(**values))
        _give_away(place, user)
        command = [f"{values['bin']}/master", "-C", place / "imapd.conf", "-M", place / "cyrus.conf", "-p", place / "pid", "-D"]
        with (place / "start.log").open("ab") as log:
            process = subprocess.Popen(
                [*become, *map(str, command)], env=library_path(root), stdout=log, stderr=log, start_new_session=True
            )
        try:
            server = OtherImap(int(str(values["port"])), int(str(values["http_port"])))
            eventually(lambda: _greets(server.port), what="a Cyrus", pause=0.05)
            yield server
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def _readable(folder: Path) -> Iterator[Path]:
    """The packages, where the server's user may read them: the cache may lie in a home that is closed to others."""
    if os.getuid() != 0:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="archiver-packages-") as name:
        Path(name).chmod(0o755)
        shutil.copytree(folder, Path(name) / "root", symlinks=True, ignore=shutil.ignore_patterns("doc", "man", "perl*"))
        yield Path(name) / "root"


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as probe:
            return probe.recv(4) == b"* OK"
    except OSError:
        return False


@contextmanager
def _passwords(path: Path) -> Iterator[None]:
    """A saslauthd, for Cyrus: four counted strings in, OK or NO out."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o777)
    listener.listen(50)

    def serve() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            with end, end.makefile("rb") as file:
                given = [file.read(int.from_bytes(file.read(2), "big")) for _ in range(4)]
                said = b"OK" if given[1] == PASSWORD.encode() else b"NO"
                end.sendall(len(said).to_bytes(2, "big") + said)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@contextmanager
def courier() -> Iterator[OtherImap]:
    """Its login asks a daemon whose path is compiled in, so the tests do the login by themselves, and hand over then."""
    folder = unpacked("courier", *_COURIER)
    with _place("courier") as place:
        server = _CourierLogin(folder, place)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield OtherImap(server.server_address[1])
        finally:
            server.shutdown()
            server.server_close()


class _CourierLogin(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: Path, place: Path) -> None:
        super().__init__(("127.0.0.1", 0), _CourierSession)
        self.folder, self.place = folder, place
        self.environment = {
            **library_path(folder),
            "IMAP_CAPABILITY": _COURIER_CAPABILITIES,
            "IMAP_KEYWORDS": "1",
            "IMAP_USELOCKS": "0",
        }


_COURIER_CAPABILITIES = "IMAP4rev1 UIDPLUS CHILDREN NAMESPACE THREAD=ORDEREDSUBJECT THREAD=REFERENCES SORT QUOTA IDLE"


class _CourierSession(BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _CourierLogin)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        file = self.request.makefile("rb", buffering=0)
        self.request.sendall(f"* OK [CAPABILITY {_COURIER_CAPABILITIES}] Courier-IMAP ready.\r\n".encode())
        while line := file.readline():
            tag, command, *words = line.split()
            if command.upper() == b"LOGIN" and words[1].strip(b'"') == PASSWORD.encode():
                self._hand_over(tag, words[0].strip(b'"').decode())
                return
            self.request.sendall(tag + (b" NO Login failed.\r\n" if command.upper() == b"LOGIN" else b" OK done\r\n"))

    def _hand_over(self, tag: bytes, user: str) -> None:
        """The server greets with PREAUTH, in place of which the client expects the end of its LOGIN."""
        server = self.server
        assert isinstance(server, _CourierLogin)
        home = server.place / user
        for name in ("cur", "new", "tmp"):
            (home / "Maildir" / name).mkdir(parents=True, exist_ok=True)
        environment = {**server.environment, "HOME": str(home), "AUTHENTICATED": user, "AUTHADDR": user}
        ours, theirs = socket.socketpair()
        command = [str(server.folder / "usr/bin/imapd"), "Maildir"]
        quiet = subprocess.DEVNULL
        with (
            ours,
            subprocess.Popen(
                command, cwd=home, env=environment, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=quiet
            ) as process,
        ):
            theirs.close()
            greetings = iter(ours.makefile("rb", buffering=0).readline, b"")
            ready = any(line.startswith(b"* PREAUTH") for line in greetings)
            self.request.sendall(tag + (b" OK LOGIN Ok.\r\n" if ready else b" NO it does not start\r\n"))
            back = threading.Thread(target=_copy, args=(ours, self.request), daemon=True)
            back.start()
            _copy(self.request, ours)
            back.join(10)
            process.kill()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
