"""The newest mail of a long folder comes first, then everything else, and nothing twice, wherever it is interrupted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.subject import Taken, nothing
from tests.integration.imap.test_dovecot import everything, opened
from tests.support.dovecot import Dovecot, message

SERVERS = ["dovecot", "plain_dovecot"]
"""With and without ids of messages."""


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Dovecot:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Dovecot)
    return found


def _fill(server: Dovecot, user: str, folders: dict[str, int]) -> dict[str, list[bytes]]:
    made = {folder: [message(number, 400, f"{user}-{folder}") for number in range(count)] for folder, count in folders.items()}
    for folder, messages in made.items():
        server.fill(user, folder, messages)
    return made


def _first(server: Dovecot, user: str, batches: int = 1, **settings: Any) -> tuple[Taken, list[list[bytes]]]:
    """What is stored after so many batches, and the messages of each."""
    taken, seen = Taken(), []
    with opened(server.settings(user, **settings)) as connector:
        (box,) = connector.mailboxes()
        coming = connector.fetch(box, {}, nothing)
        for _ in range(batches):
            batch = next(coming)
            seen.append([one.data for one in batch.messages if one.data is not None])
            taken.store([batch])
        coming.close()  # type: ignore[attr-defined]
    return taken, seen


def _rest(server: Dovecot, user: str, held: Taken, **settings: Any) -> Taken:
    with opened(server.settings(user, **settings)) as connector:
        return everything(connector, json.loads(json.dumps(held.state)))


def test_the_newest_hundred_of_inbox_and_sent_come_first(server: Dovecot) -> None:
    made = _fill(server, "newest", {"Archive": 350, "INBOX": 900, "Sent": 300})
    held, (inbox, sent) = _first(server, "newest", 2)
    assert {tuple(inbox), tuple(sent)} == {tuple(made["INBOX"][-100:]), tuple(made["Sent"][-100:])}
    rest = _rest(server, "newest", held)
    assert len(rest.given) == 1550 - 200
    assert not set(rest.hashes) & set(held.hashes)
    assert [len(rest.listed[folder]) for folder in ("Archive", "INBOX", "Sent")] == [350, 900, 300]
    assert _rest(server, "newest", Taken(state={**held.state, **rest.state})).given == []


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_interrupted_after_any_batch(server: Dovecot, batches: int) -> None:
    user = f"newest-cut{batches}"
    _fill(server, user, {"INBOX": 600})
    held, _ = _first(server, user, batches)
    rest = _rest(server, user, held)
    assert sorted(held.given + rest.given) == sorted({*held.given, *rest.given})
    assert len(held.given) + len(rest.given) == 600


def test_short_folders_and_unwanted_ones_are_read_as_ever(server: Dovecot) -> None:
    _fill(server, "newest-short", {"INBOX": 200, "Sent": 500})
    with opened(server.settings("newest-short", folders_out="Sent")) as connector:
        taken = everything(connector)
    assert (len(taken.given), len(taken.skipped)) == (200, 500)
    assert all(not isinstance(one, dict) or not one["ahead"] for one in taken.state.values())


def test_mail_that_goes_and_comes_in_between(server: Dovecot) -> None:
    paths = server.fill("newest-between", "INBOX", [message(number, 400, "newest-between") for number in range(500)])
    held, _ = _first(server, "newest-between")
    for path in server.maildir("newest-between").glob("*/*"):
        if any(path.name.startswith(paths[number].name.split(",")[0]) for number in (3, 450, 499)):
            path.unlink()
    server.fill("newest-between", "INBOX", [message(1000, 400, "newest-between")])
    rest = _rest(server, "newest-between", held)
    assert len(rest.given) == 400 - 1 + 1, "one of the old ones is gone, and one has come"
    assert len(rest.listed["INBOX"]) == 498


def test_a_folder_that_is_renumbered_in_between_starts_over(plain_dovecot: Dovecot) -> None:
    _fill(plain_dovecot, "newest-renumbered", {"INBOX": 500})
    held, _ = _first(plain_dovecot, "newest-renumbered")
    plain_dovecot.lose_numbering("newest-renumbered")
    assert len(_rest(plain_dovecot, "newest-renumbered", held).given) == 500
