"""One worker, many sources: what each kind of trouble at a source does to its cycle, and to nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from archiver.queue.completion import CycleEnds
from archiver.sources.runs import newest_run
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, eventually, new_world
from tests.support.waiting import DEADLINE_SECONDS


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path_factory.mktemp("trouble"), postgres, CONNECTOR_IDLE_SECONDS="2") as made:
        made.start_worker()
        yield made


@pytest.fixture
def memory(tmp_path: Path) -> str:
    folder = tmp_path / "memory"
    folder.mkdir()
    return str(folder)


def test_everything_comes_in_once_and_only_what_is_new_is_downloaded(world: World, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    source = world.add("plain", mailboxes=4, messages_per_mailbox=130, journal_path=str(journal))
    first = world.sync(source)
    assert (first.outcome, first.archived, first.duplicates, first.mailboxes) == ("success", 520, 0, 4)
    assert len(world.archive(source)) == 520
    assert world.load(source).status == "active"
    assert len(journal.read_text().splitlines()) == 520

    second = world.sync(source)
    assert (second.outcome, second.archived, second.duplicates) == ("success", 0, 0)
    world.edit(source, messages_per_mailbox=150)
    third = world.sync(source)
    assert (third.outcome, third.archived) == ("success", 80)
    lines = journal.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 600, "nothing was downloaded twice"
    states = [row[0] for row in world.rows("SELECT sync_state FROM mailboxes WHERE source_id = :id", id=source.id)]
    assert len([key for state in states for key in state if key.startswith("fake:")]) >= 8, "one for each mailbox and folder"
    assert set(world.one("SELECT sync_state FROM ingestion_sources WHERE id = :id", id=source.id)) == {"last_listing"}


def test_the_end_of_a_cycle_wakes_those_who_wait_for_it(world: World) -> None:
    source, other = world.add("awaited", mailboxes=1, messages_per_mailbox=5), world.add("other", mailboxes=1)
    eventually(lambda: not world.rows("SELECT 1 FROM outbox WHERE queue = 'ingestion'"), what="the end of their first cycles")
    with CycleEnds(world.valkey.url(), source.id) as ends, CycleEnds("redis://127.0.0.1:1/0", source.id) as without_redis:
        world.sync(other)
        assert not ends.wait(0.5), "that was not ours"
        before = world.start_sync(source)
        assert ends.wait(DEADLINE_SECONDS)
        with world.engine.connect() as connection:
            assert newest_run(connection, source.id) not in (None, before), "who is woken finds the run"
        assert not without_redis.wait(0.1)


def test_no_mailboxes_at_all(world: World) -> None:
    run = world.sync(world.add("empty", mailboxes=0))
    assert (run.outcome, run.mailboxes) == ("success", 0)


def test_a_mailbox_that_is_listed_twice_is_one(world: World) -> None:
    run = world.sync(world.add("twice", mailboxes=2, messages_per_mailbox=5, same_mailbox_twice=True))
    assert (run.mailboxes, run.archived) == (2, 10)


def test_a_poison_message_is_a_dead_letter_and_the_rest_goes_on(world: World) -> None:
    trouble = {"poison": ["INBOX/2"], "poison_with_bytes": ["INBOX/4"]}
    source = world.add("poison", mailboxes=2, messages_per_mailbox=20, trouble=trouble)
    run = world.sync(source)
    assert (run.outcome, run.archived, run.failed, run.missing) == ("incomplete", 36, 4, 0)
    letters = world.rows("SELECT provider_key, reason, raw_sha256 FROM dead_letters WHERE source_id = :id", id=source.id)
    assert len(letters) == 4
    assert len([letter for letter in letters if letter.raw_sha256]) == 2

    # tried again when it is due; healed then
    world.edit(source, trouble={**trouble, "poison_heals": True})
    assert world.sync(source).archived == 0, "not due yet"
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE dead_letters SET next_try_at = now()")
    healed = world.sync(source)
    assert (healed.outcome, healed.archived) == ("success", 4)
    assert world.one("SELECT count(*) FROM dead_letters WHERE source_id = :id", id=source.id) == 0


def test_a_gap_is_never_a_success(world: World) -> None:
    source = world.add("gap", mailboxes=1, messages_per_mailbox=20, trouble={"gap": ["INBOX/4", "Sent/5"]})
    run = world.sync(source)
    assert (run.outcome, run.archived, run.missing) == ("incomplete", 18, 2)
    keys = world.rows("SELECT provider_key FROM unaccounted_keys u JOIN mailboxes m ON m.id = u.mailbox_id"
                      " WHERE m.source_id = :id ORDER BY 1", id=source.id)  # fmt: skip
    assert [row[0] for row in keys] == ["INBOX/4", "Sent/5"]


def test_what_was_listed_and_did_not_come_is_asked_for_once_more(world: World) -> None:
    trouble = {"gap": ["INBOX/4"], "gap_refetched": True}
    run = world.sync(world.add("refetched", mailboxes=1, messages_per_mailbox=20, trouble=trouble))
    assert (run.outcome, run.archived, run.missing) == ("success", 20, 0)


def test_the_same_batch_twice_changes_nothing(world: World) -> None:
    source = world.add("same-batch", mailboxes=1, messages_per_mailbox=50, trouble={"same_batch_twice": True})
    run = world.sync(source)
    assert (run.outcome, run.archived, run.duplicates) == ("success", 50, 50)


def test_a_lost_state_starts_again_and_downloads_nothing_twice(world: World, memory: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    settings = {"mailboxes": 1, "messages_per_mailbox": 30, "memory_path": memory, "journal_path": str(journal)}
    source = world.add("lost", trouble={"state_lost": True}, **settings)
    assert world.sync(source).archived == 30
    run = world.sync(source)
    assert (run.outcome, run.archived) == ("success", 0)
    lines = journal.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 30


def test_a_throttled_mailbox_goes_on_later(world: World, memory: str) -> None:
    """More often than a job has attempts: a pause uses none."""
    trouble = {"throttle": {"after": 0, "seconds": 0.2, "times": 7}}
    run = world.sync(world.add("throttled", mailboxes=1, messages_per_mailbox=300, memory_path=memory, trouble=trouble))
    assert (run.outcome, run.archived, run.duplicates) == ("success", 300, 0)
    assert [len(file.read_bytes()) for file in Path(memory).iterdir()] == [7], "each pause was asked for, and obeyed"
    assert run.seconds >= 1.2


def test_a_throttled_mailbox_frees_its_place(tmp_path: Path, postgres: EmbeddedPostgres, memory: str) -> None:
    """With one place for all: whoever is throttled waits in the queue, and the others are done meanwhile."""
    pause = {"throttle": {"after": 0, "seconds": 3, "times": 1}}
    with new_world(tmp_path, postgres, INGESTION_WORKER_CONCURRENCY="1") as world:
        world.start_worker()
        source = world.add("pauses", mailboxes=12, messages_per_mailbox=5, memory_path=memory, trouble=pause)
        before = world.start_sync(source)
        eventually(lambda: _delayed(world) > 6, what="more mailboxes in BullMQ's delayed set than are sent ahead")
        run = world.wait(source, before)
        assert (run.outcome, run.archived, run.duplicates) == ("success", 60, 0)
        world.assert_at_rest()


def _delayed(world: World) -> int:
    return int(world.valkey._client().zcard("bull:ingestion:delayed"))


@pytest.mark.parametrize("seconds", [0.5, 61.0])
def test_a_listing_that_is_throttled_goes_on_in_the_same_session(world: World, memory: str, seconds: float) -> None:
    fails = {"error": "throttled", "after": 1, "seconds": seconds, "times": 1}
    source = world.add(f"listing {seconds}", mailboxes=2, messages_per_mailbox=3, memory_path=memory, listing_fails=fails)
    before = world.start_sync(source)
    if seconds > 60:
        later = "SELECT id FROM outbox WHERE available_at > now() + interval '50 seconds'"
        eventually(lambda: world.rows(later), what="the cycle in the outbox, for later")
        with world.engine.begin() as connection:
            connection.execute(text("UPDATE outbox SET available_at = now()"))
    run = world.wait(source, before)
    assert (run.outcome, run.archived) == ("success", 6)
    world.assert_at_rest()


def test_a_mailbox_that_fails_is_told_and_the_others_are_in(world: World) -> None:
    source = world.add("one-bad", mailboxes=3, messages_per_mailbox=10, trouble_in={"user2@*": {"auth_failed": True}})
    run = world.sync(source)
    bad = world.rows("SELECT address, next_due_at FROM mailboxes WHERE source_id = :id AND failures > 0", id=source.id)
    assert len(bad) == 1
    assert (run.outcome, run.archived, run.failed_mailboxes) == ("incomplete", 20, 1)
    assert run.errors[0]["mailbox"] == bad[0].address
    assert "rejected the credentials" in run.errors[0]["error"]
    assert world.load(source).status == "active"
    again = world.sync(source)
    assert (again.outcome, again.mailboxes) == ("incomplete", 3), "a requested sync tries it at once"


def test_a_source_that_refuses_us_stops_until_it_is_edited(world: World) -> None:
    source = world.add("refused", mailboxes=2, listing_fails="auth_failed")
    run = world.sync(source)
    assert run.outcome == "failed"
    stopped = world.load(source)
    assert (stopped.status, stopped.next_due_at) == ("error", None)
    world.ticked()
    assert world.one("SELECT count(*) FROM sync_runs WHERE source_id = :id", id=source.id) == 1, "not tried again"
    world.edit(source, listing_fails=None)
    assert world.sync(source).outcome == "success"


def test_an_unreachable_source_is_tried_with_growing_pauses(world: World, tmp_path: Path) -> None:
    down = tmp_path / "down"
    source = world.add("down", mailboxes=1, messages_per_mailbox=3, down_path=str(down))
    down.touch()
    pauses = []
    for _ in range(3):
        assert world.sync(source).outcome == "failed"
        pauses.append(
            world.one("SELECT extract(epoch FROM next_due_at - now()) FROM ingestion_sources WHERE id = :id", id=source.id)
        )
    assert [round(float(pause) / 60) for pause in pauses] == [1, 2, 4]
    down.unlink()
    assert world.sync(source).outcome == "success"
    assert world.load(source).failures == 0


def test_a_connector_that_hangs_is_closed_from_outside(world: World) -> None:
    run = world.sync(world.add("hangs", mailboxes=1, messages_per_mailbox=10, trouble={"hang": True}), 30)
    assert run.outcome == "failed"
    assert "no progress for 2 s" in run.errors[0]["error"]


def test_a_connection_that_breaks_off_keeps_what_came(world: World, memory: str) -> None:
    trouble = {"unavailable_after": 1, "unavailable_times": 1}
    source = world.add("breaks", mailboxes=1, messages_per_mailbox=250, folders=["INBOX"], memory_path=memory, trouble=trouble)
    run = world.sync(source)
    assert (run.outcome, run.archived) == ("failed", 100)
    world.ticked()
    assert world.rows("SELECT 1 FROM mailboxes WHERE next_due_at > now()"), "it waits before it is tried again"
    assert world.sync(source).archived == 150, "unless a person wants it now"
    assert len(world.archive(source)) == 250


def test_sync_now_during_a_sync_is_followed_by_another_cycle(world: World, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    source = world.add("again", mailboxes=1, messages_per_mailbox=10, trouble={"hold_path": str(hold)})
    world.start_sync(source)
    eventually(lambda: world.rows("SELECT 1 FROM sync_session_mailboxes WHERE state = 'running'"), what="the first cycle")
    world.start_sync(source)
    assert world.one("SELECT count(*) FROM sync_sessions WHERE ingestion_source_id = :id", id=source.id) == 1
    hold.unlink()
    runs = "SELECT archived FROM sync_runs WHERE source_id = :id ORDER BY finished_at"
    eventually(lambda: len(world.rows(runs, id=source.id)) == 2, what="the second cycle")
    assert [row[0] for row in world.rows(runs, id=source.id)] == [10, 0]


def test_a_pause_takes_effect_at_the_next_batch_and_resume_goes_on(world: World, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    settings = {"mailboxes": 1, "messages_per_mailbox": 600, "batch_messages": 10, "folders": ["INBOX"]}
    source = world.add("paused", trouble={"slow_seconds": 0.2, "hold_path": str(hold)}, **settings)
    before = world.start_sync(source)
    eventually(lambda: len(world.archive(source)) >= 20, what="the first batches")
    hold.touch()
    from archiver.sources import service as sources

    with world.engine.begin() as connection:
        sources.pause(connection, world.load(source))
    cancelled = world.wait(source, before)
    hold.unlink()
    assert cancelled.outcome == "cancelled"
    kept = len(world.archive(source))
    assert kept < 600
    assert world.load(source).status == "paused"
    world.ticked()
    assert world.rows("SELECT 1 FROM sync_sessions WHERE ingestion_source_id = :id", id=source.id) == []
    world.edit(source, trouble={})
    with world.engine.begin() as connection:
        sources.resume(connection, world.load(source))
    run = world.sync(source)
    assert (run.outcome, len(world.archive(source))) == ("success", 600)


def test_a_large_message_is_spooled_and_the_spool_is_cleared(world: World) -> None:
    source = world.add("large", mailboxes=1, messages_per_mailbox=3, trouble={"large_bytes": 20 << 20})
    run = world.sync(source)
    assert run.archived == 3
    assert run.bytes > 20 << 20


def test_a_slice_gives_its_place_back_to_those_who_wait(world: World) -> None:
    """Five slots, five endless mailboxes, and a sixth that came later."""
    endless = world.add(
        "endless", mailboxes=5, messages_per_mailbox=2000, batch_messages=5, folders=["INBOX"], trouble={"slow_seconds": 0.2}
    )
    before = world.start_sync(endless)
    eventually(lambda: len(world.archive(endless)) > 5, what="the endless ones")
    short = world.sync(world.add("short", mailboxes=1, messages_per_mailbox=1), 20)
    assert (short.outcome, short.archived) == ("success", 1)
    assert world.rows("SELECT 1 FROM sync_sessions WHERE ingestion_source_id = :id", id=endless.id), "still at work"
    from archiver.sources import service as sources

    with world.engine.begin() as connection:
        sources.pause(connection, world.load(endless))
    assert world.wait(endless, before).outcome == "cancelled"


def test_at_the_end_nothing_is_left_over(world: World) -> None:
    world.assert_at_rest()
    assert "Traceback" not in world.log()
