"""The fake's own habits; what it shares with all connectors is in tests/contract."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.base import SPOOL_BYTES, Batch, ChangeKind, MailboxRef
from connectors.errors import AuthFailed, StateLost, Throttled, Unavailable
from connectors.fake import FakeConnector, FakeSettings
from connectors.fake.memory import Journal
from connectors.kinds import KINDS
from tests.contract.subject import QuietContext, Taken, nothing

BOX = MailboxRef("user1@example.org")


def connect(context: QuietContext | None = None, **settings: Any) -> FakeConnector:
    values = {"messages_per_mailbox": 20, "folders": ["INBOX"], "batch_messages": 5, **settings}
    return FakeConnector(FakeSettings.model_validate(values), context or QuietContext())


def taken(connector: FakeConnector, state: dict[str, Any] | None = None, held: Taken | None = None) -> Taken:
    return Taken().store(connector.fetch(BOX, state or {}, held.known if held else nothing))


def batches_until(error: type[Exception], connector: FakeConnector, state: dict[str, Any] | None = None) -> list[Batch]:
    found: list[Batch] = []
    with pytest.raises(error):
        found.extend(connector.fetch(BOX, state or {}, nothing))
    return found


def taken_until(error: type[Exception], connector: FakeConnector) -> Taken:
    return Taken().store(batches_until(error, connector))


def test_is_opened_by_its_kind() -> None:
    kind = KINDS["fake"]
    connector = kind.open(kind.settings(mailboxes=2), kind.secrets(), QuietContext())
    assert [box.address for box in connector.mailboxes()] == ["user1@example.org", "user2@example.org"]
    assert all(name == kind.name for name, kind in KINDS.items())


def test_gives_only_what_is_new() -> None:
    first = taken(connect(folders=["INBOX", "Sent"]))
    more = taken(connect(folders=["INBOX", "Sent"], messages_per_mailbox=23), first.state)
    assert more.given == ["INBOX/20", "INBOX/22", "Sent/21"]
    assert more.listed["Sent"] == {f"Sent/{number}" for number in range(1, 23, 2)}


def test_messages_are_as_long_as_asked_for_and_all_different() -> None:
    connector = connect(bytes_per_message=3000, mailboxes=2)
    messages = [
        message for box in connector.mailboxes() for batch in connector.fetch(box, {}, nothing) for message in batch.messages
    ]
    assert {len(message.data or b"") for message in messages} == {3000}
    assert len({message.data for message in messages}) == 40


def test_another_seed_is_other_mail() -> None:
    assert set(taken(connect()).hashes.values()).isdisjoint(taken(connect(seed=2)).hashes.values())


def test_other_rules_begin_the_folder_again() -> None:
    held = taken(connect(folders=["INBOX", "Junk"]))
    assert held.skipped == {f"Junk/{number}" for number in range(1, 20, 2)}
    again = taken(connect(folders=["INBOX", "Junk"], include_spam=True), held.state, held)
    assert set(again.given) == held.skipped


def test_zero_mailboxes_and_empty_ones() -> None:
    assert list(connect(mailboxes=0).mailboxes()) == []
    empty = taken(connect(messages_per_mailbox=0))
    assert (empty.given, empty.listed) == ([], {"INBOX": set()})


def test_progress_is_told() -> None:
    context = QuietContext()
    taken(connect(context))
    assert (context.seen, context.total) == (20, 20)
    assert context.turns >= 4


@pytest.mark.parametrize(
    ("error", "raised"), [("auth_failed", AuthFailed), ("unavailable", Unavailable), ("throttled", Throttled)]
)
def test_check_and_listing_fail(error: str, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        connect(check_fails=error).check()
    with pytest.raises(raised):
        next(connect(listing_fails=error).mailboxes())
    connect(listing_fails=error).check()


def test_listing_fails_in_the_middle_and_only_once(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "listing_fails": {"error": "unavailable", "after": 2, "times": 1},
        "memory_path": tmp_path / "memory",
    }
    listed: list[MailboxRef] = []
    with pytest.raises(Unavailable):
        listed.extend(connect(**settings).mailboxes())
    assert len(list(connect(**settings).mailboxes())) == 3


def test_mailboxes_are_listed_again_and_in_capitals() -> None:
    addresses = [box.address for box in connect(mailboxes=1, same_mailbox_twice=True).mailboxes()]
    assert addresses == ["user1@example.org", "user1@example.org", "USER1@EXAMPLE.ORG"]


def test_mailboxes_that_a_rule_leaves_out_are_not_listed() -> None:
    addresses = [box.address for box in connect(mailboxes_out="user2*").mailboxes()]
    assert addresses == ["user1@example.org", "user3@example.org"]


def test_trouble_of_one_mailbox() -> None:
    connector = connect(trouble_in={"USER1@*": {"auth_failed": True}})
    assert batches_until(AuthFailed, connector) == []
    assert list(connector.fetch(MailboxRef("user2@example.org"), {}, nothing))


def test_unavailable_after_some_batches(tmp_path: Path) -> None:
    assert batches_until(Unavailable, connect(trouble={"unavailable_after": 0})) == []
    assert len(taken_until(Unavailable, connect(trouble={"unavailable_after": 2})).given) == 10
    settings: dict[str, Any] = {"trouble": {"unavailable_after": 2, "unavailable_times": 1}, "memory_path": tmp_path / "memory"}
    held = taken_until(Unavailable, connect(**settings))
    rest = taken(connect(**settings), held.state)
    assert held.given + rest.given == [f"INBOX/{number}" for number in range(20)]


def test_throttles_a_number_of_times_across_connectors(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "trouble": {"throttle": {"after": 1, "seconds": 7, "times": 2}},
        "memory_path": tmp_path / "memory",
    }
    for _ in range(2):
        with pytest.raises(Throttled) as raised:
            list(connect(**settings).fetch(BOX, {}, nothing))
        assert raised.value.retry_after_seconds == 7
    assert len(taken(connect(**settings)).given) == 20


def test_trouble_that_is_counted_needs_a_memory() -> None:
    with pytest.raises(ValidationError, match="memory_path"):
        connect(trouble={"throttle": {"times": 1}})
    with pytest.raises(ValidationError, match="memory_path"):
        connect(trouble_in={"x": {"state_lost": True}})
    with pytest.raises(ValidationError, match="memory_path"):
        connect(check_fails={"error": "unavailable", "times": 1})


def test_state_is_lost_once(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "trouble": {"state_lost": True, "state_lost_folder": "INBOX"},
        "memory_path": tmp_path / "memory",
    }
    held = taken(connect(**settings))
    with pytest.raises(StateLost) as raised:
        list(connect(**settings).fetch(BOX, held.state, held.known))
    assert raised.value.folder == "INBOX"
    assert taken(connect(**settings), {}, held).given == []
    assert taken(connect(**settings), held.state).given == []


def test_same_batch_twice() -> None:
    batches = list(connect(trouble={"same_batch_twice": True}).fetch(BOX, {}, nothing))
    assert batches[0::2] == batches[1::2]
    assert len(batches) == 10


def test_poison_fails_and_the_rest_goes_on() -> None:
    trouble = {"poison": "INBOX/3", "poison_with_bytes": ["INBOX/7"]}
    failed = {item.provider_key: item for batch in connect(trouble=trouble).fetch(BOX, {}, nothing) for item in batch.failed}
    assert failed["INBOX/3"].data is None
    assert failed["INBOX/7"].data
    held = taken(connect(trouble=trouble))
    assert len(held.given) == 18
    assert taken(connect(trouble=trouble), held.state).failed == set()
    assert Taken().store(connect(trouble=trouble).refetch(BOX, failed)).failed == set(failed)
    healed = Taken().store(connect(trouble={**trouble, "poison_heals": True}).refetch(BOX, failed))
    assert set(healed.given) == set(failed)


def test_gap_is_listed_and_not_given() -> None:
    held = taken(connect(trouble={"gap": "INBOX/4"}))
    assert held.listed["INBOX"] - held.keys == {"INBOX/4"}
    assert Taken().store(connect(trouble={"gap": "INBOX/4"}).refetch(BOX, ["INBOX/4"])).keys == set()
    again = Taken().store(connect(trouble={"gap": "INBOX/4", "gap_refetched": True}).refetch(BOX, ["INBOX/4"]))
    assert again.given == ["INBOX/4"]


def test_changes_come_in_the_second_run_and_once() -> None:
    trouble = {"gone": "INBOX/0", "moved": {"INBOX/2": "Sent"}, "relabelled": {"INBOX/4": ["Red"]}}
    settings: dict[str, Any] = {"folders": ["INBOX", "Sent"], "trouble": trouble}
    held = Taken()
    first = list(connect(**settings).fetch(BOX, {}, nothing))
    assert not any(batch.changes for batch in first)
    held.store(first)
    second = list(connect(**settings).fetch(BOX, held.state, held.known))
    changes = {change.provider_key: change for batch in second for change in batch.changes}
    assert {key: change.kind for key, change in changes.items()} == {
        "INBOX/0": ChangeKind.GONE,
        "INBOX/2": ChangeKind.MOVED,
        "INBOX/4": ChangeKind.RELABELLED,
    }
    assert (changes["INBOX/2"].folder, changes["INBOX/2"].new_provider_key) == ("Sent", "Sent/INBOX-2")
    assert changes["INBOX/4"].labels == ("Red",)
    assert not any(batch.messages for batch in second)
    held.store(second)
    assert not {"INBOX/0", "INBOX/2"} & held.listed["INBOX"]
    assert "Sent/INBOX-2" in held.listed["Sent"]
    assert list(connect(**settings).fetch(BOX, held.state, held.known)) == []
    assert Taken().store(connect(**settings).refetch(BOX, ["Sent/INBOX-2"])).given == ["Sent/INBOX-2"]


def test_what_was_moved_before_we_had_it_is_downloaded_from_its_new_place() -> None:
    settings: dict[str, Any] = {"folders": ["INBOX", "Sent"], "trouble": {"moved": {"INBOX/2": "Sent"}}}
    held = taken(connect(**settings))
    second = Taken().store(connect(**settings).fetch(BOX, held.state, lambda keys: held.known(keys) - {"INBOX/2"}))
    assert second.given == ["Sent/INBOX-2"]


def test_lists_always_when_told() -> None:
    held = taken(connect())
    assert taken(connect(), held.state).listed == {}
    assert taken(connect(list_always=True), held.state).listed == held.listed


def test_large_message_is_a_file_that_close_removes(tmp_path: Path) -> None:
    connector = connect(trouble={"large_bytes": SPOOL_BYTES + 5, "large_key": "INBOX/6"})
    spooled = [message for batch in connector.fetch(BOX, {}, nothing) for message in batch.messages if message.path]
    assert [message.provider_key for message in spooled] == ["INBOX/6"]
    path = spooled[0].path
    assert path is not None
    assert path.stat().st_size == SPOOL_BYTES + 5
    assert path.read_bytes().startswith(b"From: ")
    connector.close()
    assert not path.exists()


def test_batches_end_at_their_bytes() -> None:
    sizes = [
        len(batch.messages) for batch in connect(messages_per_mailbox=7, bytes_per_message=6 << 20).fetch(BOX, {}, nothing)
    ]
    assert sizes == [2, 2, 2, 1]


@pytest.mark.alone
def test_slow_batches_come_at_once_when_the_job_has_to_stop() -> None:
    context = QuietContext()
    context.stop = True
    started = time.monotonic()
    assert len(taken(connect(context, trouble={"slow_seconds": 60})).given) == 20
    assert time.monotonic() - started < 10


def test_slow_batches_are_slow() -> None:
    started = time.monotonic()
    next(connect(trouble={"slow_seconds": 0.2}).fetch(BOX, {}, nothing))
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("trouble", [{"slow_seconds": 60}, {"hang": True}, {"hold_path": __file__}])
def test_close_ends_every_wait(trouble: dict[str, Any]) -> None:
    connector = connect(trouble=trouble)
    closer = threading.Timer(0.1, connector.close)
    closer.start()
    assert batches_until(Unavailable, connector) == []
    closer.join()


def test_holds_while_a_file_exists(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    opener = threading.Timer(0.1, gate.unlink)
    opener.start()
    assert len(taken(connect(trouble={"hold_path": gate})).given) == 20
    assert not gate.exists()
    opener.join()


def test_down_while_a_file_exists(tmp_path: Path) -> None:
    switch = tmp_path / "down"
    connector = connect(down_path=switch)
    fetching = connector.fetch(BOX, {}, nothing)
    next(fetching)
    switch.touch()
    with pytest.raises(Unavailable):
        next(fetching)
    with pytest.raises(Unavailable):
        connector.check()
    switch.unlink()
    connector.check()
    assert len(taken(connector).given) == 20


def test_journal_has_a_line_for_each_download(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    held = taken(connect(journal_path=journal.path))
    taken(connect(journal_path=journal.path), held.state)
    assert [(line.address, line.key) for line in journal.read()] == [(BOX.address, key) for key in held.given]


def test_settings_come_back_from_json(tmp_path: Path) -> None:
    settings = FakeSettings.model_validate(
        {
            "trouble": '{"moved": {"INBOX/1": "Sent"}, "poison": "INBOX/2,INBOX/3", "throttle": {"seconds": 3}}',
            "trouble_in": {"user1@*": {"hold_path": tmp_path, "relabelled": {"INBOX/1": "Red"}}},
            "listing_fails": '{"error": "throttled", "times": 2}',
            "memory_path": tmp_path,
            "folders": "INBOX,Sent",
            "date_from": "2020-01-01",
        }
    )
    assert settings.trouble.poison == ("INBOX/2", "INBOX/3")
    kept = settings.model_dump(mode="json", exclude_defaults=True)
    assert FakeSettings.model_validate(json.loads(json.dumps(kept))) == settings


def test_large_message_that_can_not_be_spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert batches_until(Unavailable, connect(trouble={"large_bytes": SPOOL_BYTES + 5})) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"mailboxes": -1},
        {"batch_messages": 201},
        {"folders": []},
        {"unknown": 1},
        {"trouble": {"hangs": True}},
        {"mode": "x"},
        {"trouble": "hang"},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        connect(**settings)
