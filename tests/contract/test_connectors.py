"""What every connector has to do, whatever it connects to."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from connectors.base import BATCH_BYTES, BATCH_MESSAGES, SPOOL_BYTES, Batch, Connector, MailboxRef
from connectors.errors import ConnectorError, Unavailable
from tests.contract.subject import Subject, Taken, fetch_all, nothing
from tests.support.waiting import DEADLINE_SECONDS


def _boxes(subject: Subject) -> list[MailboxRef]:
    boxes = list(subject.open().mailboxes())
    assert boxes, "a source without mailboxes proves nothing"
    return boxes


def _widest(subject: Subject) -> tuple[MailboxRef, list[Batch]]:
    """The mailbox that comes in most batches."""
    connector = subject.open()
    found = [(box, list(connector.fetch(box, {}, nothing))) for box in _boxes(subject)]
    box, batches = max(found, key=lambda pair: len(pair[1]))
    assert len(batches) > 2, "a mailbox that comes at once proves nothing"
    return box, batches


_WIDEST: dict[str, int] = {}


@pytest.fixture
def widest(subject: Subject, request: pytest.FixtureRequest) -> MailboxRef:
    """The mailbox that comes in most batches, found once for each subject: that reads all its mail."""
    boxes, name = _boxes(subject), request.node.callspec.params["subject"]
    if name not in _WIDEST:
        _WIDEST[name] = boxes.index(_widest(subject)[0])
    return boxes[_WIDEST[name]]


def test_credentials_that_are_right_pass(subject: Subject) -> None:
    subject.open().check()


def test_addresses_are_listed_the_same_each_time(subject: Subject) -> None:
    assert _boxes(subject) == _boxes(subject)


def test_same_messages_in_same_bytes_out(subject: Subject) -> None:
    connector = subject.open()
    for box in _boxes(subject):
        taken = fetch_all(connector, box)
        skipped = Taken().store(connector.refetch(box, taken.skipped))
        assert Counter((taken.hashes | skipped.hashes).values()) == subject.contents(box.address)


def test_keys_are_unique_in_a_mailbox_and_stay(subject: Subject) -> None:
    for box in _boxes(subject):
        first = fetch_all(subject.open(), box)
        assert len(first.given) == len(set(first.given))
        assert not set(first.given) & first.skipped
        assert not set(first.given) & first.failed
        assert fetch_all(subject.open(), box) == first


def test_batches_keep_the_limits(subject: Subject) -> None:
    connector = subject.open()
    for box in _boxes(subject):
        for batch in connector.fetch(box, {}, nothing):
            in_memory = [len(message.data) for message in batch.messages if message.data is not None]
            spooled = [message.path.stat().st_size for message in batch.messages if message.path is not None]
            assert len(batch.messages) <= BATCH_MESSAGES
            assert max(in_memory, default=0) <= SPOOL_BYTES
            assert min(spooled, default=SPOOL_BYTES + 1) > SPOOL_BYTES
            assert sum(in_memory) + sum(spooled) <= BATCH_BYTES or len(batch.messages) == 1
            Taken().store([batch])


def test_messages_say_where_they_lie(subject: Subject) -> None:
    connector = subject.open()
    for box in _boxes(subject):
        folders = set(fetch_all(connector, box).listed)
        for batch in connector.fetch(box, {}, nothing):
            for message in batch.messages:
                assert message.folder in folders
                assert message.received_at is None or message.received_at.tzinfo is not None
            Taken().store([batch])


def test_resumes_at_each_batch_with_exactly_the_rest(subject: Subject) -> None:
    box, batches = _widest(subject)
    connector = subject.open()
    whole = fetch_all(connector, box)
    held = Taken()
    for batch in batches:
        before = held.keys
        held.store([batch])
        assert held.keys >= before
        rest = fetch_all(subject.open(), box, json.loads(json.dumps(held.state)))
        assert not rest.keys & held.keys
        assert rest.keys | held.keys == whole.keys
        assert held.hashes | rest.hashes == whole.hashes


def test_second_run_downloads_nothing(subject: Subject) -> None:
    for box in _boxes(subject):
        state = fetch_all(subject.open(), box).state
        before = subject.downloads()
        again = fetch_all(subject.open(), box, state)
        assert again.given == []
        assert subject.downloads() == before


def test_what_is_known_is_not_downloaded(subject: Subject) -> None:
    """The state was lost, the archive was not."""
    for box in _boxes(subject):
        held = fetch_all(subject.open(), box)
        before = subject.downloads()
        again = Taken().store(subject.open().fetch(box, {}, held.known))
        assert again.given == []
        assert again.listed == held.listed
        assert fetch_all(subject.open(), box, again.state).given == [], "its state is as good as the lost one"
        assert subject.downloads() == before


def test_what_is_not_known_is_downloaded_among_what_is(subject: Subject, widest: MailboxRef) -> None:
    held = fetch_all(subject.open(), widest)
    lost = set(held.given[1::7])
    before = subject.downloads()
    again = Taken().store(subject.open().fetch(widest, {}, lambda keys: held.known(keys) - lost))
    assert set(again.given) == lost
    assert subject.downloads() == before + len(lost)


def test_listing_is_what_was_given_skipped_or_failed(subject: Subject) -> None:
    for box in _boxes(subject):
        taken = fetch_all(subject.open(), box)
        assert set().union(*taken.listed.values()) == taken.keys
        assert sum(map(len, taken.listed.values())) == len(taken.keys)


def test_refetch_gives_what_was_asked_for_and_no_more(subject: Subject, widest: MailboxRef) -> None:
    held = fetch_all(subject.open(), widest)
    asked = held.given[::5]
    again = Taken().store(subject.open().refetch(widest, asked))
    assert sorted(again.given) == sorted(asked)
    assert again.hashes == {key: held.hashes[key] for key in asked}
    assert again.state == {}, "a refetch moves no cursor"
    assert Taken().store(subject.open().refetch(widest, [])).keys == set()


def test_refetch_of_what_is_not_there_names_it(subject: Subject, widest: MailboxRef) -> None:
    again = Taken().store(subject.open().refetch(widest, ["no such key"]))
    assert again.given == []
    assert again.failed == {"no such key"}


def test_states_are_json_and_flat(subject: Subject) -> None:
    for box in _boxes(subject):
        for batch in subject.open().fetch(box, {}, nothing):
            assert json.loads(json.dumps(dict(batch.state))) == batch.state
            assert all(isinstance(key, str) for key in batch.state)
            Taken().store([batch])


def test_state_of_another_time_is_no_trouble(subject: Subject, widest: MailboxRef) -> None:
    """What a connector can't read, it begins anew, or says that it is lost."""
    whole = fetch_all(subject.open(), widest)
    everything: list[Any] = [None, 7, "x", [], {}, {"position": "far"}]
    fetched = Taken()
    for rubbish in everything:
        try:
            again = subject.open().fetch(widest, dict.fromkeys(whole.state, rubbish), fetched.known)
            listed = Taken().store(again)
        except ConnectorError:
            continue
        assert listed.listed == whole.listed
        fetched = fetched if fetched.given else listed  # once whole; the other states need not bring all bytes again
        assert fetched.keys == whole.keys


def test_close_ends_a_blocked_fetch(subject: Subject) -> None:
    if not subject.is_live:
        pytest.skip("there is no connection that could block")
    connector = subject.open_blocked()
    box = next(iter(connector.mailboxes()))
    began = threading.Event()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            for _ in connector.fetch(box, {}, nothing):
                began.set()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert began.wait(DEADLINE_SECONDS)
    thread.join(0.1)
    assert thread.is_alive(), "it does not block"
    connector.close()
    thread.join(DEADLINE_SECONDS)
    assert [type(error) for error in raised] == [Unavailable]


@pytest.mark.parametrize(
    "use",
    [
        lambda connector, box: connector.check(),
        lambda connector, box: list(connector.mailboxes()),
        lambda connector, box: list(connector.fetch(box, {}, nothing)),
        lambda connector, box: list(connector.refetch(box, ["a key"])),
    ],
    ids=["check", "mailboxes", "fetch", "refetch"],
)
def test_a_closed_connector_is_unavailable(subject: Subject, use: Callable[[Connector, MailboxRef], object]) -> None:
    connector = subject.open()
    box = next(iter(connector.mailboxes()))
    connector.close()
    connector.close()
    with pytest.raises(Unavailable):
        use(connector, box)


def test_a_mailbox_that_is_not_there_is_an_error_of_ours(subject: Subject) -> None:
    connector = subject.open()
    nobody = MailboxRef("nobody@nowhere.example")
    with pytest.raises(ConnectorError):
        list(connector.fetch(nobody, {}, nothing))
    with pytest.raises(ConnectorError):
        list(connector.refetch(nobody, ["a key"]))


def test_letter_case_of_an_address_does_not_matter(subject: Subject, widest: MailboxRef) -> None:
    shouted = MailboxRef(widest.address.upper(), widest.display_name, widest.provider_id)
    assert fetch_all(subject.open(), shouted) == fetch_all(subject.open(), widest)
