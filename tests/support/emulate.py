"""`emulate` (Vercel, Apache-2.0): a Gmail that nobody here has written, as an oracle for messages, labels and history.

Installed from npm into a cache folder outside the repository, once; without npm, the tests that need it are skipped.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.npm import install
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

_PACKAGES = ("emulate@0.12.2", "node@24")  # (the tag `latest` of emulate is something else; it needs Node 22.15 or newer)
TOKEN = "tok_alice"


def _installed() -> Path:
    return install("emulate-0.12.2", _PACKAGES, (".bin/node", "emulate/dist/index.js"), "the Gmail emulator")


class Emulate:
    """Gmail alone, for the account alice@acme.test."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/gmail/v1/users/me{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def insert(self, raw: bytes, labels: list[str]) -> str:
        body = {"raw": base64.urlsafe_b64encode(raw).decode(), "labelIds": labels}
        return str(self.ask("POST", "/messages", body)["id"])


@contextmanager
def emulated_gmail(folder: Path, messages: list[bytes]) -> Iterator[Emulate]:
    installed = _installed()
    seed = {
        "tokens": {TOKEN: {"login": "alice@acme.test", "scopes": ["gmail"]}},
        "google": {
            "users": [{"email": "alice@acme.test", "hd": "acme.test"}],
            "messages": [
                {
                    "id": f"seeded{number}",
                    "user_email": "alice@acme.test",
                    "raw": base64.urlsafe_b64encode(raw).decode(),
                    "label_ids": ["INBOX"],
                }
                for number, raw in enumerate(messages)
            ],
        },
    }
    (folder / "seed.json").write_text(json.dumps(seed))
    port = free_port()
    command = [installed / "node_modules/.bin/node", installed / "node_modules/emulate/dist/index.js", "start"]
    options = ["--service", "google", "--port", str(port), "--seed", str(folder / "seed.json")]
    with (folder / "emulate.log").open("wb") as log:
        process = subprocess.Popen([*map(str, command), *options], stdout=log, stderr=log)
    try:
        made = Emulate(f"http://127.0.0.1:{port}")
        _wait(made, process, folder / "emulate.log")
        yield made
    finally:
        process.kill()
        process.wait()


def _wait(made: Emulate, process: subprocess.Popen[bytes], log: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"the Gmail emulator does not start: {log.read_text()[-500:]}"
        try:
            made.ask("GET", "/labels")
        except OSError:
            return False
        return True

    eventually(answers, what="a Gmail emulator", pause=0.1)


def ask_emulated(world: dict[str, Any], address: str, kind: str, target: str) -> tuple[int, Any]:
    """This Gmail behind the tokens of our Google; it knows no profile, so that is made of its history."""
    if kind == "profile":
        status, answer = ask_emulated(world, address, "history", "/gmail/v1/users/me/history?startHistoryId=1")
        return status, {"emailAddress": address, "historyId": answer["historyId"]}
    headers = {"Authorization": f"Bearer {world['emulate_token']}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(world["emulate"] + target, headers=headers)) as answer:
            return 200, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
