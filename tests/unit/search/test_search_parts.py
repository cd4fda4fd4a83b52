"""Payloads, settings, scores, keys, tasks and the lock."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from archiver.errors import InUse
from archiver.search_server.errors import ApiError
from archiver.search_server.human_size import human
from archiver.search_server.index import engine as engine_module
from archiver.search_server.index.catalog import Catalog
from archiver.search_server.index.document_fields import Attributes
from archiver.search_server.index.engine import Engine
from archiver.search_server.index.plan import FieldPlan
from archiver.search_server.index.settings import DEFAULTS, apply_change, check_change, full_settings
from archiver.search_server.keys import KeyRing, Permit
from archiver.search_server.lock import folder_lock
from archiver.search_server.payload import read_documents, unpack
from archiver.search_server.query.ranking import SCORED_UNITS, Scale
from archiver.search_server.state import ServerState
from archiver.search_server.tasks.processing import Processor
from archiver.search_server.tasks.task_queue import Finish, TaskQueue


def code_of(call: Any, *arguments: Any) -> str:
    with pytest.raises(ApiError) as caught:
        call(*arguments)
    return caught.value.code


def test_bodies_are_unpacked_within_the_limit() -> None:
    assert unpack(gzip.compress(b"x" * 100), "gzip") == b"x" * 100
    assert unpack(zstandard.compress(b"x" * 100), "zstd") == b"x" * 100
    assert code_of(unpack, gzip.compress(b"x" * 1000), "gzip", 500) == "payload_too_large"
    assert code_of(unpack, zstandard.compress(b"x" * 1000), "zstd", 500) == "payload_too_large"
    assert code_of(unpack, b"not packed", "gzip") == "malformed_payload"
    assert code_of(unpack, gzip.compress(b"x" * 1000)[:-9], "gzip") == "malformed_payload"
    assert code_of(unpack, b"x", "lzma") == "unsupported_media_type"


def test_documents_are_read() -> None:
    assert read_documents(b'{"a": 1}', "json") == [{"a": 1}]
    assert read_documents(b"[]", "json") == []
    assert read_documents(b'{"a": 1}\n{"a": 2}', "ndjson") == [{"a": 1}, {"a": 2}]
    assert read_documents(b"a,b:number\nx,1\n", "csv") == [{"a": "x", "b": 1}]
    assert read_documents(b'a,b\nx,"y" z\n', "csv") == [{"a": "x", "b": "y z"}]
    assert code_of(read_documents, b"", "json") == "missing_payload"
    assert code_of(read_documents, b"[1]", "json") == "malformed_payload"
    assert code_of(read_documents, b"a,b\n1\n", "csv") == "malformed_payload"
    assert code_of(read_documents, b"a:number\nx\n", "csv") == "malformed_payload"
    assert code_of(read_documents, b"\xff\xfe", "json") == "malformed_payload"


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1_426_063, "1.36 MiB"), (2**51, "2048.00 TiB")]
)
def test_sizes_for_people(size_bytes: int, text: str) -> None:
    assert human(size_bytes) == text


def test_settings_merge_and_fall_back() -> None:
    explicit = apply_change(
        {}, check_change({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 6}}, "stopWords": ["b", "a", "a"]})
    )
    full = full_settings(explicit)
    assert full["typoTolerance"]["minWordSizeForTypos"] == {"oneTypo": 6, "twoTypos": 9}
    assert full["stopWords"] == ["a", "b"]
    assert full_settings(apply_change(explicit, {"typoTolerance": None, "stopWords": None})) == full_settings({}) == DEFAULTS


def test_equal_plans_share_an_index() -> None:
    one = FieldPlan.of(full_settings({"searchableAttributes": ["a", "b"], "stopWords": ["x"]}))
    two = FieldPlan.of(full_settings({"searchableAttributes": ["b", "a"], "synonyms": {"x": ["y"]}}))
    assert one == two == FieldPlan.from_json(one.to_json())
    assert one != FieldPlan.of(full_settings({"sortableAttributes": ["a"]}))
    assert one.is_searchable("a.inner")
    assert not one.is_searchable("ab")


@given(st.permutations(["words", "typo", "proximity", "attribute", "sort", "exactness"]), st.integers(1, 40), st.data())
def test_scores_can_be_taken_apart_and_fit_a_float(rules: list[str], units: int, data: st.DataObject) -> None:
    scale = Scale.of(rules, units)
    assert scale.top < 2**24
    digits = {rule: data.draw(st.integers(0, count)) for rule, count in scale.steps.items()}
    score = sum(scale.weights[rule] * digit for rule, digit in digits.items())
    assert {rule: scale.digit(float(score), rule) for rule in digits} == digits
    place = rules.index("sort")
    before = score // scale.before(rules[place:])
    assert (before == 0) or any(digits[rule] for rule in rules[:place] if rule in digits)
    assert scale.steps["typo"] <= SCORED_UNITS * 2


@pytest.fixture
def state(tmp_path: Path) -> Any:
    opened = ServerState(tmp_path / "state.sqlite")
    yield opened
    opened.close()


def test_keys_are_compared_and_limited(state: ServerState) -> None:
    ring = KeyRing(state, "master")
    assert ring.permit("Bearer master", "keys.get") == Permit()
    assert code_of(ring.permit, None, "search") == "missing_authorization_header"
    assert code_of(ring.permit, "Bearer mäster", "search") == "invalid_api_key"
    search = next(key for key in ring.all() if key["actions"] == ["search"])
    assert ring.permit(f"Bearer {ring.secret(search)}", "search").allows("anything")
    assert code_of(ring.permit, f"Bearer {ring.secret(search)}", "documents.get") == "invalid_api_key"
    assert KeyRing(state, None).permit(None, "documents.add").allows("x")
    assert Permit(("mail-*",)).allows("mail-1")
    assert not Permit(("mail-*",), {"other": None}).allows("mail-1")


def test_tasks_survive_and_keep_their_order(tmp_path: Path, state: ServerState) -> None:
    queue = TaskQueue(state, tmp_path / "payloads")
    large = b"[" + b"1," * 200_000 + b"1]"
    first = queue.enqueue("documentAdditionOrUpdate", "a", {}, {}, b"[]")
    second = queue.enqueue("documentAdditionOrUpdate", "a", {}, {}, large)
    queue.enqueue("settingsUpdate", "a", {})
    queue.enqueue("documentAdditionOrUpdate", "a", {}, {}, b"[]")
    batch = queue.next_batch()
    assert [task["uid"] for task in batch] == [first["uid"], second["uid"]]
    queue.start(batch)
    queue.recover()
    again = queue.next_batch()
    assert [task["status"] for task in again] == ["enqueued", "enqueued"]
    assert queue.payload(again[1]) == large
    queue.finish([Finish(first["uid"], "succeeded"), Finish(second["uid"], "failed", error={"code": "x"})])
    assert [task["type"] for task in queue.next_batch()] == ["settingsUpdate"]
    assert list((tmp_path / "payloads").iterdir()) == []
    urgent = queue.enqueue("taskCancelation", None, {"tasks": []})
    assert queue.next_batch()[0]["uid"] == urgent["uid"]


@pytest.mark.parametrize("cancels", [False, True])
def test_what_comes_while_a_batch_is_read_shares_its_commit_unless_it_may_be_canceled(
    tmp_path: Path, state: ServerState, cancels: bool
) -> None:
    queue, catalog = TaskQueue(state, tmp_path / "payloads"), Catalog(state, tmp_path)
    request = {"format": "json", "delimiter": ",", "partial": False}

    def add(uid: str, number: int) -> int:
        details = {"receivedDocuments": 1, "indexedDocuments": None}
        return int(queue.enqueue("documentAdditionOrUpdate", uid, request, details, b'[{"id": %d}]' % number)["uid"])

    first = add("books", 1)
    batch = queue.next_batch()
    number = queue.start(batch)
    second, other, later = add("books", 2), add("films", 3), add("books", 4)
    if cancels:
        queue.enqueue("taskCancelation", None, {"tasks": [second]})
    Processor(state, queue, catalog).run(batch)
    waiting = [second, other, later] if cancels else [other, later]
    assert [task["uid"] for task in batch] == ([first] if cancels else [first, second])
    assert {(queue.get(task["uid"])["status"], queue.get(task["uid"])["batch_uid"]) for task in batch} == {
        ("succeeded", number)
    }
    assert {queue.get(uid)["status"] for uid in waiting} == {"enqueued"}
    assert catalog.get("books").engine.snapshot().searcher.num_docs == len(batch)
    catalog.close()


def test_a_payload_without_a_task_is_removed(tmp_path: Path, state: ServerState) -> None:
    folder = tmp_path / "payloads"
    queue = TaskQueue(state, folder)
    (folder / "77.payload").write_bytes(b"x")
    (folder / "abc.new").write_bytes(b"x")
    queue.recover()
    assert list(folder.iterdir()) == []


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    with folder_lock(tmp_path), pytest.raises(InUse, match="process"), folder_lock(tmp_path):
        pass
    with folder_lock(tmp_path):
        pass


def test_all_threads_help_when_much_is_waiting_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WRITER_THREADS", 3)
    engine = Engine.create(tmp_path / "index", FieldPlan.of(full_settings({})), Attributes([], set(), []))
    for number, is_busy in enumerate((False, True, False, True)):
        transaction = engine.begin(is_busy=is_busy)
        for place in range(50):
            transaction.put(f"{number}-{place}", {"id": f"{number}-{place}", "text": "a word"})
        transaction.commit()
    assert engine.snapshot().searcher.num_docs == 200
    engine.rest()
    assert engine.snapshot().get("0-0") == {"id": "0-0", "text": "a word"}
    assert engine.snapshot().get("3-49") == {"id": "3-49", "text": "a word"}


_EIGHT_COMMITS = """
import os, sys
from pathlib import Path
from archiver.search_server.index.engine import Engine
from archiver.search_server.index.plan import FieldPlan
from archiver.search_server.index.document_fields import Attributes
from archiver.search_server.index.settings import full_settings

engine = Engine.create(Path(sys.argv[1]), FieldPlan.of(full_settings({})), Attributes([], set(), []))
for turn in range(8):
    transaction = engine.begin()
    for number in range(20):
        transaction.put(f"{turn}-{number}", {"id": f"{turn}-{number}"})
    if turn == 7:
        transaction.put("3-0", {"id": "3-0", "is": "new"})
    transaction.commit()
os._exit(0)  # before they are merged
"""


def test_the_first_change_after_a_kill_is_not_lost_in_a_merge(tmp_path: Path) -> None:
    """The last commit has removed something from a segment, and the next one removes another thing from it."""
    folder = tmp_path / "index"
    subprocess.run([sys.executable, "-c", _EIGHT_COMMITS, str(folder)], check=True)
    engine = Engine.open(folder, Attributes([], set(), []))
    assert engine.snapshot().searcher.num_segments == 8
    transaction = engine.begin()
    transaction.put("3-1", {"id": "3-1", "is": "new"})
    transaction.commit()
    del transaction
    engine.rest()
    assert engine.snapshot().searcher.num_segments < 8, "they are merged by now"
    assert engine.snapshot().searcher.num_docs == 160
    assert engine.snapshot().get("3-1") == {"id": "3-1", "is": "new"}
