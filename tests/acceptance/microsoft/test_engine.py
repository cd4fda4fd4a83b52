"""Microsoft 365 through the whole engine: real workers, real servers, and a Graph that makes trouble."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import text as sql

from archiver.sources.rows import Source
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, eventually, new_world
from tests.support.graph_server.running import GraphServer, graph_server
from tests.support.graph_server.tenant import Tenant

USERS = [{"address": f"user{number}@contoso.example"} for number in range(8)]
PLAN: dict[str, Any] = {"users": USERS, "messages": 40, "folders": ["inbox", "sentitems", "Projects"], "most_per_page": 11}


@pytest.fixture
def world(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path, postgres, INGESTION_WORKER_CONCURRENCY="4", LOG_LEVEL="debug") as made:
        yield made


def add(world: World, graph: GraphServer, **settings: Any) -> Source:
    return world.add_kind("microsoft", "Contoso", {**graph.settings, **settings}, graph.secrets)


def expected(plan: dict[str, Any]) -> set[tuple[str, str, str, bytes]]:
    """What the archive has to be, straight from what the server is made of."""
    tenant = Tenant(plan["users"], plan["messages"], plan.get("folders", ["inbox"]), plan.get("size", 0))
    return {
        (address, message.key(True), box.folders[message.folder].name, sha256(b"".join(box.content(message))).digest())
        for address, box in tenant.mailboxes.items()
        for message in box.messages.values()
    }


def assert_no_secret_was_written(world: World, graph: GraphServer) -> None:
    """Not in a log, not in a dead letter, not in an error."""
    seen = graph.seen()
    secrets = [graph.secrets["client_secret"], *seen["access_tokens"], *seen["refresh_tokens"]]
    places = {path.name: path.read_text(errors="replace") for path in world.place.rglob("*.log")}
    for table in ("dead_letters", "sync_runs", "ingestion_sources", "mailboxes", "outbox"):
        places[table] = str(world.rows(f"SELECT CAST(to_jsonb(t) AS text) FROM {table} t"))
    assert any("batch_stored" in text for text in places.values()), "the logs were looked at"
    for place, text in places.items():
        assert not [secret for secret in secrets if secret in text], place
        assert "Bearer" not in text, place


@pytest.mark.chaos
def test_three_hundred_mailboxes_in_one_tenant(world: World, tmp_path: Path) -> None:
    users = [{"address": f"user{number:03}@contoso.example"} for number in range(300)]
    plan = {"users": [*users, {"address": "g@x.example", "kind": "guest"}], "messages": 2}
    with graph_server(tmp_path / "graph", most_per_page=100, **plan) as graph:
        source = add(world, graph)
        world.start_worker()
        run = world.sync(source, 170)
        assert (run.outcome, run.mailboxes, run.archived) == ("success", 300, 600)
        assert world.archive(source) == expected(plan)
        first = graph.calls()
        assert first["entra"] <= 6, "a token serves all mailboxes of a process"
        assert sum(first.get(kind, 0) for kind in ("folders", "delta", "batch", "value", "message")) <= 600 + 300 * 8
        again = world.sync(source, 170)
        assert (again.outcome, again.archived) == ("success", 0)
        later = graph.calls()
        assert later["batch"] - first["batch"] == 300, "one call for an unchanged mailbox"
        assert later["downloads"] == first["downloads"] == 600
    world.assert_at_rest()


def test_throttled_at_every_call(world: World, tmp_path: Path) -> None:
    plan = {**PLAN, "users": USERS[:2], "messages": 6, "folders": ["inbox"]}
    with graph_server(tmp_path / "graph", **plan) as graph:
        source = add(world, graph, requests_per_minute=10_000)
        graph.control(trouble={"throttle_each": 1})
        world.start_worker()
        run = world.sync(source, 150)
        assert (run.outcome, run.archived, run.failed) == ("success", 12, 0)
        assert world.archive(source) == expected(plan)
        seen = graph.seen()
        assert seen["calls"]["throttled"] >= 2 * (6 + 6)
        assert seen["violations"] == {}
        assert world.rows("SELECT 1 FROM mailboxes WHERE failures > 0") == []


def test_killed_in_the_middle(world: World, tmp_path: Path) -> None:
    with graph_server(tmp_path / "graph", **PLAN) as graph:
        source = add(world, graph)
        graph.control(trouble={"latency": 0.05, "token_calls": 40})
        before = world.start_sync(source)
        for least in (60, 160):
            worker = world.start_worker()
            eventually(lambda least=least: len(world.archive(source)) >= least, what="progress")
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
        world.start_worker()
        run = world.wait(source, before, 120)
        assert (run.outcome, run.archived) == ("success", 320)
        assert world.archive(source) == expected(PLAN)
        assert run.failed == run.missing == 0
        violations = graph.seen()["violations"]
        assert violations.get("more than 4 at once", 0) == 0
        world.assert_at_rest()
        assert_no_secret_was_written(world, graph)


def test_moves_deletions_and_dead_letters_are_in_the_archive(world: World, tmp_path: Path) -> None:
    plan = {**PLAN, "users": USERS[:2]}
    with graph_server(tmp_path / "graph", **plan) as graph:
        source = add(world, graph)
        graph.do("user1@contoso.example", "change", 9, broken=400)
        world.start_worker()
        first = world.sync(source)
        assert (first.outcome, first.archived, first.failed) == ("incomplete", 79, 1)
        reason = world.one("SELECT reason FROM dead_letters WHERE kind = 'message'")
        assert "ErrorMimeContentConversionFailed" in reason
        graph.do("user0@contoso.example", "move", 1, "id-deleteditems")
        graph.do("user0@contoso.example", "delete", 2)
        graph.do("user0@contoso.example", "change", 4, categories=["Red"])
        graph.do("user1@contoso.example", "delete", 3)
        graph.do("user1@contoso.example", "forget")
        world.sync(source)
        copies = {
            row.provider_key: row
            for row in world.rows(
                "SELECT c.* FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id WHERE b.address LIKE 'user0%'"
            )
        }
        assert len(copies) == 40, "nothing leaves the archive"
        assert copies["immutable-1"].folder == "Gelöschte Elemente"
        assert copies["immutable-1"].gone_at is None
        assert copies["immutable-2"].gone_at is not None
        assert copies["immutable-4"].labels == ["Red"]
        gone = "SELECT provider_key FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id WHERE c.gone_at IS NOT NULL"
        assert {row[0] for row in world.rows(f"{gone} AND b.address LIKE 'user1%'")} == {"immutable-3"}, "found by listing"
        assert len(world.rows(gone)) == 2
        assert_no_secret_was_written(world, graph)


def test_what_graph_cannot_find_is_asked_for_once_more_in_a_later_cycle(world: World, tmp_path: Path) -> None:
    for_a_while, for_good = "immutable-2", "immutable-4"
    with graph_server(tmp_path / "graph", **{**PLAN, "users": USERS[:1], "messages": 5}) as graph:
        source = add(world, graph)
        graph.control(trouble={"lost": [for_a_while, for_good]})
        world.start_worker()
        first = world.sync(source)
        assert (first.outcome, first.archived, first.failed, first.skipped) == ("incomplete", 3, 2, 0)
        assert world.sync(source).failed == 0, "not before its time"
        letters = world.rows("SELECT provider_key, next_try_at > now() AS waits FROM dead_letters ORDER BY provider_key")
        assert [tuple(row) for row in letters] == [(for_a_while, True), (for_good, True)]
        graph.control(trouble={"lost": [for_good]})
        with world.engine.begin() as connection:
            connection.execute(sql("UPDATE dead_letters SET next_try_at = now()"))
        second = world.sync(source)
        assert (second.outcome, second.archived, second.failed, second.skipped) == ("success", 1, 0, 1)
        assert world.rows("SELECT provider_key FROM dead_letters") == []
        (skipped,) = world.rows("SELECT provider_key, rule FROM skipped_messages")
        assert tuple(skipped) == (for_good, "deleted at the source before it could be fetched")
        assert world.sync(source).archived == 0
        assert {row[1] for row in world.archive(source)} == {f"immutable-{number}" for number in (1, 2, 3, 5)}
        world.assert_at_rest()


def test_refused_mailboxes_stop_themselves_only_and_credentials_the_source(world: World, tmp_path: Path) -> None:
    with graph_server(tmp_path / "graph", **{**PLAN, "users": USERS[:3]}) as graph:
        source = add(world, graph)
        graph.control(trouble={"fail": {"folders": [403, "ErrorAccessDenied", 1]}})
        world.start_worker()
        run = world.sync(source)
        assert run.archived == 80
        assert "a policy" in world.one("SELECT status_message FROM mailboxes WHERE status_message IS NOT NULL")
        graph.control(
            entra={"status": 401, "error": "invalid_client", "error_description": "AADSTS7000222: expired"}, revoke=True
        )
        assert world.sync(source).outcome == "failed"
        assert "the client secret has expired" in str(world.load(source).status_message)
        assert_no_secret_was_written(world, graph)


def test_a_message_of_150_megabytes_passes_through_little_memory(world: World, tmp_path: Path) -> None:
    """Though Graph says that it has no attachments, and others come together with it."""
    with graph_server(tmp_path / "graph", users=USERS[:1], messages=30, folders=["inbox"]) as graph:
        source = add(world, graph)
        worker = world.start_worker()
        assert world.sync(source).archived == 30  # everything that is needed is loaded
        assert graph.calls()["downloads in batches"] > 10
        before = psutil.Process(worker.pid).memory_info().rss
        for size in (0, 0, 150 << 20, 0):
            graph.do("user0@contoso.example", "add", "id-inbox", size=size)
        most = 0
        started = world.start_sync(source)

        def ended() -> bool:
            nonlocal most
            most = max(most, psutil.Process(worker.pid).memory_info().rss)
            return bool(world.rows("SELECT 1 FROM messages WHERE size_bytes = :size", size=150 << 20))

        eventually(ended, what="the large message")
        run = world.wait(source, started)
        assert (run.outcome, run.archived) == ("success", 4)
        assert graph.calls()["bundle"] >= 2, "it was asked for in one"
        assert most - before < 100 << 20, f"{(most - before) >> 20} MiB more than before"
        assert most < 300 << 20
    assert not list(Path("/tmp").glob("archiver-microsoft-*/*.eml")), "the spool is cleared"
