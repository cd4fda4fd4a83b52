"""What a scan of files reads and reports, decided without a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from connectors.base import ChangeKind, FailedMessage
from connectors.files.cursor import FilesCursor
from connectors.files.items import Found, FoundMessage, Remark
from connectors.files.mtime_index import compare
from connectors.files.plan import ScanBatch, finish_folder, names_left, outdated_keys, plan_batch, resume_folder

DAY = 86_400
NAMES = ["1.eml", "2.eml"]
SECOND = 1_000_000_000


def message(key: str, folder: str = "Inbox", **more: Any) -> FoundMessage:
    def pieces() -> Iterator[bytes]:
        yield b"mail"

    return FoundMessage(key, folder, 4, b"mail", pieces, 0, **more)


def plan(found: list[Found], cursor: FilesCursor | None = None, **more: Any) -> ScanBatch:
    read_whole, held = more.pop("read_whole", []), more.pop("held", set())
    given = {"begun_folders": (), "is_fresh": True, "failed_before": (), **more}
    return plan_batch(found, read_whole, held, cursor or FilesCursor("turn", "id"), **given)


def finished(times: list[int], now: int) -> FilesCursor:
    """The cursor after a whole round."""
    begun = resume_folder(None, "turn", "id", compare(NAMES, times, FilesCursor(), now, is_first=True))
    assert begun is not None
    return finish_folder(begun)


def again(cursor: FilesCursor, names: list[str], times: list[int], now: int) -> FilesCursor | None:
    return resume_folder(cursor, "turn", "id", compare(names, times, cursor, now, is_first=False))


def test_cursors_of_an_earlier_import_are_removed() -> None:
    state = {"files:a": 1, "files:a:x": {"turn": "old"}, "files:a:y": {"turn": "new"}, "files:a:z": None, "files:b:x": {}}
    assert outdated_keys(state, "files:a", "new") == ["files:a:x", "files:a:z"]


def test_an_interrupted_folder_continues() -> None:
    cursor = FilesCursor("turn", "id", name="2.mbox", at=77, file="f")
    assert resume_folder(cursor, "turn", "id", None) == cursor
    assert names_left(["1.mbox", "2.mbox", "3.mbox"], cursor) == ["2.mbox", "3.mbox"]
    assert names_left(["1.mbox", "2.mbox", "3.mbox"], replace(cursor, at=-1)) == ["3.mbox"]


def test_a_folder_without_changes_is_not_read_again() -> None:
    times = [10 * SECOND, 20 * SECOND]
    cursor = finished(times, now=30)
    assert again(cursor, NAMES, times, now=40) is None


def test_a_new_file_is_read_alone() -> None:
    cursor = finished([10 * SECOND, 20 * SECOND], now=30)
    begun = again(cursor, [*NAMES, "3.eml"], [10 * SECOND, 20 * SECOND, 50 * SECOND], now=60)
    assert begun is not None
    assert (begun.is_partial, begun.is_whole, begun.since, begun.next_since) == (True, False, 20 * SECOND, 50 * SECOND)


def test_a_second_file_within_one_tick_of_the_clock_is_seen() -> None:
    cursor = finished([10 * SECOND, 20 * SECOND], now=30)
    begun = again(cursor, [*NAMES, "3.eml"], [10 * SECOND, 20 * SECOND, 20 * SECOND], now=60)
    assert begun is not None
    assert begun.is_partial


def test_an_old_file_that_appears_leads_to_a_whole_comparison_once_a_day() -> None:
    """The clock was set back, or the file was moved here with its times."""
    cursor = finished([10 * SECOND, 20 * SECOND], now=30)
    names, times = [*NAMES, "0.eml"], [10 * SECOND, 20 * SECOND, 5 * SECOND]
    assert again(cursor, names, times, now=40) is None
    begun = again(cursor, names, times, now=30 + DAY)
    assert begun is not None
    assert begun.is_whole
    assert again(finish_folder(begun), names, times, now=31 + 2 * DAY) is None


def test_what_is_archived_is_not_stored_again() -> None:
    found = plan([message("a"), message("b"), message("c", rule="date_from: 2020-01-01")], held={"a"})
    assert [one.key for one in found.messages] == ["b"]
    assert [(one.provider_key, one.rule) for one in found.skipped] == [("c", "date_from: 2020-01-01")]
    assert [listing.provider_keys for listing in found.listings] == [("a", "b", "c")]


def test_a_listing_is_continued_within_a_folder() -> None:
    first = plan([message("a"), message("b", "Sent")])
    assert [(one.folder, one.is_continued, one.is_whole) for one in first.listings] == [
        ("Inbox", False, False),
        ("Sent", False, False),
    ]
    second = plan([message("c")], begun_folders=first.begun_folders)
    assert [(one.folder, one.is_continued) for one in second.listings] == [("Inbox", True)]


def test_in_a_later_round_an_mbox_is_listed_as_a_whole() -> None:
    cursor = FilesCursor("turn", "id", file="fingerprint", is_partial=True)
    first = plan([message("a"), message("b", "Sent")], cursor, held={"a"})
    assert [(one.provider_keys, one.is_continued) for one in first.listings] == [(("a",), False), (("b",), True)]
    assert plan([message("c")], cursor, is_fresh=False).listings[0].is_continued


def test_in_a_later_round_only_new_single_files_are_listed_and_flags_change() -> None:
    cursor = FilesCursor("turn", "id", is_partial=True)
    found = plan([message("a", flags=("\\Seen",)), message("b")], cursor, held={"a"})
    assert [one.provider_keys for one in found.listings] == [("b",)]
    assert [(one.kind, one.provider_key, one.flags) for one in found.changes] == [(ChangeKind.RELABELLED, "a", ("\\Seen",))]


def test_failures_and_other_remarks_are_reported_apart() -> None:
    found = plan([Remark("x.pst", "", "can't be read", True), Remark("y.txt", "", "not mail", False)])
    assert found.failed == (FailedMessage("x.pst", "can't be read", ""),)
    assert [(one.provider_key, one.rule) for one in found.skipped] == [("y.txt", "not mail")]


def test_a_file_that_failed_earlier_and_is_read_now_is_explained() -> None:
    read = [Remark("x.mbox", "", "archived now", False)]
    assert [one.provider_key for one in plan([], read_whole=read, held={"x.mbox"}).skipped] == ["x.mbox"]
    assert plan([], read_whole=read, held=set()).skipped == ()
    assert plan([], read_whole=read, held={"x.mbox"}, failed_before={"x.mbox"}).skipped == (), "it failed in this run"
