"""Hostile mail by the thousand through the whole of Archiver: what is innocent is found, and every page opens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil
import pytest
from sqlalchemy import Engine, text

from archiver.access import grants, users
from archiver.access.grants import GrantTarget
from archiver.access.login import logins
from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import load_settings
from archiver.db.engine import make_engine
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.conftest import Archiver
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.soak_mail import hostile, innocent
from tests.support.waiting import DEADLINE_SECONDS, eventually

_PARSERS = Path(__file__).parents[2] / "support" / "hostile_parser"
_AT_REST = """
    SELECT NOT EXISTS (SELECT 1 FROM messages WHERE indexed_version < index_version OR search_state IN ('pending', 'body'))
       AND NOT EXISTS (SELECT 1 FROM sync_sessions)"""


def deadly(way: str) -> bytes:
    """What ends its parser (tests/support/hostile_parser): as future bugs will."""
    return f"From: eve@example.org\r\nSubject: deadly\r\n\r\nparser: {way}\r\n".encode()


@contextmanager
def connected(archiver: Archiver) -> Iterator[Engine]:
    engine = make_engine(EmbeddedPostgres(DataFolder(archiver.data)).url(), "test")
    try:
        yield engine
    finally:
        engine.dispose()


def signed_in(archiver: Archiver, engine: Engine) -> httpx2.Client:
    settings = load_settings({"ARCHIVER_DATA": str(archiver.data)}, Path("none"))
    with engine.begin() as connection:
        who = users.add(connection, LOCAL_OPERATOR, "reader@example.org")
        for mailbox in connection.execute(text("SELECT id FROM mailboxes")).scalars().all():
            grants.add(connection, LOCAL_OPERATOR, who, GrantTarget(mailbox_id=mailbox))
        session = logins.start(connection, settings, who.id, None, "test")
    return httpx2.Client(
        base_url=f"http://127.0.0.1:{archiver.port}",
        cookies={"archiver": session.token},
        timeout=DEADLINE_SECONDS,
        verify=False,
    )


def opened(client: httpx2.Client, message: str) -> list[tuple[str, int]]:
    """What did not open."""
    paths = (
        f"/messages/{message}",
        f"/messages/{message}/body",
        f"/api/v1/messages/{message}",
        f"/api/v1/messages/{message}/raw",
    )
    answers = [(path, client.get(path).status_code) for path in paths]
    return [(path, status) for path, status in answers if status != 200]


@pytest.mark.parametrize(
    ("count", "ways"),
    [
        (300, ["segfaults"]),
        pytest.param(10_000, ["segfaults", "eats memory", "hangs"], marks=[pytest.mark.chaos, pytest.mark.timeout(5400)]),
    ],
)
def test_innocent_mail_among_hostile_mail_is_found_and_all_of_it_opens(
    tmp_path: Path, dovecot: Dovecot, count: int, ways: list[str]
) -> None:
    innocents = [innocent(number) for number in range(count // 10)]
    mails = list(hostile(count))
    for number, one in enumerate([*innocents, *map(deadly, ways)]):
        mails.insert(number * 7 % len(mails), one)
    user = f"soak{count}"
    dovecot.fill(user, "INBOX", mails)
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    variables = {"API_REQUESTS_PER_MINUTE": "1000000", "PYTHONPATH": str(_PARSERS), "LOG_LEVEL": "warning"}
    archiver = Archiver(tmp_path / "data", **variables)
    try:
        archiver.start()
        settings = [f"--set={key}={value}" for key, value in dovecot.settings(user).items()]
        added = archiver.command("source", "add", "imap", "--name", "soak", *settings, f"--secret=password=@{secret}")
        assert added.returncode == 0, added.stderr
        synced = archiver.command("source", "sync", "soak", "--wait", "--json", seconds=3000)
        assert json.loads(synced.stdout)["outcome"] == "success", synced.stdout + synced.stderr
        with connected(archiver) as engine, signed_in(archiver, engine) as client:
            _check(engine, client, len(mails), len(innocents), ways)
        _check_processes(archiver)
    finally:
        archiver.clean_up()


def _check(engine: Engine, client: httpx2.Client, total: int, innocents: int, ways: list[str]) -> None:
    def at_rest() -> bool:
        with engine.connect() as connection:
            return bool(connection.execute(text(_AT_REST)).scalar())

    eventually(at_rest, 3000 if total > 1000 else 240, "everything read")
    with engine.connect() as connection:
        ids = [str(one) for one in connection.execute(text("SELECT id FROM messages")).scalars()]
        assert connection.execute(text("SELECT count(*) FROM message_copies")).scalar() == total
        states = Counter(connection.execute(text("SELECT search_state FROM messages")).scalars())
        reasons = list(connection.execute(text("SELECT reason FROM dead_letters")).scalars())
        innocent_states = set(
            connection.execute(text("SELECT search_state FROM messages WHERE subject LIKE 'innocent %'")).scalars()
        )
    print(f"{len(ids)} messages: {dict(states)}; {reasons}")
    assert len(reasons) == states["failed"] == len(ways), reasons
    assert innocent_states == {"full"}
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: _hits(client, f"word{number:06}"), range(innocents)))
        assert [number for number, hits in enumerate(found) if hits != 1] == []
        assert [one for wrong in threads.map(lambda one: opened(client, one), ids) for one in wrong] == _unreadable(engine)


def _hits(client: httpx2.Client, word: str) -> int:
    answer = client.get("/api/v1/search", params={"q": f'"{word}"'})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["total"])


def _unreadable(engine: Engine) -> list[tuple[str, int]]:
    """A message that ends its reader has a page that says so; the frame for its HTML has nothing to show."""
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT id FROM messages WHERE search_state = 'failed' ORDER BY id")).scalars()
        return [(f"/messages/{one}/body", 422) for one in rows]


def _check_processes(archiver: Archiver) -> None:
    restarts = [part for part in archiver.status()["parts"] if part.get("restarts")]
    assert restarts == [], "no process of ours was lost"
    assert all(process.memory_info().rss < 1 << 30 for process in archiver.processes() if psutil.pid_exists(process.pid))
