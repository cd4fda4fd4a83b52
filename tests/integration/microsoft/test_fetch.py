"""What happens in a mailbox between two looks at it, and on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pytest

from connectors.errors import AuthFailed, Throttled, Unavailable
from tests.integration.microsoft.conftest import Box, Held
from tests.support.graph_server.running import GraphServer


def test_folders_flags_and_categories_arrive_as_folders_flags_and_labels(box: Box) -> None:
    number = box.do("add", "id-inbox", is_read=True, categories=["Blue", "Client A"])
    held = box.sync()
    assert set(held.folders.values()) == {"Posteingang", "Gesendete Elemente", "Projects"}
    key = f"immutable-{number}"
    assert (held.folders[key], held.flags[key], held.labels[key]) == ("Posteingang", ("\\Seen",), ("Blue", "Client A"))
    assert box.contexts[0].total == 31
    assert box.contexts[0].seen == 31


def test_the_newest_mail_of_the_inbox_comes_first(box: Box) -> None:
    messages = [message for batch in box.connect().fetch(box.ref, {}, lambda _: set()) for message in batch.messages]
    inbox = [message.received_at for message in messages if message.folder == "Posteingang"]
    assert messages[0].folder == "Posteingang"
    assert inbox == sorted(inbox, reverse=True, key=lambda at: (at is not None, at))


def test_moved_deleted_read_and_restored_messages_are_followed(box: Box) -> None:
    held = box.sync()
    before = dict(held.hashes)
    assert before
    downloads = box.server.calls()["downloads"]
    box.do("move", 1, "id-sentitems")
    box.do("move", 2, "id-inbox")
    box.do("delete", 3)
    box.do("change", 4, is_read=True, categories=["Red"])
    new = box.do("add", "id-inbox")
    box.sync()
    assert held.folders["immutable-1"] == "Gesendete Elemente"
    assert held.folders["immutable-2"] == "Posteingang"
    assert held.gone == {"immutable-3"}
    assert (held.flags["immutable-4"], held.labels["immutable-4"]) == (("\\Seen",), ("Red",))
    assert held.hashes.keys() - before.keys() == {f"immutable-{new}"}
    assert box.server.calls()["downloads"] == downloads + 1


def test_a_message_in_the_bin_was_moved_there_and_comes_back(box: Box) -> None:
    """Deleted Items is not archived, and yet what we hold is followed into it."""
    held = box.sync()
    box.do("move", 5, "id-deleteditems")
    box.sync()
    assert held.folders["immutable-5"] == "Gelöschte Elemente"
    assert held.gone == set()
    box.do("move", 5, "id-inbox")
    box.sync()
    assert held.folders["immutable-5"] == "Posteingang"


def test_order_of_folders_does_not_make_a_move_a_deletion(new_box: Callable[[], Box]) -> None:
    for source, target in (("id-inbox", "id-sentitems"), ("id-sentitems", "id-inbox"), ("id-inbox", "id-junkemail")):
        box = new_box()
        number = box.do("add", source)
        held = box.sync()
        box.do("move", number, target)
        box.sync()
        assert held.gone == set()
        assert held.folders[f"immutable-{number}"] != ""


def test_unwanted_folders_are_known_by_their_well_known_names(box: Box) -> None:
    inside = box.do("add_folder", "Alt", parent="id-deleteditems")
    numbers = [box.do("add", folder) for folder in ("id-junkemail", "id-drafts", "id-deleteditems", inside)]
    held = box.sync()
    rules = [held.reasons[f"immutable-{number}"] for number in numbers]
    assert rules == ["include_spam: no", "include_drafts: no", "include_trash: no", "include_trash: no"]
    box.sync(include_spam=True, include_drafts=True, include_trash=True)
    assert {f"immutable-{number}" for number in numbers} <= held.hashes.keys()
    assert held.folders[f"immutable-{numbers[3]}"] == "Gelöschte Elemente/Alt"


def test_hidden_folders_by_choice(box: Box) -> None:
    number = box.do("add", box.do("add_folder", "Hidden", hidden=True))
    assert f"immutable-{number}" not in box.sync().hashes
    assert box.sync(include_hidden=True).folders[f"immutable-{number}"] == "Hidden"


def test_recoverable_items_by_choice(box: Box) -> None:
    box.do("add_folder", "Deletions", "outside", "id-recoverableitemsdeletions")
    number = box.do("add", "id-recoverableitemsdeletions")
    other = box.do("add", "id-inbox")
    assert f"immutable-{number}" not in box.sync().hashes
    held = box.sync(include_recoverable=True)
    assert held.folders[f"immutable-{number}"] == "Recoverable Items"
    box.do("move", other, "id-recoverableitemsdeletions")
    assert box.sync(include_recoverable=True).folders[f"immutable-{other}"] == "Recoverable Items"
    after = box.sync()
    assert not after.gone, "what is no longer wanted is not gone"


def test_a_mailbox_without_recoverable_items_is_no_error(box: Box) -> None:
    assert len(box.sync(include_recoverable=True).hashes) == 30


def test_a_draft_that_was_edited_is_fetched_again(box: Box) -> None:
    number = box.do("add", "id-drafts", is_draft=True)
    held = box.sync(include_drafts=True)
    first = held.hashes[f"immutable-{number}"]
    assert "\\Draft" in held.flags[f"immutable-{number}"]
    box.do("change", number, edition=1)
    assert box.sync(include_drafts=True).hashes[f"immutable-{number}"] != first


def test_a_renamed_folder_keeps_its_state_and_its_copies_learn_the_name(box: Box) -> None:
    folder = box.do("add_folder", "Old name")
    inner = box.do("add_folder", "Inner", parent=folder)
    numbers = [box.do("add", where) for where in (folder, folder, inner)]
    held = box.sync()
    places = {key: value["link"] for key, value in held.state.items() if ":messages:" in key}
    downloads = box.server.calls()["downloads"]
    box.do("rename_folder", folder, "New/name")
    box.sync()
    assert [held.folders[f"immutable-{number}"] for number in numbers] == ["New∕name", "New∕name", "New∕name/Inner"]
    assert {key: value["link"] for key, value in held.state.items() if ":messages:" in key} == places
    assert box.server.calls()["downloads"] == downloads
    assert held.listed["Old name"] == set()
    assert len(held.listed["New∕name"]) == 2
    before = box.server.calls()
    box.sync()
    assert box.server.calls().get("ids", 0) == before["ids"], "told once"


def test_a_folder_renamed_in_the_middle_goes_on_where_it_was(box: Box) -> None:
    folder = box.do("add_folder", "Big")
    numbers = [box.do("add", folder) for _ in range(20)]
    batches: Any = box.connect().fetch(box.ref, {}, box.held.known)
    while not {f"immutable-{number}" for number in numbers} & box.held.hashes.keys():
        box.held.store([next(batches)])
    batches.close()
    downloads = len(box.held.hashes)
    box.do("rename_folder", folder, "Grown")
    held = box.sync()
    assert {held.folders[f"immutable-{number}"] for number in numbers} == {"Grown"}
    assert box.server.calls()["downloads"] <= len(held.hashes) + 8 + (len(held.hashes) - downloads)
    assert sorted(held.given) == sorted(set(held.given)), "nothing was given twice"


def test_a_removed_folder_is_forgotten(box: Box) -> None:
    folder = box.do("add_folder", "Short-lived")
    box.do("add", folder)
    held = box.sync()
    assert any(folder in key for key in held.state)
    box.do("remove_folder", folder)
    box.sync()
    assert not any(folder in key for key in held.state)
    assert held.listed["Short-lived"] == set(), "an empty listing: what we hold of it is gone there"


def test_lost_tokens_cost_ids_and_no_downloads(box: Box) -> None:
    held = box.sync()
    state = dict(held.state)
    downloads = box.server.calls()["downloads"]
    box.do("move", 6, "id-inbox")
    new = box.do("add", "id-inbox")
    box.do("forget")
    box.sync()
    assert held.state.keys() == state.keys()
    assert held.state != state
    assert held.folders["immutable-6"] == "Posteingang"
    assert f"immutable-{new}" in held.hashes
    assert box.server.calls()["downloads"] == downloads + 1


def test_what_vanished_while_the_tokens_were_lost_is_not_in_the_whole_listing(box: Box) -> None:
    """The engine takes what it holds of a folder, and is not listed, for gone."""
    held = box.sync()
    box.do("delete", 1)
    box.do("forget")
    batches = list(box.connect().fetch(box.ref, held.state, held.known))
    whole = [listing for batch in batches for listing in batch.listings if listing.is_whole]
    held.store(batches)
    (inbox,) = (listing for listing in whole if listing.folder == "Posteingang")
    assert sorted(inbox.provider_keys) == sorted(f"immutable-{number}" for number in range(4, 31, 3))
    assert held.listed["Posteingang"] == set(inbox.provider_keys)


def test_deleted_between_list_and_get_is_noted(box: Box) -> None:
    """The page is listed; by the time its messages are asked for, one is gone."""
    box.server.control(trouble={"latency": 0.0})
    connector = box.connect()
    gone: list[str] = []

    def known(keys: Collection[str]) -> set[str]:
        if not gone:
            gone.append(next(iter(keys)))
            box.do("delete", int(gone[0].partition("-")[2]))
        return set()

    held = box.held.store(connector.fetch(box.ref, {}, known))
    assert held.reasons[gone[0]] == "not found at the source", "the engine asks once more"
    assert gone[0] not in held.hashes
    assert len(held.hashes) == 29


def test_one_message_that_graph_cannot_give_is_a_dead_letter_and_heals(box: Box) -> None:
    box.do("change", 7, broken=500)
    held = box.sync()
    assert held.failed == {"immutable-7"}
    assert "ErrorMimeContentConversionFailed" in held.reasons["immutable-7"]
    assert len(held.hashes) == 29
    box.do("change", 7, broken=0)
    assert Held().store(box.connect().refetch(box.ref, ["immutable-7"])).folders == {"immutable-7": "Posteingang"}


def test_token_expires_in_the_middle_of_a_page(box: Box) -> None:
    box.server.control(trouble={"token_calls": 2})
    held = box.sync()
    assert len(held.hashes) == 30
    assert held.failed == set()
    assert box.server.calls()["refused tokens"] >= 5


def test_a_token_that_is_refused_again_and_again_is_an_auth_failure(box: Box) -> None:
    box.server.control(trouble={"fail": {"folders": [401, "InvalidAuthenticationToken", 99]}})
    with pytest.raises(AuthFailed, match="rejected the token"):
        box.sync()


def test_throttling_at_every_call_loses_nothing_and_is_obeyed_to_the_second(box: Box) -> None:
    box.server.control(trouble={"throttle_each": 0.1})
    held, pauses = box.held, []
    while len(held.listed) < 3 or len(held.hashes) < 30:
        try:
            box.sync()
        except Throttled as pause:
            pauses.append(pause.retry_after_seconds)
            time.sleep(pause.retry_after_seconds)  # as the engine does, with the place given to others
    seen = box.server.seen()
    assert len(held.given) == 30, "nothing was given twice"
    assert len(pauses) >= 8
    assert set(pauses) == {0.1}
    assert seen["violations"] == {}


def test_no_more_than_four_requests_at_once(box: Box) -> None:
    box.server.control(trouble={"latency": 0.02})
    for _ in range(40):
        box.do("add", "id-inbox")
    box.sync()
    seen = box.server.seen()
    assert seen["most_at_once"] == 4
    assert seen["violations"] == {}


def test_calls_for_unchanged_folders(box: Box) -> None:
    box.sync()
    before = box.server.calls()
    box.sync()
    after = box.server.calls()
    spent = {kind: after[kind] - before.get(kind, 0) for kind in after if after[kind] != before.get(kind, 0)}
    folders = 6
    assert spent == {"batch": 1, "sub-requests": folders + 1, f"counted user-{box.address}": folders + 1}


def test_a_link_to_another_server_is_not_followed(box: Box) -> None:
    held = box.sync()
    tree = next(key for key in held.state if key.endswith(":tree"))
    held.state[tree] = {**held.state[tree], "link": "https://evil.example/v1.0/users/x/mailFolders/delta"}
    with pytest.raises(Unavailable, match="another server"):
        box.sync()


def test_a_stop_ends_between_messages_with_what_is_there(box: Box) -> None:
    box.do("change", 10, attached=True)  # so that it comes by itself
    box.server.control(trouble={"hang_at": "/immutable-10/"})
    connector = box.connect()
    batches = connector.fetch(box.ref, {}, box.held.known)
    box.contexts[0].stop = True
    with pytest.raises(Unavailable, match="stopping"):
        box.held.store(batches)
    stored = list(box.held.given)
    assert stored, "what had arrived is not thrown away"
    assert "immutable-10" not in stored
    box.server.control(trouble={})
    box.sync()
    assert "immutable-10" in box.held.given
    assert len(set(box.held.given)) == len(box.held.given), "and nothing is downloaded twice"


@dataclass(frozen=True, slots=True)
class _Case:
    kind: str
    status: int
    code: str


@pytest.mark.parametrize(
    "case",
    [_Case("folders", 503, "ServiceNotAvailable"), _Case("batch", 502, ""), _Case("value", 504, "UnknownError")],
    ids=lambda case: case.kind,
)
def test_a_server_that_fails_is_unavailable_and_then_works(box: Box, case: _Case) -> None:
    box.server.control(trouble={"fail": {case.kind: [case.status, case.code, 99]}})
    with pytest.raises(Unavailable):
        box.sync()
    box.server.control(trouble={"fail": {case.kind: [case.status, case.code, 1]}})
    assert len(box.sync().hashes) == 30, "once is not worth a word"


def test_a_server_without_batches_is_asked_for_each_thing(box: Box) -> None:
    box.server.control(trouble={"fail": {"batch": [404, "", 99]}})
    held = box.sync()
    box.do("move", 1, "id-sentitems")
    new = box.do("add", "id-inbox")
    box.sync()
    assert len(held.given) == 31
    assert held.folders["immutable-1"] == "Gesendete Elemente"
    assert held.folders[f"immutable-{new}"] == "Posteingang"
    again = Held().store(box.connect().refetch(box.ref, held.given))
    assert again.hashes == held.hashes


def test_a_mailbox_that_is_no_more(graph: GraphServer, box: Box) -> None:
    box.server.control(trouble={"fail": {"folders": [404, "MailboxNotEnabledForRESTAPI", 99]}})
    with pytest.raises(Unavailable, match="no mailbox in the cloud"):
        box.sync()
