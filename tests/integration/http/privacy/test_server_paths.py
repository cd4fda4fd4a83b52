"""Whatever went wrong, and wherever it is shown: no answer names a folder of the server.

Every column that holds an error gets one with a path in it, and every route and page that reads is asked.
"""

from __future__ import annotations

from uuid import uuid4

import pytest

from archiver.db.tables import uuid7
from tests.integration.http.conftest import Client, Company
from tests.integration.http.test_routes import ROUTES

FOLDER = "/var/lib/secret-place/packs"
ERROR = f"can't read {FOLDER}/77.pack: no such file"
SHOWN = "can&#39;t read …/77.pack", "can't read …/77.pack"
TOLD = {
    "admin": ("progress", "runs/running", "imports", "exports", "dead-letters", "v1/sources", "/sources", "activity"),
    "auditor": ("progress", "dead-letters", "search"),
    "alice": ("search",),
}


@pytest.fixture(scope="module")
def broken(company: Company) -> Company:
    """One of everything that can fail, failed."""
    session, run, item, letter, export = (uuid7() for _ in range(5))
    values = {"s": company.source, "m": company.mailboxes["alice"], "e": ERROR, "x": company.messages["alice"]}
    user = company.people["admin"].id
    company.act("UPDATE ingestion_sources SET status_message = :e WHERE id = :s", **values)
    company.act("UPDATE mailboxes SET status_message = :e WHERE id = :m", **values)
    company.act(
        "INSERT INTO sync_sessions (id, ingestion_source_id, error_messages)"
        " VALUES (:i, :s, jsonb_build_array(jsonb_build_object('mailbox', 'alice', 'error', CAST(:e AS text))))",
        i=session,
        **values,
    )
    company.act(
        "INSERT INTO sync_session_mailboxes (session_id, mailbox_id, state, error_message) VALUES (:i, :m, 'running', :e)",
        i=session,
        **values,
    )
    company.act(
        "INSERT INTO sync_runs (id, source_id, outcome, started_at, finished_at, error_messages)"
        " VALUES (:i, :s, 'failed', now(), now(),"
        " jsonb_build_array(jsonb_build_object('mailbox', 'a', 'error', CAST(:e AS text))))",
        i=run,
        **values,
    )
    company.act(
        "INSERT INTO imports (id, source_id, number, mailbox, requested_by, settings, outcome, message, finished_at, user_id)"
        " VALUES (:i, :s, 1, 'alice', 'admin', jsonb_build_object('paths', jsonb_build_array('/elsewhere/a.mbox')), 'failed',"
        " :e, now(), :u)",
        i=item,
        u=user,
        **values,
    )
    company.act(
        "INSERT INTO dead_letters (id, kind, source_id, message_id, reason) VALUES (:i, 'document', :s, :x, :e)",
        i=letter,
        **values,
    )
    company.act(
        "INSERT INTO exports (id, user_id, format, selection, state, error, expires_at)"
        " VALUES (:i, :u, 'zip', '{}', 'failed', :e, now() + interval '1 day')",
        i=export,
        u=user,
        **values,
    )
    company.act(
        "UPDATE messages SET search_state = 'failed', search_reasons = jsonb_build_array(CAST(:e AS text)) WHERE id = :x",
        **values,
    )
    company.act("UPDATE attachments SET text_state = 'broken', text_reason = :e", **values)
    return company


def paths(company: Company) -> list[str]:
    ids = {
        "message_id": str(company.messages["alice"]),
        "source_id": str(company.source),
        "number": "0",
        "letter_id": str(company.value("SELECT id FROM dead_letters")),
        "import_id": str(company.value("SELECT id FROM imports")),
        "export_id": str(company.value("SELECT id FROM exports")),
        "user_id": str(company.people["alice"].id),
    }
    wanted = [path for method, path in sorted(ROUTES) if method == "GET" and not path.startswith("/oidc")]
    found = [f"/api/v1{path}?once=1" if path == "/progress" else f"/api/v1{path}" for path in wanted]
    found += ["/", "/dashboard", "/sources", "/activity", "/sources/{source_id}", "/messages/{message_id}", "/settings/keys"]
    found += ["/messages/{message_id}/files/0/text", "/sources/{source_id}/edit", "/?q=nothing-has-this"]
    return [_filled(path, ids) for path in found]


def _filled(path: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        path = path.replace(f"{{{name}}}", value)
    return path.replace("{upload_id}", str(uuid4()))


@pytest.mark.parametrize("name", ["admin", "auditor", "alice"])
def test_no_answer_names_a_folder_of_the_server(broken: Company, name: str) -> None:
    told, named = set(), set()
    with broken.client(name) as client:
        for path in paths(broken):
            text = _text(client, f"{broken.url}{path}")
            named |= {path} if "secret-place" in text or "/elsewhere" in text else set()
            told |= {path} if any(shown in text for shown in SHOWN) else set()
    assert not named
    missed = [one for one in TOLD[name] if not any(one in path for path in told)]
    assert not missed, "the error itself is told"


def _text(client: Client, url: str) -> str:
    return client.get(url).text
