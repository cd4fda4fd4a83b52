"""The dialogue with mail servers: every byte arrives, every fault of ours is temporary, nothing is smuggled."""

from __future__ import annotations

import datetime
import random
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from archiver.config import load_settings
from archiver.db.counters import Counters
from archiver.errors import ConfigError
from archiver.journal.policy import JournalPolicy, RateLimit
from archiver.journal.server import JournalServer, tls_context
from archiver.journal.spool import JournalSpool
from archiver.secrets import Keyring
from archiver.store.capacity import NoRoom
from archiver.store.keys import PackKeys
from tests.support.store_world import Failing
from tests.support.waiting import eventually

SECRET = "a password with spaces"
Start = Callable[..., JournalServer]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + datetime.timedelta(days=2)).sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*form))
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[JournalServer] = []

    def begin(**changes: object) -> JournalServer:
        (tmp_path / "journal").mkdir(exist_ok=True)
        spool = JournalSpool(tmp_path / "journal", PackKeys(Keyring.generate()))
        tls = changes.pop("tls", None)
        given = {
            "networks": (ip_network("127.0.0.0/8"),), "addresses": frozenset(), "username": None, "password": None,
            "needs_tls": False, "max_bytes": 5 << 20, "connections": 50, "messages_per_minute": 0, **changes,
        }  # fmt: skip
        server = JournalServer(JournalPolicy(**given), spool, Counters(), "archive.example", tls)  # type: ignore[arg-type]
        servers.append(server)
        return server

    yield begin
    for server in servers:
        server.stop()


def _listen(server: JournalServer, *, is_encrypted: bool = False) -> int:
    port = server.listen("127.0.0.1", 0, is_encrypted=is_encrypted)
    server.start()
    return port


def _stored(server: JournalServer) -> list[bytes]:
    return [b"".join(pieces) for path in server.spool.waiting() for _, pieces in server.spool.read(path)]


class Raw:
    """A client that sends what it likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def reply(self) -> str:
        while (line := self.file.readline().decode())[3:4] == "-":
            pass
        return line.rstrip()

    def say(self, *lines: bytes) -> str:
        self.socket.sendall(b"".join(line + b"\r\n" for line in lines))
        return self.reply()

    def begin(self) -> None:
        assert self.reply().startswith("220")
        assert self.say(b"EHLO tester").startswith("250")

    def envelope(self) -> str:
        assert self.say(b"MAIL FROM:<>").startswith("250")
        assert self.say(b"RCPT TO:<journal@archive.example>").startswith("250")
        return self.say(b"DATA")


def _stuffed(message: bytes) -> bytes:
    return b"\r\n".join(b"." + line if line.startswith(b".") else line for line in message.split(b"\r\n"))


def test_every_byte_arrives_however_the_network_cuts_it(start: Start) -> None:
    server = start()
    port, chance = _listen(server), random.Random(7)
    alphabet = [b"\r", b"\n", b"\r\n", b".", b"..", b"\r\n.", b"\r\n..\r\n", b"\n.\n", b"\0", b"\xff", b"a" * 3000, b"text"]
    messages = [b"".join(chance.choices(alphabet, k=chance.randrange(1, 40))) + b"\r\n" for _ in range(60)]
    messages += [b".\r\n", b"..\r\n.\r\n", b"\r\n", b"x" * 200_000 + b"\r\n", b"long\r\n" * 400_000]
    with Raw(port) as client:
        client.begin()
        for message in messages:
            assert client.envelope().startswith("354")
            data = _stuffed(message) + b".\r\n"
            at = 0
            while at < len(data):
                size = chance.choice([1, 2, 3, 5, 700, 200_000])
                client.socket.sendall(data[at : at + size])
                at += size
            assert client.reply().startswith("250")
        assert client.say(b"QUIT").startswith("221")
    assert _stored(server) == messages


def test_only_the_real_end_ends_a_message(start: Start) -> None:
    """SMTP smuggling: what follows a dot between other line ends is content, not a command."""
    server = start()
    hidden = b"first\r\n\n.\nMAIL FROM:<x@evil.example>\r\n\r.\r\nRCPT TO:<y@evil.example>\r\nDATA\r\n\n.\r\nforged\r\n"
    with Raw(_listen(server)) as client:
        client.begin()
        client.envelope()
        client.socket.sendall(hidden + b".\r\n")
        assert client.reply().startswith("250")
        assert client.say(b"NOOP").startswith("250")
    assert _stored(server) == [hidden]


def test_commands_after_starttls_are_not_carried_into_the_encrypted_connection(
    start: Start, certificate: tuple[Path, Path]
) -> None:
    server = start(tls=_context(certificate), needs_tls=True)
    with Raw(_listen(server)) as client:
        client.begin()
        assert client.say(b"STARTTLS", b"MAIL FROM:<x@evil.example>").startswith("501")
        assert client.file.readline() == b""


def _context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    names = {"JOURNAL_PORT": "2525", "JOURNAL_TLS_CERTIFICATE": str(certificate[0]), "JOURNAL_TLS_KEY": str(certificate[1])}
    found = tls_context(load_settings(names, Path("/dev/null")))
    assert found is not None
    return found


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_tls_by_starttls_and_from_the_start_with_a_password(start: Start, certificate: tuple[Path, Path]) -> None:
    server = start(tls=_context(certificate), needs_tls=True, username="exchange", password=SECRET)
    plain, encrypted = server.listen("127.0.0.1", 0), server.listen("127.0.0.1", 0, is_encrypted=True)
    server.start()
    with smtplib.SMTP("127.0.0.1", plain) as client:
        assert client.docmd("EHLO", "x")[0] == 250
        assert client.docmd("MAIL", "FROM:<>")[0] == 530
        assert client.docmd("AUTH", "PLAIN AGV4Y2hhbmdlAHg=")[0] == 503
        client.starttls(context=_trusting())
        client.ehlo()
        assert client.docmd("MAIL", "FROM:<>")[0] == 530
        with pytest.raises(smtplib.SMTPAuthenticationError):
            client.login("exchange", "wrong")
        client.login("exchange", SECRET)
        client.sendmail("", ["journal@archive.example"], b"by STARTTLS\r\n")
    with smtplib.SMTP_SSL("127.0.0.1", encrypted, context=_trusting()) as client:
        client.login("exchange", SECRET)
        client.sendmail("", ["journal@archive.example"], b"from the start\r\n")
    assert _stored(server) == [b"by STARTTLS\r\n", b"from the start\r\n"]


def test_who_may_send_and_to_whom(start: Start) -> None:
    server = start(addresses=frozenset({"journal@archive.example", "@own.example"}))
    with Raw(_listen(server)) as client:
        client.begin()
        assert client.say(b"MAIL FROM:<a@example.org> BODY=8BITMIME").startswith("250")
        assert client.say(b"RCPT TO:<other@archive.example>").startswith("550")
        assert client.say(b"RCPT TO:<Journal@Archive.Example>").startswith("250")
        assert client.say(b"RCPT TO:<anybody@own.example>").startswith("250")
    stranger = start(networks=(ip_network("192.0.2.0/24"),))
    with Raw(_listen(stranger)) as client:
        assert client.reply().startswith("421 4.7.1")


def test_a_message_over_the_limit_is_refused_before_or_after_it_came(start: Start) -> None:
    server = start(max_bytes=10_000)
    with Raw(_listen(server)) as client:
        client.begin()
        assert client.say(b"MAIL FROM:<> SIZE=10001").startswith("552")
        client.envelope()
        client.socket.sendall(b"x" * 2_000_000 + b"\r\n.\r\n")
        assert client.reply().startswith("552")
        client.envelope()
        client.socket.sendall(b"small\r\n.\r\n")
        assert client.reply().startswith("250")
    assert _stored(server) == [b"small\r\n"]


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_full_disk_is_a_temporary_error_and_the_next_message_goes_through(start: Start, size: int) -> None:
    server = start()
    message = b"y" * size + b"\r\n"
    with Raw(_listen(server)) as client:
        client.begin()
        server.spool.files = Failing(1)  # the first write
        client.envelope()
        client.socket.sendall(message + b".\r\n")
        assert client.reply().startswith("452")
        client.envelope()
        client.socket.sendall(message + b".\r\n")
        assert client.reply().startswith("250")

        def no_room(_: int) -> None:
            raise NoRoom("the disk is nearly full", 300)

        server.spool.check_space = no_room
        assert client.say(b"MAIL FROM:<>").startswith("452")
    assert _stored(server) == [message]


def test_fifty_connections_at_once_and_the_next_one_is_put_off(start: Start) -> None:
    server = start(connections=50)
    port, errors = _listen(server), list[BaseException]()
    together = threading.Barrier(51)

    def send(number: int) -> None:
        try:
            with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
                client.ehlo()
                together.wait()
                together.wait()
                client.sendmail("", ["journal@archive.example"], b"message %d\r\n" % number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    together.wait()
    with Raw(port) as late:
        assert late.reply().startswith("421 4.7.0")
    together.wait()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(_stored(server)) == sorted(b"message %d\r\n" % number for number in range(50))
    eventually(lambda: not server._open_sessions(), what="the end of all sessions")


def test_the_rate_of_a_client_is_limited(start: Start) -> None:
    server = start(messages_per_minute=2)
    with Raw(_listen(server)) as client:
        client.begin()
        for _ in range(2):
            client.envelope()
            client.socket.sendall(b".\r\n")
            assert client.reply().startswith("250")
        assert client.say(b"MAIL FROM:<>").startswith("450")
    clock = [0.0]
    limit = RateLimit(60, clock=lambda: clock[0])
    assert sum(limit.allows("a") for _ in range(100)) == 60
    assert limit.allows("b")
    clock[0] = 2.5
    assert sum(limit.allows("a") for _ in range(10)) == 2


@pytest.mark.parametrize(
    "lines",
    [b"MAIL", b"RCPT TO:<x>", b"DATA", b"MAIL FROM:nobody", b"\xff\xfe", b"AUTH PLAIN x", b"", b"MAIL FROM:<a", b"BDAT 5"],
)
def test_bad_commands_get_an_error_and_the_session_goes_on(start: Start, lines: bytes) -> None:
    with Raw(_listen(start())) as client:
        client.begin()
        assert client.say(lines)[0] == "5"
        assert client.say(b"NOOP").startswith("250")


def test_endless_commands_and_endless_errors_end_the_session(start: Start) -> None:
    port = _listen(start())
    with Raw(port) as client:
        client.begin()
        client.socket.sendall(b"x" * 20_000)
        assert client.reply().startswith("500")
    with Raw(port) as client:
        client.begin()
        replies = [client.say(b"NONSENSE") for _ in range(21)]
        assert replies[-1].startswith("500")
        assert client.reply().startswith("421")


def test_a_stop_receives_the_message_that_is_arriving(start: Start) -> None:
    server = start()
    port = _listen(server)
    with Raw(port) as busy, Raw(port) as idle:
        busy.begin()
        idle.begin()
        busy.envelope()
        busy.socket.sendall(b"first half, ")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert idle.reply().startswith("421")
        busy.socket.sendall(b"second half\r\n.\r\n")
        assert busy.reply().startswith("250")
        stopping.join()
    assert _stored(server) == [b"first half, second half\r\n"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"JOURNAL_PORT": "25", "JOURNAL_HOST": "0.0.0.0"}, "JOURNAL_TLS_CERTIFICATE"),
        ({"JOURNAL_TLS_PORT": "465"}, "JOURNAL_TLS_CERTIFICATE"),
        ({"JOURNAL_USERNAME": "a"}, "JOURNAL_PASSWORD"),
        ({"JOURNAL_TLS_KEY": "/x"}, "JOURNAL_TLS_CERTIFICATE"),
        ({"JOURNAL_NETWORKS": "everywhere"}, "JOURNAL_NETWORKS"),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_settings(given, Path("/dev/null"))
