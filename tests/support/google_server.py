"""A small Google: token server, Directory and Gmail over real HTTP, as a process of its own.

It checks what it is sent (signatures, scopes, tokens), keeps quotas like Google's, remembers every call, and plays whatever
trouble it is told. `python -m tests.support.google_server WORLD.json` prints its port.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.google_world import BLOCK, CLIENT_ID, Google, key_pair
from tests.support.waiting import DEADLINE_SECONDS


async def _serve(google: Google, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            method, target, _ = first.split(" ")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status, answer, more = google.answer(method, target, headers, body)
            trouble, google.body_trouble = google.body_trouble, {}
            if not target.startswith("/control"):
                await asyncio.sleep(google.world.get("latency", 0))
            if status == -1:
                await asyncio.sleep(3600)
            if status == -2:
                break
            if trouble:
                await _reply_badly(writer, answer, trouble)
                break
            await _reply(google, writer, status, answer, more, "gzip" in headers.get("accept-encoding", ""))
    writer.close()


async def _reply_badly(writer: asyncio.StreamWriter, answer: Any, trouble: dict[str, Any]) -> None:
    """`bytes`: so many of the body, then nothing; `seconds`: between each two of ten pieces; `text`: instead of the body."""
    if isinstance(answer, tuple):
        answer = {**answer[0], "raw": base64.urlsafe_b64encode(answer[1].raw).decode()}
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    body = trouble["text"].encode() if "text" in trouble else body
    writer.write(f"HTTP/1.1 200 X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
    body = body[: trouble.get("bytes", len(body))]
    size = max(1, len(body) // 10)
    for start in range(0, len(body), size):
        writer.write(body[start : start + size])
        await writer.drain()
        await asyncio.sleep(trouble.get("seconds", 0))


async def _reply(
    google: Google, writer: asyncio.StreamWriter, status: int, answer: Any, more: dict[str, str], zipped: bool
) -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(google.time()))
    head = f"HTTP/1.1 {status} X\r\nDate: {date}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in {"Content-Type": "application/json", **more}.items())
    if isinstance(answer, tuple):
        about, message = answer
        start = json.dumps({**about, "raw": ""})[:-2] + base64.urlsafe_b64encode(message.raw).decode()
        if message.blocks:
            block = base64.urlsafe_b64encode(BLOCK)
            writer.write(f"{head}Content-Length: {len(start) + message.blocks * len(block) + 2}\r\n\r\n{start}".encode())
            for _ in range(message.blocks):
                writer.write(block)
                await writer.drain()
            writer.write(b'"}')
            await writer.drain()
            return
        body = f'{start}"}}'.encode()
    else:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    if zipped and len(body) > 1000 and google.world.get("gzip", False):
        body, head = gzip.compress(body, 1), f"{head}Content-Encoding: gzip\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


async def _main(world: dict[str, Any]) -> None:
    google = Google(world)
    server = await asyncio.start_server(lambda r, w: _serve(google, r, w), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- for tests and benchmarks


class GoogleServer:
    """The process, and what a source needs in order to use it."""

    def __init__(self, folder: Path, users: list[dict[str, Any]], **world: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        private, public = key_pair()
        scope = "https://www.googleapis.com/auth/"
        self.world = {
            "users": users,
            "admin": users[0]["address"],
            "scopes": [f"{scope}gmail.readonly", f"{scope}admin.directory.user.readonly"],
            "public_key": public,
            **world,
        }
        path = folder / "world.json"
        path.write_text(json.dumps(self.world))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.google_server", str(path)], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        self._private = private
        self.key = self.new_key()
        self.settings = {"admin": self.world["admin"], "gmail_url": self.url, "directory_url": self.url}
        self.gmail_settings = {
            "address": users[0]["address"],
            "client_id": "4711-abc.apps.googleusercontent.com",
            "gmail_url": self.url,
            "token_url": f"{self.url}/token",
            "auth_url": f"{self.url}/auth",
        }

    def new_key(self, name: str = "archiver") -> str:
        """The key file of a service account of that name."""
        return json.dumps(
            {
                "type": "service_account",
                "project_id": "archive-test",
                "private_key_id": "k1",
                "private_key": self._private,
                "client_email": f"{name}@archive-test.iam.gserviceaccount.com",
                "client_id": CLIENT_ID,
                "token_uri": f"{self.url}/token",
            }
        )

    def start_over(self) -> None:
        """As if it were new; a new key makes sure that nobody has tokens for it yet."""
        self.tell(start_over=True)
        self.key = self.new_key(f"archiver-{secrets.token_hex(4)}")

    def tell(self, **orders: Any) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/control", json.dumps(orders).encode())
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return dict(json.loads(answer.read()))

    def calls(self) -> Counter[str]:
        return Counter(self.tell()["calls"])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def google_server(folder: Path, users: list[dict[str, Any]], **world: Any) -> Iterator[GoogleServer]:
    server = GoogleServer(folder, users, **world)
    try:
        yield server
    finally:
        server.close()


if __name__ == "__main__":
    asyncio.run(_main(json.loads(Path(sys.argv[1]).read_text())))
