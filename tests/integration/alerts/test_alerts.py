"""Each alert is raised and resolved once, through a real mail server and a real HTTP endpoint; a restart changes nothing."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trustme
from aiosmtpd.controller import Controller
from bullmq import Worker
from sqlalchemy import Engine, text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.alerts import channels, environment, history, rules
from archiver.alerts.channels import ChannelWishes
from archiver.alerts.evaluation import evaluate
from archiver.alerts.rules import RULES
from archiver.alerts.senders import sign
from archiver.config import Settings, load_settings
from archiver.db.engine import make_engine
from archiver.db.ids import uuid7
from archiver.journal.activity import spool_folder
from archiver.maintenance.checks import outcomes
from archiver.queue.connection import worker_client
from archiver.queue.jobs import QueueName
from archiver.queue.queues import client_name
from archiver.secrets import Keyring, create_missing_keys, credentials_keyring
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.valkey import EmbeddedValkey

SECRET = "shared secret"
SOURCES = {name: uuid7() for name in ("failing", "stale", "gap", "gone", "revoked")}


class AnyPort(Controller):
    def _trigger_server(self) -> None:
        """(It looks for an answer at the port that it was given.)"""
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


class MailServer:
    """Keeps what it receives, and refuses everything while `refuses` is set."""

    def __init__(self) -> None:
        self.received: list[EmailMessage] = []
        self.refuses = False
        self.controller = AnyPort(self, hostname="127.0.0.1", port=0, ready_timeout=60)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.refuses:
            return "451 not now"
        self.received.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 kept"

    @property
    def port(self) -> int:
        return int(self.controller.port)


class Endpoint(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[dict[str, str], bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((dict(self.headers), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    server.controller.start()
    yield server
    server.controller.stop()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataFolder(tmp_path_factory.mktemp("valkey") / "data")
    folder.prepare()
    server = EmbeddedValkey(folder)
    server.prepare()
    with server.running():
        yield server.url()


@pytest.fixture
def variables(database_url: str, redis_url: str, tmp_path: Path) -> dict[str, str]:
    return {"ARCHIVER_DATA": str(tmp_path), "DATABASE_URL": database_url, "REDIS_URL": redis_url, "DISK_MIN_FREE_BYTES": "0"}


def settings_of(variables: dict[str, str], **more: str) -> Settings:
    settings = load_settings({**variables, **more}, Path("none"))
    create_missing_keys(settings)
    return settings


@contextmanager
def tls_page(days: float) -> Iterator[str]:
    """A page whose certificate ends in so many days."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", not_after=datetime.now(UTC) + timedelta(days=days)).configure_cert(context)
    server = Endpoint()
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@contextmanager
def connected_workers(url: str) -> Iterator[None]:
    """A worker on each queue, which takes no job: there is none."""
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        clients = [worker_client(url) for _ in QueueName]
        found = [
            Worker(name, None, {"connection": client, "name": "w"}) for name, client in zip(QueueName, clients, strict=True)
        ]
        names = [one.client.client_setname(client_name(queue, "test")) for queue, one in zip(QueueName, found, strict=True)]
        await asyncio.gather(*names)
        ready.set()
        await asyncio.to_thread(stop.wait)
        for client in clients:
            await client.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(60)
    yield
    stop.set()
    thread.join(30)


def act(engine: Engine, statement: str, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement), values)


_OLD = "now() - interval '30 days'"
_SOURCE = (
    "INSERT INTO ingestion_sources (id, kind, name, status, failures, next_due_at, last_finished_at, created_at,"
    " status_message) VALUES "
)


def provoke(engine: Engine, settings: Settings) -> None:
    """The condition of every rule that looks into the database, or into the spool of the journal."""
    act(engine, _SOURCE + f"(:i, 'journal', 'Journal', 'imported', 0, NULL, {_OLD}, {_OLD}, NULL)", i=uuid7())
    _waiting_file(settings).parent.mkdir(parents=True)
    _waiting_file(settings).touch()
    act(engine, _SOURCE + f"(:i, 'imap', 'failing', 'active', 3, now(), {_OLD}, {_OLD}, 'timed out')", i=SOURCES["failing"])
    act(engine, _SOURCE + f"(:i, 'imap', 'stale', 'active', 0, now(), {_OLD}, {_OLD}, NULL)", i=SOURCES["stale"])
    for name in ("gap", "gone"):
        act(engine, _SOURCE + f"(:i, 'imap', '{name}', 'active', 0, now(), now(), {_OLD}, NULL)", i=SOURCES[name])
    act(engine, _SOURCE + f"(:i, 'imap', 'revoked', 'error', 1, NULL, now(), {_OLD}, 'wrong password')", i=SOURCES["revoked"])
    run = "INSERT INTO sync_runs (id, source_id, outcome, started_at, missing) VALUES (:i, :s, 'incomplete', now(), 3)"
    act(engine, run, i=uuid7(), s=SOURCES["gap"])
    box = "INSERT INTO mailboxes (id, source_id, address, gone_at) VALUES (:i, :s, 'ann@example.org', now())"
    act(engine, box, i=uuid7(), s=SOURCES["gone"])
    letter = (
        "INSERT INTO dead_letters (id, kind, queue, job, job_id, reason) VALUES (:i, 'job', 'indexing', 'reindex', :j, 'x')"
    )
    for number in range(10):
        act(engine, letter, i=uuid7(), j=f"j{number}")
    act(
        engine,
        "INSERT INTO outbox (id, queue, job) SELECT gen_random_uuid(), 'indexing', 'reindex' FROM generate_series(1, 20)",
    )
    act(engine, f"INSERT INTO packs (id, name, created_at) VALUES (:i, 'p', {_OLD})", i=uuid7())
    act(
        engine,
        "INSERT INTO messages (id, sha256, canonical_sha256, size_bytes, archived_at, sort_at, date_origin, index_version)"
        " VALUES (:i, sha256(''), sha256(''), 1, now() - interval '2 hours', now(), 'none', 1)",
        i=uuid7(),
    )
    user = uuid7()
    act(engine, "INSERT INTO users (id, email) VALUES (:i, 'ann@example.org')", i=user)
    act(
        engine,
        "INSERT INTO api_keys (id, user_id, name, prefix, key_hash, scopes, expires_at, last_used_at)"
        " VALUES (:i, :u, 'script', 'p', '', '{}', now() + interval '3 days', now())",
        i=uuid7(),
        u=user,
    )
    act(engine, "INSERT INTO audit_log (actor, action, object_kind) VALUES ('x', 'audit.gap_found', 'audit')")
    version = "INSERT INTO policy_versions (id, policy_id, number, name, counted_from, reason, created_by, created_at) VALUES "
    act(engine, version + f"(:i, :i, 1, 'Clean up', 'received', 'x', 'ann', {_OLD})", i=uuid7())
    act(engine, "INSERT INTO retention_runs (id, version_ids, finished_at, error) VALUES (:i, '{}', now(), 'x')", i=uuid7())
    with engine.begin() as connection:
        outcomes.record(connection, outcomes.VERIFY, succeeded=False, problems=2)
        outcomes.record(connection, outcomes.BACKUP, succeeded=False, reason="no space")
        outcomes.record(connection, outcomes.DRILL, succeeded=False, reason="hashes differ")


def _waiting_file(settings: Settings) -> Path:
    return spool_folder(settings.archiver_data) / "01900000-0000-7000-8000-000000000000.mail"


def heal(engine: Engine, settings: Settings) -> None:
    _waiting_file(settings).unlink()
    act(engine, "UPDATE ingestion_sources SET status = 'active', failures = 0, next_due_at = now(), last_finished_at = now()")
    act(engine, "INSERT INTO sync_runs (id, source_id, outcome, started_at) VALUES (:i, :s, 'success', now())",
        i=uuid7(), s=SOURCES["gap"])  # fmt: skip
    act(engine, "UPDATE mailboxes SET gone_at = NULL")
    act(engine, "UPDATE dead_letters SET discarded_at = now()")
    act(engine, "DELETE FROM outbox")
    act(engine, "UPDATE messages SET indexed_version = index_version, search_state = 'full'")
    act(engine, "UPDATE api_keys SET revoked_at = now()")
    act(engine, "UPDATE policy_versions SET rejected_at = now(), rejected_by = 'bob'")
    act(engine, "INSERT INTO retention_runs (id, version_ids, finished_at) VALUES (:i, '{}', now())", i=uuid7())
    act(engine, "INSERT INTO audit_log (actor, action, object_kind) VALUES ('x', 'audit.accepted', 'audit')")
    with engine.begin() as connection:
        for name in (outcomes.VERIFY, outcomes.BACKUP, outcomes.DRILL):
            outcomes.record(connection, name, succeeded=True)
        environment.confirm_keys(connection, settings, LOCAL_OPERATOR)


def change_all(engine: Engine, **thresholds: float) -> None:
    """Every rule raises and resolves at once."""
    with engine.begin() as connection:
        for name in RULES:
            rules.change_rule(connection, LOCAL_OPERATOR, name, for_minutes=0, threshold=thresholds.get(name))


def add_channel(engine: Engine, settings: Settings, address: str, wishes: ChannelWishes | None = None) -> UUID:
    with engine.begin() as connection:
        keyring = credentials_keyring(settings)
        return channels.add_channel(connection, settings, keyring, LOCAL_OPERATOR, "", address, wishes).id


def run(settings: Settings, keyring: Keyring | None = None) -> Any:
    """As a process that has just been started does it."""
    assert settings.database_url is not None
    engine = make_engine(settings.database_url.get_secret_value(), "restarted")
    try:
        return evaluate(engine, settings, keyring or credentials_keyring(settings))
    finally:
        engine.dispose()


def events(endpoint: Endpoint, event: str) -> Counter[str]:
    found = [json.loads(body) for _, body in endpoint.received]
    return Counter(f"{one['rule']} {one['subject']}" if one["rule"] == "worker_missing" else one["rule"] for one in found
                   if one["event"] == event)  # fmt: skip


def test_each_alert_is_raised_and_resolved_once(
    engine: Engine, variables: dict[str, str], mail_server: MailServer, endpoint: Endpoint, redis_url: str
) -> None:
    hook = f"http://127.0.0.1:{endpoint.server_address[1]}/hook?x=1#{SECRET.replace(' ', '%20')}"
    mail = f"smtp://127.0.0.1:{mail_server.port}?from=archiver@example.org&to=ops@example.org"
    expected = Counter({*RULES, "worker_missing ingestion", "worker_missing indexing"} - {"worker_missing"})
    with tls_page(days=3) as page:
        broken = settings_of(variables, ALERT_URLS=f"{hook} {mail}", DISK_MIN_FREE_BYTES="900000T", ARCHIVER_URL=page)
        provoke(engine, broken)
        change_all(engine, queue_depth=20)
        for _ in range(3):  # the second and third time, nothing is new
            run(broken)
    assert events(endpoint, "raised") == expected
    assert events(endpoint, "resolved") == Counter()
    assert len(mail_server.received) == len(expected)
    with tls_page(days=300) as page, connected_workers(redis_url):
        whole = settings_of(variables, ALERT_URLS=f"{hook} {mail}", ARCHIVER_URL=page)
        heal(engine, whole)
        change_all(engine, disk_low=1e-6)
        for _ in range(3):
            run(whole)
    assert events(endpoint, "resolved") == expected
    assert events(endpoint, "raised") == expected
    assert len(mail_server.received) == 2 * len(expected)
    with engine.connect() as connection:
        assert history.open_alerts(connection) == []
        assert len(history.past_alerts(connection)) == len(expected)


def test_a_webhook_is_signed_and_a_mail_is_complete(
    engine: Engine, variables: dict[str, str], mail_server: MailServer, endpoint: Endpoint
) -> None:
    hook = f"http://127.0.0.1:{endpoint.server_address[1]}/#{SECRET.replace(' ', '%20')}"
    mail = f"smtp://127.0.0.1:{mail_server.port}?from=archiver@example.org&to=ann@example.org,bob@example.org"
    settings = settings_of(variables, ALERT_URLS=f"{hook} {mail}")
    with engine.begin() as connection:
        outcomes.record(connection, outcomes.VERIFY, succeeded=False, problems=1)
    run(settings)
    headers, body = next(one for one in endpoint.received if json.loads(one[1])["rule"] == "damage_found")
    assert headers["X-Archiver-Signature"] == f"sha256={sign(SECRET, headers['X-Archiver-Timestamp'], body)}"
    assert headers["X-Archiver-Event-Id"] == json.loads(body)["id"]
    message = next(one for one in mail_server.received if "damaged" in one["Subject"])
    assert message["Subject"] == "[Archiver] The archive is damaged: the last check found a problem"
    assert (message["To"], message["Auto-Submitted"]) == ("ann@example.org, bob@example.org", "auto-generated")
    assert "archiver verify --full" in message.get_content()
    assert "/alerts" in message.get_content()


def test_a_notice_that_was_not_sent_waits_for_the_server_and_is_sent_once(
    engine: Engine, variables: dict[str, str], mail_server: MailServer
) -> None:
    settings = settings_of(variables)
    channel = add_channel(engine, settings, f"smtp://127.0.0.1:{mail_server.port}?from=a@example.org&to=b@example.org")
    with engine.begin() as connection:
        outcomes.record(connection, outcomes.DRILL, succeeded=False, reason="hashes differ")
    mail_server.refuses = True
    assert run(settings).not_sent == 1
    with engine.connect() as connection:
        assert "451" in str(channels.report_channels(connection)[channel].error)
    mail_server.refuses = False
    assert run(settings).sent == 0  # its pause is not over
    act(engine, "UPDATE alert_deliveries SET not_before = now()")
    assert run(settings).sent == 1
    assert run(settings).sent == 0
    assert [one["Subject"] for one in mail_server.received] == ["[Archiver] The last restore drill failed"]
    with engine.connect() as connection:
        assert channels.report_channels(connection)[channel].error is None


def test_quiet_hours_hold_back_warnings_and_let_critical_alerts_pass(
    engine: Engine, variables: dict[str, str], endpoint: Endpoint
) -> None:
    settings = settings_of(variables)
    now = datetime.now(UTC)
    quiet = {"quiet_from": f"{now - timedelta(hours=1):%H:%M}", "quiet_until": f"{now + timedelta(hours=2):%H:%M}"}
    add_channel(engine, settings, f"http://127.0.0.1:{endpoint.server_address[1]}/", ChannelWishes(zone="UTC", **quiet))  # type: ignore[arg-type]
    change_all(engine, disk_low=1e6)
    with engine.begin() as connection:
        outcomes.record(connection, outcomes.VERIFY, succeeded=False, problems=1)
    run(settings)
    assert events(endpoint, "raised").keys() & {"damage_found", "disk_low"} == {"damage_found"}
    change_all(engine, disk_low=1e-6)
    run(settings)
    act(engine, "UPDATE alert_deliveries SET not_before = now()")
    run(settings)
    told = events(endpoint, "raised") + events(endpoint, "resolved")
    assert "disk_low" not in told, "what began and ended in the quiet hours is not worth a notice"


def test_the_summary_comes_once_a_week(engine: Engine, variables: dict[str, str], endpoint: Endpoint) -> None:
    settings = settings_of(variables, ALERT_URLS=f"http://127.0.0.1:{endpoint.server_address[1]}/")
    run(settings)
    assert events(endpoint, "summary") == Counter()
    act(engine, "UPDATE maintenance_outcomes SET succeeded_at = now() - interval '8 days' WHERE name = 'weekly-summary'")
    run(settings)
    run(settings)
    found = [json.loads(body) for _, body in endpoint.received if json.loads(body)["event"] == "summary"]
    assert len(found) == 1
    assert "Missing: nothing." in found[0]["text"]


def test_a_rule_that_fails_does_not_stop_the_others(engine: Engine, variables: dict[str, str]) -> None:
    settings = settings_of(variables)
    with engine.begin() as connection:
        outcomes.record(connection, outcomes.VERIFY, succeeded=False, problems=1)
    act(engine, "ALTER TABLE sync_runs RENAME TO elsewhere")
    assert run(settings).raised >= 1
    with engine.connect() as connection:
        assert "damage_found" in {one.rule for one in history.open_alerts(connection)}
