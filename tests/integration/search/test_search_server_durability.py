"""What happens when things go wrong: kill -9, a second server, damage, a full disk, hostile requests."""

from __future__ import annotations

import gzip
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import meilisearch
import orjson
import pytest
import requests
from meilisearch.errors import MeilisearchApiError, MeilisearchError

from archiver.errors import InUse
from archiver.search_server.server import serve
from tests.integration.search.search_process import KEY, PROGRAM, SearchProcess, ended, finished
from tests.support.waiting import DEADLINE_SECONDS, eventually

SETTINGS = {"filterableAttributes": ["round", "text"], "sortableAttributes": ["round"]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "search"


@pytest.fixture
def start(data: Path) -> Iterator[Callable[..., SearchProcess]]:
    """Starts servers on the test's folder, and ends those that are left."""
    started: list[SearchProcess] = []

    def begin(before: str = "") -> SearchProcess:
        started.append(SearchProcess(data, before=before))
        return started[-1]

    yield begin
    for process in started:
        process.stop()


@pytest.fixture
def server(start: Callable[..., SearchProcess]) -> SearchProcess:
    return start()


def stored(client: meilisearch.Client, uid: str = "mail") -> dict[int, dict[str, Any]]:
    found = client.index(uid).get_documents({"limit": 100_000}).results
    return {document.id: dict(document) for document in found}


def all_done(client: meilisearch.Client) -> bool:
    return not client.get_tasks({"statuses": ["enqueued", "processing"], "limit": 1}).results


def test_it_stops_cleanly_and_goes_on_where_it_was(start: Callable[..., SearchProcess], server: SearchProcess) -> None:
    client = server.client
    finished(client, client.index("mail").update_settings(SETTINGS))
    finished(client, client.index("mail").add_documents([{"id": 1, "text": "first", "round": 1}]))
    waiting = [client.index("mail").add_documents([{"id": number, "text": "later", "round": 2}]) for number in range(2, 30)]
    assert server.stop() == 0
    again = start()
    try:
        for task in waiting:
            finished(again.client, task)
        assert sorted(stored(again.client)) == list(range(1, 30))
        assert again.client.index("mail").search("later", {"filter": "round = 2"})["estimatedTotalHits"] == 28
        again.client.index("mail").update_documents([{"id": 1, "more": True}])
        eventually(lambda: all_done(again.client))
        assert stored(again.client)[1] == {"id": 1, "text": "first", "round": 1, "more": True}
    finally:
        assert again.stop() == 0


class Sender:
    """Sends changes until the server is gone, and knows what must be there afterwards."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.expected: dict[int, dict[str, Any]] = {}
        self.in_flight: set[int] = set()
        self.succeeded: set[int] = set()

    def send_until_it_is_gone(self, client: meilisearch.Client, turn: int) -> None:
        try:
            while True:
                self._add(client, turn)
                if self.chance.random() < 0.2:
                    self._remove(client)
        except (MeilisearchError, requests.RequestException):
            return

    def _add(self, client: meilisearch.Client, turn: int) -> None:
        ids = self.chance.sample(range(300), 20)
        change: list[dict[str, Any]] = [
            {"id": one, "text": f"turn {turn} word{self.chance.randrange(50)}", "round": turn} for one in ids
        ]
        self.in_flight = set(ids)
        task = client.index("mail").add_documents(change)
        self.in_flight = set()
        self.expected.update({document["id"]: document for document in change})
        if self.chance.random() < 0.2:
            eventually(lambda: client.get_task(task.task_uid).status == "succeeded")
            self.succeeded.add(task.task_uid)

    def _remove(self, client: meilisearch.Client) -> None:
        one = self.chance.randrange(300)
        self.in_flight = {one}
        client.index("mail").delete_document(one)
        self.in_flight = set()
        self.expected.pop(one, None)

    def check(self, client: meilisearch.Client) -> None:
        """Whether the request that the kill cut off was accepted nobody knows; all others were."""
        found = stored(client)
        sure = {key: value for key, value in found.items() if key not in self.in_flight}
        assert sure == {key: value for key, value in self.expected.items() if key not in self.in_flight}
        self.expected = found
        assert all(client.get_task(uid).status == "succeeded" for uid in self.succeeded)
        for turn in {document["round"] for document in found.values()}:
            total = client.index("mail").search("", {"filter": f"round = {turn}"})["estimatedTotalHits"]
            assert total == sum(document["round"] == turn for document in found.values())


def test_kill_at_any_moment_loses_nothing_that_was_accepted(start: Callable[..., SearchProcess]) -> None:
    chance = random.Random(5)
    sender = Sender(chance)
    server = start()
    finished(server.client, server.client.index("mail").update_settings(SETTINGS))
    for turn in range(8):
        killer = threading.Timer(chance.uniform(0.02, 0.5), server.kill)
        killer.start()
        sender.send_until_it_is_gone(server.client, turn)
        killer.join()
        server = start()
        client = server.client
        eventually(partial(all_done, client))
        sender.check(client)
    assert len(sender.expected) > 100
    assert sender.succeeded
    assert server.stop() == 0


def test_files_that_a_killed_process_left_are_in_nobodys_way(start: Callable[..., SearchProcess], data: Path) -> None:
    """Of a commit that was cut off: Tantivy names its files by a number that comes again."""
    server = start()
    finished(server.client, server.client.index("mail").add_documents([{"id": one, "round": 1} for one in range(10)]))
    assert server.stop() == 0
    files = next((data / "indexes").iterdir()) / "index"
    meta, managed = (orjson.loads((files / name).read_bytes()) for name in ("meta.json", ".managed.json"))
    left = [
        f"{segment['segment_id'].replace('-', '')}.{number}.del"
        for segment in meta["segments"]
        for number in range(meta["opstamp"], meta["opstamp"] + 50)
    ]
    for name in left:
        (files / name).write_bytes(b"half a file")
    (files / ".managed.json").write_bytes(orjson.dumps(managed + left))
    again = start()
    finished(again.client, again.client.index("mail").add_documents([{"id": 1, "round": 2}]))
    assert {one: document["round"] for one, document in stored(again.client).items()} == {**dict.fromkeys(range(10), 1), 1: 2}
    assert again.client.index("mail").get_stats().number_of_documents == 10
    assert again.stop() == 0
    assert len([name for name in left if (files / name).exists()]) <= 1  # one is new


def test_kill_while_settings_rebuild_the_index(start: Callable[..., SearchProcess], data: Path) -> None:
    server = start()
    index = server.client.index("mail")
    finished(
        server.client,
        index.add_documents([{"id": number, "text": f"w{number}", "round": number % 7} for number in range(8000)]),
    )
    for turn, delay in enumerate((0.01, 0.1, 0.3)):
        names = ["round"] if turn % 2 == 0 else ["round", "text"]
        task = server.client.index("mail").update_filterable_attributes(names)
        threading.Event().wait(delay)
        server.kill()
        server = start()
        finished(server.client, task)
        assert server.client.index("mail").get_stats().number_of_documents == 8000
        assert server.client.index("mail").search("", {"filter": "round = 3"})["estimatedTotalHits"] == 1143
    assert server.stop() == 0
    assert len(list((data / "indexes").iterdir())) == 1, "nothing is left lying beside the index"


def test_a_second_server_is_refused(server: SearchProcess, data: Path) -> None:
    with pytest.raises(InUse, match=str(server.process.pid)):
        serve(data, KEY, port=0)
    port = int(server.url.rsplit(":", 1)[1])
    with pytest.raises(InUse, match=str(port)):
        serve(data.parent / "other", KEY, port=port)


@pytest.mark.parametrize("damage", ["meta", "segment", "gone"])
def test_a_damaged_index_is_set_aside_and_reported(start: Callable[..., SearchProcess], data: Path, damage: str) -> None:
    server = start()
    for uid in ("mail", "other"):
        finished(server.client, server.client.index(uid).add_documents([{"id": 1, "text": "x"}]))
    finished(server.client, server.client.index("mail").update_settings(SETTINGS))
    assert server.stop() == 0
    folder = next(path for path in (data / "indexes").iterdir() if b"round" in (path / "plan.json").read_bytes())
    if damage == "meta":
        (folder / "index" / "meta.json").write_text("{ not json")
    elif damage == "segment":
        next((folder / "index").glob("*.store")).unlink()
    else:
        shutil.rmtree(folder)
    server = start()
    try:
        assert server.client.index("mail").get_stats().number_of_documents == 0
        assert server.client.index("mail").get_filterable_attributes() == ["round", "text"]
        assert server.client.index("other").get_stats().number_of_documents == 1
        reports = requests.get(
            f"{server.url}/stats", headers={"Authorization": f"Bearer {KEY}"}, timeout=DEADLINE_SECONDS
        ).json()["damaged"]
        assert reports[0]["indexUid"] == "mail"
        finished(server.client, server.client.index("mail").add_documents([{"id": 2, "text": "again", "round": 1}]))
        assert server.client.index("mail").search("again", {"filter": "round = 1"})["estimatedTotalHits"] == 1
    finally:
        assert server.stop() == 0
    if damage != "gone":
        assert len(list((data / "damaged").iterdir())) == 1


def test_an_index_that_is_removed_while_it_runs_begins_anew(server: SearchProcess, data: Path) -> None:
    index = server.client.index("mail")
    finished(server.client, index.update_settings(SETTINGS))
    finished(server.client, index.add_documents([{"id": 1, "text": "gone", "round": 1}]))
    for folder in (data / "indexes").iterdir():
        shutil.rmtree(folder)
    finished(server.client, index.add_documents([{"id": 2, "text": "again", "round": 2}]))
    assert sorted(stored(server.client)) == [2]
    assert index.search("again", {"filter": "round = 2"})["estimatedTotalHits"] == 1
    reports = requests.get(f"{server.url}/stats", headers={"Authorization": f"Bearer {KEY}"}, timeout=DEADLINE_SECONDS).json()[
        "damaged"
    ]
    assert [report["indexUid"] for report in reports] == ["mail"]


def _add_until_refused(client: meilisearch.Client, number: int, text: str) -> list[str]:
    """The code of the refusal or the failure, if there was one."""
    try:
        task = client.index("mail").add_documents([{"id": number, "text": text}])
    except MeilisearchApiError as error:
        return [str(error.code)]
    done = ended(client, task.task_uid)
    return [done.error["code"]] if done.status == "failed" else []


def test_a_full_disk_is_an_error_of_the_task(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    command = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=14m tmpfs "$0" && exec "$@"', str(small)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system of limited size can be made here")
    process = subprocess.Popen(
        [*command, sys.executable, "-c", PROGRAM, str(small / "data"), KEY], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        client = meilisearch.Client(process.stdout.readline().strip(), KEY)
        eventually(client.is_healthy)
        chance = random.Random(1)
        codes: list[str] = []
        while not codes:
            text = " ".join(f"{chance.randrange(1 << 40):x}" for _ in range(20_000))
            codes = _add_until_refused(client, chance.randrange(1 << 30), text)
        assert codes == ["no_space_left_on_device"]
        assert client.is_healthy()
        count = client.index("mail").get_stats().number_of_documents
        assert count == client.index("mail").search("", {"limit": 0})["estimatedTotalHits"] > 0
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def test_bodies_have_a_limit(server: SearchProcess) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Content-Length": str(10**9)}
    request = requests.Request("POST", f"{server.url}/indexes/x/documents", data=b"[]").prepare()
    request.headers.update(headers)
    with requests.Session() as session:
        answer = session.send(request, timeout=DEADLINE_SECONDS)
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
    bomb = gzip.compress(bytes(150 * 2**20), 1)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = requests.post(f"{server.url}/indexes/x/documents", data=bomb, headers=headers, timeout=DEADLINE_SECONDS)
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")


def test_searches_answer_while_much_is_indexed(server: SearchProcess) -> None:
    client = server.client
    finished(client, client.index("mail").update_settings(SETTINGS))
    finished(
        client,
        client.index("mail").add_documents([{"id": 10**6 + number, "text": "constant", "round": -1} for number in range(100)]),
    )
    stop = threading.Event()
    wrong: list[Any] = []
    answered = [0]

    def search() -> None:
        own = meilisearch.Client(server.url, KEY)
        while not stop.is_set():
            answer = own.index("mail").search("constant", {"filter": "round = -1", "facets": ["round"], "limit": 200})
            if (
                answer["estimatedTotalHits"] != 100
                or len(answer["hits"]) != 100
                or answer["facetDistribution"]["round"] != {"-1": 100}
            ):
                wrong.append(answer["estimatedTotalHits"])
            answered[0] += 1

    readers = [threading.Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    last = None
    for turn in range(12):
        rows = [{"id": turn * 500 + number, "text": f"filler w{number} " * 20, "round": turn} for number in range(500)]
        last = client.index("mail").add_documents(rows)
    assert last is not None
    finished(client, last)
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert answered[0] > 10
    assert client.index("mail").get_stats().number_of_documents == 6100


def test_consecutive_additions_share_a_batch(start: Callable[..., SearchProcess]) -> None:
    server = start()
    client = server.client
    rows = [{"id": number, "text": "word " * 200} for number in range(3000)]
    client.index("mail").add_documents(rows)
    tasks = [client.index("mail").add_documents([{"id": 5000 + number}]) for number in range(20)]
    for task in tasks:
        finished(client, task)
    batches: list[Any] = client.get_batches({"limit": 100}).results
    try:
        assert max(batch.stats["totalNbTasks"] for batch in batches) > 5
        assert client.index("mail").get_stats().number_of_documents == 3020
    finally:
        server.stop()


def test_a_slow_search_is_cut_off_and_does_not_hold_up_others(start: Callable[..., SearchProcess]) -> None:
    # every ranked search of "slowly" takes long here; what is cut off answers from the cheaper form
    slow = """
import time
from archiver.search_server.query import searching
real = searching.find
def find(prepared, *window):
    if prepared.request.q == "slowly" and not prepared.degraded:
        time.sleep(3)
    return real(prepared, *window)
searching.find = find
"""
    server = start(before=slow)
    client = server.client
    try:
        finished(client, client.index("mail").update_settings({"searchCutoffMs": 100}))
        finished(client, client.index("mail").add_documents([{"id": 1, "text": "slowly quickly"}]))
        answers: list[Any] = []
        waiting = [threading.Thread(target=lambda: answers.append(client.index("mail").search("slowly"))) for _ in range(3)]
        for thread in waiting:
            thread.start()
        quick = client.index("mail").search("quickly")
        assert quick["estimatedTotalHits"] == 1
        for thread in waiting:
            thread.join(DEADLINE_SECONDS)
        assert len(answers) == 3
        assert all(answer["degraded"] for answer in answers)
        assert any(answer["hits"] for answer in answers)
    finally:
        server.stop()
