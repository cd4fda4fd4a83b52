"""What pages about users, marks, retention and restores show: one record of each kind. None of them changes or deletes mail."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import psycopg

from archiver.db.ids import uuid7
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.conftest import Archiver
from tests.support.waiting import eventually

READER = "Ray Reader"
POLICY, ERASURE, RESTORE, DEAD_LETTER, NOTICE = "Old newsletters", "DSR 7", "a restore", "a dead letter", "a notice"
_SUBJECT = "Invitation to the lamp review"
_NOTICE = """
    INSERT INTO hold_notices (id, hold_id, address, text, requested_by, requested_at, token_sha256, sent_at, attempts)
    VALUES (%s, %s, 'witness@example.org', E'Please delete nothing about the lamps.\\nThank you.', 'Ann Archer', now(), %s,
        now(), 1)"""


class Asked(Protocol):
    """A site, as far as records need it."""

    archiver: Archiver
    ids: dict[str, str]

    def ask(self, method: str, path: str, **more: Any) -> Any: ...


def add_records(site: Asked) -> dict[str, str]:
    """Their ids, by name; of mailboxes, by address."""
    message = site.ids[_SUBJECT]
    found = {one["address"]: one["id"] for one in site.ask("GET", "/mailboxes")["items"]}
    found[DEAD_LETTER] = site.ask("GET", "/dead-letters")["items"][0]["id"]
    site.ask("POST", "/changes", json={"action": "tag", "subject": "lamps", "message_ids": [message]})
    site.ask("PUT", "/retention-labels/contracts", json={"title": "Contracts"})
    site.ask("POST", "/retention-labels/contracts/messages", json={"message_ids": [message], "reason": "Signed"})
    reader = {"email": "ray@example.org", "name": READER, "role": "user", "password": "a horse that reads"}
    found[READER] = site.ask("POST", "/users", json=reader)["id"]
    site.ask("POST", f"/users/{found[READER]}/grants", json={"mailbox": next(iter(found))})
    policy = {"name": POLICY, "reason": "Space", "query": "from:newsletter", "delete_after": "2y"}
    found[POLICY] = site.ask("POST", "/policies", json=policy)["id"]
    found[NOTICE] = add_notice(site, "Lamp case")
    found[RESTORE], found[ERASURE] = _start_restore(site, message), _start_erasure(site)
    return found


def add_notice(site: Asked, case: str) -> str:
    """Of a new hold, as if it had been sent. Returns the token in its link, which no page shows."""
    hold = {"name": case, "reason": "Letter of 3 May", "addresses": ["witness@example.org"]}
    hold_id, token = site.ask("POST", "/holds", json=hold)["id"], f"the token of {case}".replace(" ", "-")
    with psycopg.connect(EmbeddedPostgres(DataFolder(site.archiver.data)).url()) as connection:
        connection.execute(_NOTICE, (uuid7(), hold_id, hashlib.sha256(token.encode()).digest()))
    return token


def _start_restore(site: Asked, message: str) -> str:
    restore = str(site.ask("POST", "/restores", json={"message_ids": [message], "to_origins": True})["id"])
    eventually(lambda: site.ask("GET", f"/restores/{restore}")["state"] != "checking", what="a restore that was checked")
    return restore


def _start_erasure(site: Asked) -> str:
    request = {"name": ERASURE, "reason": "Letter of 4 May", "addresses": ["ann@lanternworks.example"]}
    erasure = str(site.ask("POST", "/erasures", json=request)["id"])
    eventually(lambda: site.ask("GET", f"/erasures/{erasure}")["state"] == "review", what="an erasure to review")
    return erasure
