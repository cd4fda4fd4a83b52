"""Small messages come several in one call, byte for byte; whatever goes wrong with such a call, each message comes once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from connectors.base import Quota
from connectors.errors import Throttled
from connectors.microsoft.batch_api import decode
from tests.contract.microsoft import KeepingContext
from tests.integration.microsoft.conftest import Box, Held, connect
from tests.support.graph_server.running import graph_server
from tests.support.graph_server.tenant import Tenant

MESSAGES = 60
PLAN: dict[str, Any] = {"users": [{"address": "ann@fabrikam.example"}], "messages": MESSAGES, "folders": ["inbox"]}


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Box]:
    """A server that this process has not met yet: what it thinks of a server lasts as long as itself."""
    with graph_server(tmp_path / "graph", **PLAN) as server:
        box = Box(server, "ann@fabrikam.example")
        yield box
        for connector in box.opened:
            connector.close()


@pytest.fixture
def tried(fresh: Box) -> Box:
    """One that has been tried out. Its mailbox has new messages, of which nothing is known yet."""
    fresh.sync()
    for _ in range(MESSAGES):
        fresh.do("add", "id-inbox", size=3000)
    fresh.server.control(forget="counts")
    return fresh


def expected(numbers: Sequence[int], size: int = 0) -> dict[str, str]:
    """Straight from what the server is made of."""
    tenant = Tenant(PLAN["users"], 0, ["inbox"], 0)
    box = tenant.mailboxes["ann@fabrikam.example"]
    made = [box.add("id-inbox", size=0 if number < MESSAGES else size) for number in range(max(numbers))]
    return {message.key(True): sha256(b"".join(box.content(message))).hexdigest() for message in made}


def everything(box: Box) -> dict[str, str]:
    return expected(range(2 * MESSAGES + 1), 3000) if len(box.held.hashes) > MESSAGES else expected(range(MESSAGES + 1))


def together(box: Box) -> int:
    return int(box.server.calls().get("downloads in batches", 0))


def test_small_messages_come_together_byte_for_byte(tried: Box) -> None:
    held = tried.sync()
    assert held.hashes == everything(tried)
    seen = tried.server.seen()
    assert seen["calls"]["downloads in batches"] == seen["calls"]["downloads"] == MESSAGES
    assert seen["calls"]["bundle"] == 3
    assert seen["calls"]["counted user-ann@fabrikam.example"] == MESSAGES + 6, "each of them, the tree and five folders"
    assert seen["most_at_once"] == 4
    assert seen["violations"] == {}


def test_a_server_is_tried_out_with_messages_that_came_singly(fresh: Box) -> None:
    held = fresh.sync()
    assert held.hashes == everything(fresh)
    assert len(held.given) == MESSAGES
    calls = fresh.server.calls()
    assert calls["downloads"] == MESSAGES + 4, "four twice"
    assert calls["downloads in batches"] >= 20


def test_those_with_attachments_come_by_themselves_and_in_order(tried: Box) -> None:
    alone = {MESSAGES + number for number in (1, 2, 3, 9, 30, 60)}
    for number in alone:
        tried.do("change", number, attached=True)
    tried.sync()
    assert tried.held.hashes == everything(tried)
    assert together(tried) == MESSAGES - len(alone)
    assert tried.server.seen()["violations"] == {}


@pytest.mark.parametrize("way", ["text", "json", "lines", "unix"])
def test_a_server_that_gives_other_bytes_is_asked_singly(fresh: Box, way: str) -> None:
    fresh.server.control(trouble={"bodies": way})
    assert fresh.sync().hashes == everything(fresh)
    assert together(fresh) == 4, "it was tried out, and that was all"
    fresh.server.control(trouble={}, forget="counts")
    for _ in range(MESSAGES):
        fresh.do("add", "id-inbox", size=3000)
    assert fresh.sync().hashes == everything(fresh)
    assert together(fresh) == 0, "another connector of this process remembers"
    assert len(fresh.held.given) == 2 * MESSAGES


def test_a_server_that_gives_nothing_together_is_not_asked_for_ever(fresh: Box) -> None:
    keys = [f"immutable-{number}" for number in range(1, MESSAGES + 1)]
    fresh.server.control(trouble={"parts": {key: ["missing"] for key in keys}})
    assert fresh.sync().hashes == everything(fresh)
    assert fresh.server.calls()["bundle"] == 4


@pytest.mark.parametrize("way", ["text", "json", "lines"])
def test_a_server_that_changes_its_mind_is_asked_singly_from_then_on(tried: Box, way: str) -> None:
    tried.server.control(trouble={"bodies": way})
    assert tried.sync().hashes == everything(tried)
    assert tried.server.calls()["bundle"] <= 3, "those that were under way"
    tried.server.control(trouble={}, forget="counts")
    number = tried.do("add", "id-inbox")
    tried.do("add", "id-inbox")
    assert f"immutable-{number}" in tried.sync().hashes
    assert together(tried) == 0


def test_the_other_alphabet_of_base64_will_do(fresh: Box) -> None:
    fresh.server.control(trouble={"bodies": "url-safe"})
    assert fresh.sync().hashes == everything(fresh)
    assert together(fresh) >= 20


def test_bytes_that_somebody_could_not_read_are_asked_for_singly(tried: Box) -> None:
    """The server makes U+FFFD of what is no UTF-8, and base64 of that."""
    number = tried.do("add", "id-inbox", body="Grüße aus Köln", charset="latin-1")
    tried.do("add", "id-inbox")  # so that it is not alone
    tried.server.control(trouble={"bodies": "decode"})
    held = tried.sync()
    box = Tenant(PLAN["users"], 0, ["inbox"], 0).mailboxes["ann@fabrikam.example"]
    message = [box.add("id-inbox", body="Grüße aus Köln", charset="latin-1") for _ in range(number)][-1]
    content = b"".join(box.content(message))
    assert b"Gr\xfc\xdfe" in content
    assert held.hashes[f"immutable-{number}"] == sha256(content).hexdigest()
    assert len(held.given) == 2 * MESSAGES + 2
    assert together(tried) == MESSAGES + 2


@pytest.mark.parametrize(
    "wrong",
    [["missing"], [500, "UnknownError", {}], [413, "TooLarge", {}], [401, "InvalidAuthenticationToken", {}], [404, "", {}]],
    ids=lambda wrong: str(wrong[0]),
)
def test_one_that_does_not_come_with_the_others_is_asked_for_singly(tried: Box, wrong: list[Any]) -> None:
    keys = [f"immutable-{MESSAGES + number}" for number in (1, 5, 33)]
    tried.server.control(trouble={"parts": dict.fromkeys(keys, wrong)})
    held = tried.sync()
    assert held.hashes == everything(tried)
    assert held.failed == set()
    calls = tried.server.calls()
    assert (calls["downloads"], calls["downloads in batches"]) == (MESSAGES, MESSAGES - 3), "none of the others twice"


def test_one_that_is_gone_is_noted(tried: Box) -> None:
    key = f"immutable-{MESSAGES + 7}"
    tried.server.control(trouble={"parts": {key: [404, "ErrorItemNotFound", {}]}})
    held = tried.sync()
    assert held.reasons[key] == "not found at the source", "the engine asks once more"
    assert len(held.given) == 2 * MESSAGES - 1
    assert tried.server.calls()["value"] == MESSAGES, "it was not asked for again"


def test_one_that_graph_cannot_give_is_a_dead_letter(tried: Box) -> None:
    tried.do("change", MESSAGES + 7, broken=400)
    held = tried.sync()
    assert held.failed == {f"immutable-{MESSAGES + 7}"}
    assert "ErrorMimeContentConversionFailed" in held.reasons[f"immutable-{MESSAGES + 7}"]
    assert len(held.given) == 2 * MESSAGES - 1


@pytest.mark.parametrize("body", [[], ["text"]], ids=["json", "text"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_pause_inside_is_obeyed_and_takes_nothing_away(tried: Box, status: int, body: list[str]) -> None:
    key = f"immutable-{MESSAGES + 5}"
    tried.server.control(trouble={"parts": {key: [status, "ApplicationThrottled", {"retry-after": "7"}, *body]}})
    with pytest.raises(Throttled) as pause:
        tried.sync()
    assert pause.value.retry_after_seconds == 7
    held = tried.held
    assert len(held.given) >= MESSAGES + 19, "the others of its bundle"
    assert key not in held.hashes
    tried.server.control(trouble={})
    assert tried.sync().hashes == everything(tried)
    assert len(held.given) == 2 * MESSAGES, "nothing was given twice"
    assert tried.server.calls()["downloads"] == MESSAGES, "nor fetched"


def test_each_part_throttled_once_does_not_turn_in_circles(tried: Box) -> None:
    tried.server.control(trouble={"throttle_parts": 0.01})
    pauses = 0
    while len(tried.held.given) < 2 * MESSAGES:
        try:
            tried.sync()
        except Throttled:
            pauses += 1
        assert pauses < 10
    assert tried.held.hashes == everything(tried)
    assert tried.server.calls()["downloads"] == MESSAGES


def test_a_server_that_takes_four_at_most_gets_four(tried: Box) -> None:
    tried.server.control(trouble={"most_in_batch": 4})
    with pytest.raises(Throttled):
        tried.sync()
    assert MESSAGES < len(tried.held.given) < 2 * MESSAGES
    assert tried.sync().hashes == everything(tried), "without another pause"
    assert tried.server.calls()["downloads"] == together(tried) == MESSAGES


@pytest.mark.parametrize(("status", "is_final"), [(400, True), (404, True), (403, False), (413, False), (502, False)])
def test_a_bundle_that_is_refused_as_a_whole(tried: Box, status: int, is_final: bool) -> None:
    tried.server.control(trouble={"fail": {"bundle": [status, "", 99]}})
    assert tried.sync().hashes == everything(tried)
    calls = tried.server.calls()
    assert calls["downloads"] == MESSAGES
    assert together(tried) == 0
    assert calls["bundle"] <= 3 * (1 + 2 + 3), "it gives up soon"
    tried.server.control(trouble={})
    for _ in range(2):
        tried.do("add", "id-inbox")
    tried.sync()
    assert together(tried) == (0 if is_final else 2), "what is said of bundles as such is remembered"


def test_a_bundle_that_is_too_large_is_not_taken_into_memory(tried: Box) -> None:
    """Pictures inside the text are no attachments for Graph."""
    large = [tried.do("add", "id-inbox", size=2 << 20) for _ in range(6)]
    held = tried.sync()
    assert len(held.given) == 2 * MESSAGES + len(large)
    assert {f"immutable-{number}" for number in large} <= held.hashes.keys()
    assert held.failed == set()


def test_fewer_at_once_where_the_owner_wants_it(tried: Box) -> None:
    assert tried.sync(requests_at_once=2).hashes == everything(tried)
    seen = tried.server.seen()
    assert seen["calls"]["bundle"] >= MESSAGES / 2
    assert seen["most_at_once"] == 2


class Rationed(KeepingContext):
    """A quota with so many requests left."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def wait_for_turn(self, cost: float = 1.0, quotas: Sequence[Quota] = (), limit: int = 1) -> int:
        turns = min(limit, int(self.left // cost))
        if not turns:
            raise Throttled("used up", 1.0)
        self.left -= int(turns * cost)
        return turns


def test_what_a_quota_has_left_is_used_to_the_last_request(tried: Box) -> None:
    connector = connect(tried.server, Rationed(6 + 33))
    tried.opened.append(connector)
    with pytest.raises(Throttled):
        tried.held.store(connector.fetch(tried.ref, tried.held.state, tried.held.known))
    assert len(tried.held.given) == MESSAGES + 33
    assert tried.server.calls()["counted user-ann@fabrikam.example"] == 6 + 33


def test_dead_letters_make_progress_under_a_small_quota(tried: Box) -> None:
    keys = [f"immutable-{number}" for number in range(1, MESSAGES + 1)]
    held, rounds = Held(), 0
    while set(keys) - held.hashes.keys():
        connector = connect(tried.server, Rationed(40))
        tried.opened.append(connector)
        try:
            held.store(connector.refetch(tried.ref, [key for key in keys if key not in held.hashes]))
        except Throttled:
            rounds += 1
        assert rounds < 20
    assert held.hashes == expected(range(MESSAGES + 1))


def test_a_pause_among_dead_letters_takes_nothing_away(tried: Box) -> None:
    keys = [f"immutable-{number}" for number in range(1, 21)]
    tried.server.control(trouble={"parts": {keys[4]: [429, "ApplicationThrottled", {"Retry-After": "1"}]}})
    held = Held()
    with pytest.raises(Throttled):
        held.store(tried.connect().refetch(tried.ref, keys))
    assert set(held.given) == set(keys) - {keys[4]}


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("SGFsbG8=", b"Hallo"),
        ("SGFsbG8", None),
        ("SGFs\r\nbG8=", None),
        ("SGFsbG8= ", None),
        ("-_-_", b"\xfb\xff\xbf"),
        ("+/+/", b"\xfb\xff\xbf"),
        ("+/-_", None),
        ("Subject: no", None),
        ("Grüße===", None),
        ("====", None),
    ],
)
def test_only_base64_is_taken_for_base64(text: str, content: bytes | None) -> None:
    assert decode(text) == content


def test_a_message_is_never_taken_for_base64() -> None:
    box = Tenant(PLAN["users"], 0, ["inbox"], 0).mailboxes["ann@fabrikam.example"]
    for size in (0, 1000, 4000):
        assert decode(b"".join(box.content(box.add("id-inbox", size=size))).decode()) is None
