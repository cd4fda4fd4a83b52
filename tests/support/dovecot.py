"""A real Dovecot on ports of its own, as an ordinary user, with whatever mail a test wants in it."""

from __future__ import annotations

import getpass
import grp
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from imapclient.imap_utf7 import encode as encode_utf7

from tests.support.ports import free_port
from tests.support.waiting import eventually

BINARY = shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PASSWORD, MASTER, MASTER_PASSWORD, TOKEN = "secret", "admin", "master secret", "a-good-token"
_NUMBERS = itertools.count(1)

_CONFIG = """
base_dir = {place}/run
state_dir = {place}/state
log_path = {place}/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <{place}/server.pem
ssl_key = <{place}/server.key
disable_plaintext_auth = no
auth_mechanisms = plain login xoauth2 oauthbearer
auth_failure_delay = 0
auth_master_user_separator = *
mail_location = maildir:~/Maildir
mail_plugins = zlib
mail_max_userip_connections = 100
mail_fsync = never
default_vsz_limit = 4 G
first_valid_uid = 0
mail_uid = {user}
mail_gid = {group}
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
passdb {{
  driver = passwd-file
  args = {place}/masters
  master = yes
}}
passdb {{
  driver = static
  args = password={password}
  mechanisms = plain login
}}
passdb {{
  driver = oauth2
  mechanisms = xoauth2 oauthbearer
  args = {place}/oauth2.conf
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={place}/mail/%u allow_all_users=yes
}}
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Sent {{
    special_use = \\Sent
    auto = subscribe
  }}
  mailbox Trash {{
    special_use = \\Trash
    auto = subscribe
  }}
}}
protocol imap {{
  mail_plugins = zlib imap_zlib
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
service stats {{
  chroot =
}}
"""


class Dovecot:
    def __init__(self, place: Path, config: str = "") -> None:
        self.place, self.port, self.tls_port = place, free_port(), free_port()
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._introspection = _introspection_server()
        self.ca_file = place / "ca.pem"
        self.user, self.group = ("nobody", "nogroup") if os.getuid() == 0 else (getpass.getuser(), str(os.getgid()))
        self._prepare()

    def _prepare(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca_file)
        own = authority.issue_cert("localhost")
        own.private_key_pem.write_to_path(self.place / "server.key")
        (self.place / "server.pem").write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))
        (self.place / "masters").write_text(f"{MASTER}:{{PLAIN}}{MASTER_PASSWORD}\n")
        (self.place / "oauth2.conf").write_text(
            "introspection_mode = post\nusername_attribute = email\nactive_attribute = active\nactive_value = true\n"
            f"introspection_url = http://127.0.0.1:{self._introspection.server_port}/introspect\n"
        )
        (self.place / "mail").mkdir()
        values = {"place": self.place, "user": self.user, "group": self.group, "port": self.port, "tls_port": self.tls_port}
        (self.place / "dovecot.conf").write_text(_CONFIG.format(**values, password=PASSWORD) + self._config)
        self._give_away([self.place, *self.place.rglob("*")])

    def _give_away(self, paths: Iterable[Path]) -> None:
        if os.getuid() == 0:
            owner = pwd.getpwnam(self.user)
            for path in paths:
                os.chown(path, owner.pw_uid, grp.getgrnam(self.group).gr_gid)

    def start(self) -> Dovecot:
        command = [str(BINARY), "-c", str(self.place / "dovecot.conf"), "-F"]
        if os.getuid() == 0:
            command = ["setpriv", f"--reuid={self.user}", f"--regid={self.group}", "--clear-groups", *command]
        with (self.place / "start.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        eventually(self._greets, what="a Dovecot", pause=0.02)
        return self

    def _greets(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"dovecot does not start: {self.log()}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
                return probe.recv(4) == b"* OK"
        except OSError:
            return False

    def log(self) -> str:
        files = [self.place / "start.log", self.place / "dovecot.log"]
        return "".join(file.read_text() for file in files if file.exists())[-3000:]

    def kill(self) -> None:
        """With all its children, and without a word to anybody."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self._introspection.shutdown()
        self._introspection.server_close()

    # --- mail

    def maildir(self, user: str, folder: str = "INBOX") -> Path:
        home = self.place / "mail" / user / "Maildir"
        return home if folder == "INBOX" else home / ("." + encode_utf7(folder.replace("/", ".")).decode())

    def fill(self, user: str, folder: str, messages: Sequence[bytes], flags: str = "S", received: float = 1.6e9) -> list[Path]:
        """Puts messages into a folder. They have to have CRLF line ends, to come out as they went in."""
        place = self.maildir(user, folder)
        made = []
        for name in ("cur", "new", "tmp"):
            (place / name).mkdir(parents=True, exist_ok=True)
        for message in messages:
            number, size = next(_NUMBERS), len(message)
            path = place / "cur" / f"{1600000000 + number}.M{number}P1.host,S={size},W={size}:2,{flags}"
            path.write_bytes(message)
            os.utime(path, (received + number, received + number))
            made.append(path)
        home = self.place / "mail" / user
        self._give_away([home, self.maildir(user), place, *place.glob("*/"), *made])
        return made

    def lose_numbering(self, user: str, folder: str = "INBOX") -> None:
        """What a restored backup or a migration does: all UIDs are new, and so is UIDVALIDITY."""
        place = self.maildir(user, folder)
        for index in place.glob("dovecot.index*"):
            index.unlink()
        uidlist = place / "dovecot-uidlist"
        head = uidlist.read_text().split("\n", 1)[0].split()
        validity = next(int(word[1:]) for word in head if word.startswith("V"))
        uidlist.write_text(f"3 V{validity + 1000} N1 G{'0123456789abcdef' * 2}\n")
        self._give_away([uidlist])

    def settings(self, user: str, **more: Any) -> dict[str, Any]:
        return {"host": "localhost", "port": self.port, "tls": "none", "user": user, **more}


def message(number: int, size: int = 300, more: str = "") -> bytes:
    head = (
        f"From: Alice <alice@example.org>\r\nTo: Bob <bob@example.org>\r\nSubject: message {number}\r\n"
        f"Date: Mon, 06 Jan 2020 10:{number // 60 % 60:02}:{number % 60:02} +0000\r\n"
        f"Message-ID: <{number}.{more}@example.org>\r\n\r\n"
    ).encode()
    line = f"This is line after line of message {number}.\r\n".encode()
    return head + (line * (size // len(line) + 1))[: max(0, size - len(head))] + b"\r\n"


@contextmanager
def dovecot(config: str = "") -> Iterator[Dovecot]:
    """Skips, and says so, where there is none."""
    if BINARY is None:
        pytest.skip("dovecot is not installed (Debian, Ubuntu: apt install dovecot-imapd)")
    memory = Path("/dev/shm")  # many small files: quick where there is such a place
    place = Path(tempfile.mkdtemp(prefix="archiver-dovecot-", dir=memory if os.access(memory, os.W_OK) else None))
    server = Dovecot(place, config)
    try:
        yield server.start()
    finally:
        server.close()
        shutil.rmtree(place, ignore_errors=True)


def _introspection_server() -> HTTPServer:
    """Says whose token it is: that of anybody, as long as it is TOKEN or ends with it after an address and a colon."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            active = TOKEN in body
            answer = f'{{"active": {"true" if active else "false"}, "email": "oauth"}}'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
