"""The examples of docs/api.md, run as they are on a whole archive."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.conftest import Archiver
from tests.support.mailfiles import mbox, message
from tests.support.waiting import DEADLINE_SECONDS, eventually

DOCUMENT = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
EMAIL, PASSWORD = "alice@example.org", "correct horse battery"
MAIL = b"Message-ID: <i1@example.org>\r\nFrom: bob@example.org\r\nSubject: Invoice 17\r\n\r\nPlease pay.\r\n"


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    variables = {"SAMPLE_SOURCES": "", "ARCHIVER_ADMIN_EMAIL": EMAIL, "ARCHIVER_ADMIN_PASSWORD": PASSWORD}
    archiver = Archiver(tmp_path_factory.mktemp("examples") / "data", **variables, ARCHIVER_ADMIN_PURPOSE="own_mail")
    try:
        archiver.start()
        url = f"http://127.0.0.1:{archiver.port}"
        with httpx2.Client(base_url=f"{url}/api/v1", timeout=DEADLINE_SECONDS) as client:
            signed_in = client.post("/session", json={"email": EMAIL, "password": PASSWORD})
            headers = {"X-CSRF-Token": signed_in.json()["csrf_token"]}
            wanted = {"name": "examples", "scopes": ["search", "read", "ingest", "export"], "password": PASSWORD}
            key = client.post("/me/keys", json=wanted, headers=headers).json()["key"]
        yield {**os.environ, "ARCHIVER": url, "KEY": key}
    finally:
        archiver.clean_up()


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_examples_for_curl(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mail.eml").write_bytes(MAIL)
    search, submit, newest = examples("sh")
    assert '"id"' in run(["bash", "-euc", submit], tmp_path, environment)
    eventually(lambda: '"total":1,' in run(["bash", "-euc", search], tmp_path, environment), what="the invoice to be found")
    run(["bash", "-euc", newest], tmp_path, environment)
    assert (tmp_path / "newest.eml").read_bytes() == MAIL


@pytest.mark.slow
def test_the_example_for_python(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "old.mbox").write_bytes(mbox([message(number) for number in range(60)]))
    (example,) = examples("python")
    first = run([sys.executable, "-W", "error", "-c", example], tmp_path, environment)
    assert first.startswith("import: success\n")
    search_only = example[: example.index("upload = ")] + example[example.index("\noffset = 0\nwhile offset is not None") :]
    found = eventually(
        lambda: len(set(lines := run([sys.executable, "-c", search_only], tmp_path, environment).splitlines())) == 60 and lines,
        60,
        "sixty messages on two pages",
    )
    assert any(line.endswith("Number 59") for line in found), found
