"""What comes out of Gmail: everything once, with its labels; later only what changed; and how errors on the way end."""

from __future__ import annotations

import hashlib
import resource
from typing import Any

import pytest

from connectors.base import ChangeKind, MailboxRef
from connectors.errors import AuthFailed, StateLost, Throttled, Unavailable
from tests.contract.subject import QuietContext, Taken, fetch_all, hash_of, nothing
from tests.integration.google.conftest import ALICE, Open
from tests.support.google_server import GoogleServer
from tests.support.google_world import BLOCK, large_hash

BOX = MailboxRef(ALICE)
LISTINGS = {"all": 3, "drafts": 1, "spam": 1, "trash": 1}
RATE = {"status": 403, "reason": "userRateLimitExceeded", "said": "User Rate Limit Exceeded"}


def key(number: int) -> str:
    return f"{number + 1:016x}"


def test_one_call_for_each_message_and_a_few_for_all(server: GoogleServer, connect: Open) -> None:
    server.tell(reset_calls=True)
    context = QuietContext()
    taken = fetch_all(connect(context), BOX)
    calls = server.calls()
    assert calls["get"] == len(taken.given) == 30
    assert (calls["profile"], calls["labels"], calls["list"]) == (1, 1, sum(LISTINGS.values()))
    assert context.total == 30

    server.tell(reset_calls=True)
    assert fetch_all(connect(), BOX, taken.state).keys == set()
    assert server.calls() == {"history": 1}, "one call for a mailbox in which nothing happened"


def test_labels_arrive_as_labels(connect: Open) -> None:
    found = {message.provider_key: message for batch in connect().fetch(BOX, {}, nothing) for message in batch.messages}
    labelled, plain = found[key(0)], found[key(1)]
    assert (labelled.folder, labelled.labels, labelled.flags) == ("All Mail", ("Projects/Übersicht",), ("\\Flagged",))
    assert (plain.labels, plain.flags) == (("Inbox",), ("\\Seen",))
    assert plain.received_at is not None
    assert plain.received_at.timestamp() == 1_600_000_060


def test_later_only_what_changed(server: GoogleServer, connect: Open) -> None:
    held = fetch_all(connect(), BOX)
    server.tell(
        change=[
            {"in": ALICE, "what": "name label", "id": "Label_9", "name": "New"},
            {"in": ALICE, "what": "add", "id": key(100), "raw": "Subject: new\r\n\r\nnew", "labels": ["INBOX", "UNREAD"]},
            {"in": ALICE, "what": "add", "id": key(101), "raw": "Subject: spam\r\n\r\nspam", "labels": ["SPAM"]},
            {"in": ALICE, "what": "add", "id": key(102), "raw": "Subject: short\r\n\r\nlife", "labels": ["INBOX"]},
            {"in": ALICE, "what": "delete", "id": key(102)},
            {"in": ALICE, "what": "delete", "id": key(3)},
            {"in": ALICE, "what": "label", "id": key(1), "labels": ["Label_9", "INBOX", "STARRED"]},
            {"in": ALICE, "what": "label", "id": key(1), "labels": ["Label_9", "STARRED"]},
            {"in": ALICE, "what": "label", "id": key(4), "labels": ["TRASH"]},
        ]
    )
    server.tell(reset_calls=True)
    batches = list(connect().fetch(BOX, held.state, held.known))
    changes = {change.provider_key: change for batch in batches for change in batch.changes}
    later = Taken().store(batches)
    assert later.given == [key(100)]
    assert later.skipped == {key(101)}
    assert changes[key(3)].kind is ChangeKind.GONE
    assert changes[key(1)].kind is ChangeKind.RELABELLED
    assert (changes[key(1)].labels, changes[key(1)].flags) == (("New",), ("\\Flagged", "\\Seen"))
    assert changes[key(4)].labels == ("Trash",)
    assert server.calls() == {"history": 1, "get": 1, "labels": 1}, "the names again, since one was unknown"

    server.tell(reset_calls=True, change=[{"in": ALICE, "what": "label", "id": key(101), "labels": ["INBOX"]}])
    now = {**held.state, **later.state}
    rescued = fetch_all(connect(), BOX, now)
    assert rescued.given == [key(101)], "what was spam, and is not any more"


def test_history_in_several_pages(server: GoogleServer, connect: Open) -> None:
    held = fetch_all(connect(), BOX)
    add = [
        {"in": ALICE, "what": "add", "id": key(number), "raw": f"Subject: {number}\r\n\r\n", "labels": ["INBOX"]}
        for number in range(100, 135)
    ]
    server.tell(change=add, reset_calls=True)
    later = Taken().store(connect().fetch(BOX, held.state, held.known))
    assert len(later.given) == 35
    assert server.calls() == {"history": 4, "get": 35}


def test_an_expired_history_costs_ids_only(server: GoogleServer, connect: Open) -> None:
    held = fetch_all(connect(), BOX)
    server.tell(expire=True, change=[{"in": ALICE, "what": "forget", "id": key(5)}])
    server.tell(change=[{"in": ALICE, "what": "add", "id": key(100), "raw": "Subject: x\r\n\r\n", "labels": ["INBOX"]}])
    server.tell(reset_calls=True)
    again = Taken().store(connect().fetch(BOX, held.state, held.known))
    assert again.given == [key(100)]
    assert server.calls()["get"] == 1
    assert key(5) not in again.listed["All Mail"], "so that the engine sees that it is gone"
    assert again.state[f"google:{ALICE}"]["history"] != held.state[f"google:{ALICE}"]["history"]


def test_a_message_that_is_deleted_between_list_and_get_is_noted(server: GoogleServer, connect: Open) -> None:
    server.tell(troubles=[{"match": f"^get .*{key(3)}", "status": 404, "reason": "notFound"}])
    batches = list(connect().fetch(BOX, {}, nothing))
    (noted,) = [failed for batch in batches for failed in batch.failed]
    assert (noted.provider_key, noted.is_not_found) == (key(3), True), "the engine asks once more"
    assert len(Taken().store(batches).given) == 29


def test_rules_are_kept_without_downloading(server: GoogleServer, connect: Open) -> None:
    server.tell(world={"users": [{"address": "many@acme.test", "messages": 130}]}, reset_calls=True)
    box = MailboxRef("many@acme.test")
    taken = fetch_all(connect(), box)
    assert len(taken.skipped) == 3 + 3 + 3
    assert server.calls()["get"] == len(taken.given) == 121
    everything = fetch_all(connect(include_spam=True, include_trash=True, include_drafts=True), box)
    assert len(everything.given) == 130
    dated = Taken().store(connect(date_from="2020-09-14").fetch(box, {}, nothing))
    assert len(dated.skipped) > 0
    assert dated.keys == everything.keys
    batches = list(connect(date_to="2020-09-12").fetch(box, {}, nothing))
    assert "date_to: 2020-09-12" in {one.rule for batch in batches for one in batch.skipped}
    assert Taken().store(batches).keys == everything.keys


def test_labels_that_are_wanted_and_unwanted(server: GoogleServer, connect: Open) -> None:
    held = Taken()
    server.tell(reset_calls=True)
    held.store(connect(folders_in="projects/*").fetch(BOX, {}, held.known))
    assert len(held.given) == server.calls()["get"] == 10
    assert len(held.skipped) == 20
    assert len(fetch_all(connect(folders_out="projects/*"), BOX).given) == 20


# --- trouble


def _stopped(connector: Any, error: type[Exception], held: Taken) -> Exception:
    """Takes what comes before the error, as the engine does."""
    with pytest.raises(error) as raised:
        held.store(connector.fetch(BOX, held.state, held.known))
    return raised.value


@pytest.mark.parametrize("call", ["profile", "labels", "list", "get", "history"])
@pytest.mark.parametrize(
    "refusal", [RATE, {"status": 429}, {"status": 503, "headers": {"Retry-After": "7"}}], ids=["403", "429", "503"]
)
def test_throttled_at_every_call(server: GoogleServer, connect: Open, call: str, refusal: dict[str, Any]) -> None:
    """What was fetched before is given, what was not comes after the pause, and nothing comes twice."""
    held = fetch_all(connect(), BOX) if call == "history" else Taken()
    trouble = {"match": f"^{call} ", "times": 1, "after": 8 if call == "get" else 0, **refusal}
    server.tell(troubles=[trouble], reset_calls=True)
    error = _stopped(connect(parallel=2), Throttled, held)
    assert isinstance(error, Throttled)
    assert error.retry_after_seconds == (7.0 if "headers" in refusal else 1.0)
    held.store(connect().fetch(BOX, held.state, held.known))
    assert len(held.given) == len(set(held.given)) == 30
    if call == "get":
        assert server.calls()["get"] == 31, "the one that was refused, and no other, was asked for twice"


def test_throttled_while_users_are_listed(server: GoogleServer, connect: Open) -> None:
    server.tell(troubles=[{"match": "^users ", "times": 1, **RATE}])
    with pytest.raises(Throttled):
        list(connect().mailboxes())


def test_a_quota_that_is_used_up_is_named_to_the_limiter(server: GoogleServer, connect: Open) -> None:
    class Limited(QuietContext):
        backed_off: str = ""

        def back_off(self, quota: Any, seconds: float | None = None) -> float:
            self.backed_off = quota.name
            return 1.0

    refusals: list[tuple[dict[str, Any], str]] = [
        (RATE, f"google:archive-test:{ALICE}"),
        ({"status": 429}, f"google:archive-test:{ALICE}"),
        ({"status": 403, "reason": "rateLimitExceeded", "said": "Rate Limit Exceeded"}, "google:archive-test"),
    ]
    for refusal, name in refusals:
        server.tell(troubles=[{"match": "^get ", "times": 1, **refusal}])
        context = Limited()
        _stopped(connect(context), Throttled, Taken())
        assert context.backed_off == name


def test_tokens_that_expire_in_the_middle_of_a_page_are_renewed_once(server: GoogleServer, connect: Open) -> None:
    server.tell(troubles=[{"match": "^get ", "after": 5, "times": 1, "forget_tokens": True}], reset_calls=True)
    assert len(fetch_all(connect(), BOX).given) == 30
    assert server.calls()["token"] <= 3, "eight at once were refused, and one asked for a new one"


def test_a_token_that_is_refused_again_is_an_end(server: GoogleServer, connect: Open) -> None:
    server.tell(troubles=[{"match": "^list ", "status": 401}])
    _stopped(connect(), AuthFailed, Taken())
    assert server.calls()["list"] == 2


def test_access_that_is_taken_away_makes_no_dead_letters(server: GoogleServer, connect: Open) -> None:
    server.tell(
        troubles=[{"match": "^get ", "after": 4, "status": 403, "reason": "domainPolicy", "said": "Disabled by policy"}]
    )
    held = Taken()
    _stopped(connect(), AuthFailed, held)
    assert held.failed == set()


def test_a_message_that_can_t_be_given_is_a_dead_letter(server: GoogleServer, connect: Open) -> None:
    server.tell(troubles=[{"match": f"^get .*{key(7)}", "status": 500, "said": "Backend Error"}])
    batches = list(connect().fetch(BOX, {}, nothing))
    (failed,) = [failed for batch in batches for failed in batch.failed]
    assert (failed.provider_key, failed.reason) == (key(7), "the Gmail API responded with HTTP 500: Backend Error")
    assert len(Taken().store(batches).given) == 29


def test_a_server_in_trouble_makes_no_dead_letters_of_everything(server: GoogleServer, connect: Open) -> None:
    server.tell(troubles=[{"match": "^get ", "status": 500}])
    held = Taken()
    _stopped(connect(parallel=2), Unavailable, held)
    assert len(held.failed) < 5
    server.tell(troubles=[])
    held.store(connect().fetch(BOX, held.state, held.known))
    assert held.keys == {key(number) for number in range(30)}


def test_connections_that_break_are_tried_again(server: GoogleServer, connect: Open) -> None:
    server.tell(troubles=[{"match": "^(get|list) ", "drop": True, "times": 2, "after": 3}])
    assert len(fetch_all(connect(), BOX).given) == 30


def test_a_place_in_a_listing_that_is_not_valid_any_more(server: GoogleServer, connect: Open) -> None:
    held = Taken()
    server.tell(troubles=[{"match": "^get ", "after": 4, **RATE}])
    _stopped(connect(), Throttled, held)
    page = held.state["google page"]
    state = {**held.state, "google page": {**page, "todo": [], "next": "rubbish"}}
    with pytest.raises(StateLost, match="no longer valid"):
        list(connect().fetch(BOX, state, nothing))


def test_a_job_that_has_to_stop_gives_what_it_has(server: GoogleServer, connect: Open) -> None:
    class Stops(QuietContext):
        def wait_for_turn(self, cost: float = 1.0, quotas: Any = (), limit: int = 1) -> int:
            self.turns += 1
            if self.turns > 12:
                raise Unavailable("the worker is stopping")
            return 1

    held = Taken()
    _stopped(connect(Stops()), Unavailable, held)
    assert held.given
    held.store(connect().fetch(BOX, held.state, held.known))
    assert len(held.given) == len(set(held.given)) == 30


def test_the_proxy_of_the_environment_is_used(server: GoogleServer, connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens where Gmail is said to be; the server answers in its place, as a proxy."""
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    elsewhere = connect(gmail_url="http://localhost:9")
    with pytest.raises(Unavailable, match="localhost: Connection refused"):
        list(elsewhere.refetch(BOX, [key(1)]))
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//user:pass@"))
    assert Taken().store(connect(gmail_url="http://localhost:9").refetch(BOX, [key(1)])).given == [key(1)]


def test_150_megabytes_in_little_memory(server: GoogleServer, connect: Open) -> None:
    start, blocks = "Subject: large\r\n\r\n..", 150 * (1 << 20) // len(BLOCK)
    start += "." * (-len(start) % 3)
    change = {"in": ALICE, "what": "add", "id": key(200), "raw": start, "labels": ["INBOX"], "blocks": blocks}
    server.tell(change=[change])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for batch in connect().refetch(BOX, [key(200)]):
        (message,) = batch.messages
        assert message.path is not None
        assert message.path.stat().st_size == len(start) + blocks * len(BLOCK)
        with message.path.open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == large_hash(start.encode(), blocks)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 40 << 10, f"{grown >> 10} MiB"
    assert hash_of(message)
