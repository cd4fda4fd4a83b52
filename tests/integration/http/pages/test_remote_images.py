"""Remote images through our own fetcher: what it asks for, whom it never asks, and what the reader's browser gets."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from archiver.config import load_settings
from archiver.errors import TooMany
from archiver.public_address import Address
from archiver.reading.image_fetching import Fetcher, RealNetwork
from archiver.reading.remote_images import RemoteImages
from archiver.secrets import Keyring
from tests.browser.mails import PIXEL
from tests.integration.http.conftest import Company, Served
from tests.support.waiting import DEADLINE_SECONDS

PUBLIC = "93.184.215.14"


class Elsewhere:
    """A web server on this machine that plays all servers of the world; `answer` says how."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.answer: Callable[[BaseHTTPRequestHandler], None] = give(PIXEL)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.headers.get("Host", ""), self.path, dict(self.headers)))
                outer.answer(self)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def give(data: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def send_to(url: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", url)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@dataclass
class World:
    """Names mean what a test says; every connection ends at `Elsewhere`, and is noted."""

    port: int
    names: dict[str, list[str]] = field(default_factory=dict)
    looked_up: list[str] = field(default_factory=list)
    connected: list[tuple[str, int]] = field(default_factory=list)

    def resolve(self, host: str) -> list[Address]:
        self.looked_up.append(host)
        answers = self.names.get(host, [PUBLIC])
        first = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ip_address(one) for one in first.split()]

    def connect(self, address: Address, port: int, seconds: float) -> socket.socket:
        self.connected.append((str(address), port))
        return socket.create_connection(("127.0.0.1", self.port), seconds)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    server = Elsewhere()
    yield server
    server.close()


@pytest.fixture
def world(elsewhere: Elsewhere) -> World:
    return World(elsewhere.port)


# --- the fetcher


def test_an_image_is_fetched_without_a_word_about_the_reader(world: World, elsewhere: Elsewhere) -> None:
    assert Fetcher(world).fetch("http://img.example.org/a b.png?x=1&y=ü#part") == PIXEL
    ((host, path, headers),) = elsewhere.asked
    assert (host, path) == ("img.example.org", "/a%20b.png?x=1&y=%C3%BC")
    assert not {"referer", "cookie", "x-forwarded-for", "authorization", "origin"} & {name.lower() for name in headers}
    assert world.connected == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "addresses",
    ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "fd00::1", "::ffff:192.168.1.1", "64:ff9b::a00:1", "0.0.0.0"],
)
def test_no_private_address_is_connected_to(world: World, addresses: str) -> None:
    for answer in (addresses, f"{PUBLIC} {addresses}"):
        world.names["img.example.org"] = [answer]
        assert Fetcher(world).fetch("http://img.example.org/x.png") is None
    assert world.connected == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"])
def test_however_this_machine_is_spelt_it_is_not_asked(elsewhere: Elsewhere, host: str) -> None:
    class OurPort(RealNetwork):
        def connect(self, address: Address, port: int, seconds: float) -> socket.socket:
            return super().connect(address, elsewhere.port, seconds)

    assert Fetcher(OurPort()).fetch(f"http://{host}/x.png") is None
    assert elsewhere.asked == []


def test_a_redirect_is_looked_at_like_the_first_address(world: World, elsewhere: Elsewhere) -> None:
    world.names["inside.example.org"] = ["10.0.0.7"]
    for target in ("http://inside.example.org/", "http://127.0.0.1/", "http://[::1]/", "file:///etc/passwd", "gopher://x/"):
        if "127" in target or "::1" in target:
            world.names[target.removeprefix("http://").strip("[]/")] = [target.removeprefix("http://").strip("[]/")]
        elsewhere.answer = send_to(target)
        assert Fetcher(world).fetch("http://img.example.org/x.png") is None
    assert {address for address, _ in world.connected} == {PUBLIC}
    elsewhere.answer = send_to("/again.png")
    assert Fetcher(world).fetch("http://img.example.org/x.png") is None
    assert len([one for one in elsewhere.asked if one[1] == "/again.png"]) <= 6, "not for ever"


def test_a_name_that_changes_its_meaning_is_connected_to_as_it_was_checked(world: World) -> None:
    """DNS rebinding: the first answer is public, all later ones are not."""
    world.names["img.example.org"] = [PUBLIC, "127.0.0.1"]
    assert Fetcher(world).fetch("http://img.example.org/x.png") == PIXEL
    assert world.looked_up == ["img.example.org"]
    assert world.connected == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "url",
    [
        "http://img.example.org:6379/x.png",
        "https://img.example.org:80/x.png",
        "ftp://img.example.org/x.png",
        "http:///x.png",
        "http://img.example.org\r\nX: y/x.png",
        "http://[bad/x.png",
        "http://img.example.org:99999/x.png",
        "",
    ],
)
def test_other_ports_and_schemes_are_not_for_images(world: World, url: str) -> None:
    assert Fetcher(world).fetch(url) is None
    assert [one for one in world.connected if one != (PUBLIC, 80)] == []


@pytest.mark.parametrize(
    "answer",
    [
        give(b"<svg xmlns='http://www.w3.org/2000/svg'><script>x</script></svg>", Content_Type="image/svg+xml"),
        give(b"<html>", Content_Type="image/png"),
        give(b""),
        give(PIXEL, Content_Encoding="gzip"),
        give(b"\x89PNG\r\n\x1a\n" + b"x" * 5000),
    ],
)
def test_what_is_no_image_or_too_large_is_left_out(
    world: World, elsewhere: Elsewhere, answer: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    elsewhere.answer = answer
    assert Fetcher(world, most_bytes=2000).fetch("http://img.example.org/x.png") is None


@pytest.mark.parametrize("where", ["header", "body", "silence"])
def test_a_server_that_drips_is_cut_off(world: World, elsewhere: Elsewhere, where: str) -> None:
    gone = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        try:
            if where == "body":
                handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n\x89PNG\r\n\x1a\n")
            elif where == "header":
                handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while where != "silence":
                handler.wfile.write(b"x" if where == "body" else b"X: y\r\n")
                handler.wfile.flush()
            handler.rfile.read()
        except OSError:
            pass
        gone.set()

    elsewhere.answer = drip
    assert Fetcher(world, seconds=0.3, most_bytes=1 << 40).fetch("http://img.example.org/x.png") is None
    assert gone.wait(DEADLINE_SECONDS), "the connection was cut"


# --- into the mail


@pytest.fixture
def images(world: World, tmp_path: Path, keyring: Keyring) -> Iterator[RemoteImages]:
    made = RemoteImages(tmp_path / "cache", keyring, Fetcher(world))
    yield made
    made.close()


def test_images_are_put_into_the_html_and_fetched_once(images: RemoteImages, elsewhere: Elsewhere, tmp_path: Path) -> None:
    html = (
        '<p>x</p><img alt="a>b" src="http://a.example.org/1.png?x=1&amp;y=2"><img src="http://a.example.org/1.png?x=1&amp;y=2">'
    )
    html += '<img width="3" src="cid:x"><a href="http://b.example.org">http://b.example.org</a>'
    shown = images.embed(html, b"m", "reader")
    assert shown.count("data:image/png;base64,") == 2
    assert "a.example.org" not in shown
    assert 'href="http://b.example.org"' in shown
    assert [path for _, path, _ in elsewhere.asked] == ["/1.png?x=1&y=2"]
    assert images.embed(html, b"m", "reader") == shown
    assert len(elsewhere.asked) == 1, "kept"
    images.embed(html, b"another message", "reader")
    assert len(elsewhere.asked) == 2, "whoever reads another message learns nothing"
    files = list((tmp_path / "cache").iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert not [path for path in files if b"PNG" in path.read_bytes()], "sealed"


def test_what_cannot_be_fetched_is_left_out(images: RemoteImages, elsewhere: Elsewhere) -> None:
    elsewhere.answer = give(b"nothing")
    shown = images.embed('<img src="http://a.example.org/1.png">', b"m", "reader")
    assert shown == '<img src="data:,">'


def test_one_reader_loads_one_message_at_a_time(images: RemoteImages, elsewhere: Elsewhere) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        entered.set()
        go_on.wait(DEADLINE_SECONDS)
        give(PIXEL)(handler)

    elsewhere.answer = slow
    html = '<img src="http://a.example.org/1.png">'
    got: list[str] = []
    loading = threading.Thread(target=lambda: got.append(images.embed(html, b"m", "alice")))
    loading.start()
    assert entered.wait(DEADLINE_SECONDS)
    with pytest.raises(TooMany):
        images.embed(html, b"m", "alice")
    assert images.embed("<p>no image</p>", b"m", "bob") == "<p>no image</p>"
    go_on.set()
    loading.join(DEADLINE_SECONDS)
    assert "data:image/png" in got[0]


MAIL = (
    b"Message-ID: <remote@example.org>\r\nFrom: x@example.net\r\nTo: alice@example.org\r\nSubject: remote\r\n"
    b"Date: Tue, 05 Mar 2024 10:00:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n"
    b'<p>hello</p><img src="http://tracker.example.org/alice.png">\r\n'
)


def test_the_page_gives_the_browser_nothing_to_fetch(
    company: Company, variables: dict[str, Any], world: World, elsewhere: Elsewhere, keyring: Keyring, tmp_path: Path
) -> None:
    with Served(load_settings(variables, Path("none"))) as served, company.client("alice") as alice:
        served.app.state.context.remote_images = RemoteImages(tmp_path, keyring, Fetcher(world))
        answer = alice.post(f"{served.url}/api/v1/messages", params={"mailbox": "alice@example.org"}, content=MAIL)
        assert answer.status_code == 201, answer.text
        page = f"{served.url}/messages/{answer.json()['id']}/body"
        closed = alice.get(page)
        assert "tracker" not in closed.text
        assert elsewhere.asked == [], "off unless it is asked for"
        opened = alice.get(f"{page}?remote=1")
        assert "data:image/png;base64," in opened.text
        assert "tracker" not in opened.text
        assert [path for _, path, _ in elsewhere.asked] == ["/alice.png"]
        for frame in (closed, opened):
            assert "img-src data:;" in frame.headers["Content-Security-Policy"] + ";"
            assert "http" not in frame.headers["Content-Security-Policy"]
    company.act("DELETE FROM message_copies WHERE message_id = :i", i=answer.json()["id"])
    company.act("DELETE FROM messages WHERE sha256 = :h", h=hashlib.sha256(MAIL).digest())
