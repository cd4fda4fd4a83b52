"""Whose mailboxes are archived, and whose are not, and why."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.errors import AuthFailed, Throttled, Unavailable
from tests.contract.microsoft import KeepingContext
from tests.integration.microsoft.conftest import PEOPLE, connect
from tests.support.graph_server.running import GraphServer


def listed(graph: GraphServer, **settings: Any) -> tuple[set[str], dict[str, str]]:
    """The addresses that are archived, and the others with their reasons."""
    context = KeepingContext()
    connector = connect(graph, context, **settings)
    try:
        return {box.address for box in connector.mailboxes()}, context.left_out
    finally:
        connector.close()


def test_all_pages_and_the_others_are_listed_as_what_they_are(graph: GraphServer) -> None:
    inside, outside = listed(graph)
    assert inside == {f"user{number}@contoso.example" for number in range(PEOPLE)} | {"boss@contoso.example"}
    assert outside == {
        "guest@elsewhere.example": "a guest",
        "left@contoso.example": "disabled",
        "robot@contoso.example": "no mailbox",
        "sync_1@contoso.example": "no mailbox",
        "info@contoso.example": "disabled",
    }
    assert 7 <= graph.calls()["users"] <= 9, "a page of seven for each call; one that breaks off is asked for again"


def test_shared_mailboxes_by_choice(graph: GraphServer) -> None:
    inside, outside = listed(graph, include_shared=True)
    assert "info@contoso.example" in inside
    assert outside["left@contoso.example"] == "disabled"
    assert outside["robot@contoso.example"] == "no mailbox"


def test_shared_mailboxes_are_not_left_out_by_an_outage(graph: GraphServer) -> None:
    graph.control(trouble={"fail": {"mailboxSettings": [503, "ServiceUnavailable", 99]}})
    with pytest.raises(Unavailable, match="503"):
        listed(graph, include_shared=True)


def test_by_address_and_by_group(graph: GraphServer) -> None:
    inside, outside = listed(graph, mailboxes_in="boss@*, user1@*", groups_out="staff")
    assert inside == {"boss@contoso.example"}
    assert outside["user1@contoso.example"] == "groups_out: staff"
    assert outside["user2@contoso.example"] == "mailboxes_in: boss@*, user1@*"
    assert listed(graph, groups_in="board")[0] == {"boss@contoso.example"}
    with pytest.raises(Unavailable, match="no group named nobody's"):
        listed(graph, groups_in="nobody's")


def test_archives_by_choice_are_mailboxes_of_their_own(graph: GraphServer) -> None:
    connector = connect(graph, mailboxes_in="boss@*", include_archives=True)
    boxes = list(connector.mailboxes())
    assert [box.address for box in boxes] == ["boss@contoso.example", "boss+archive@contoso.example"]
    found = [message for batch in connector.fetch(boxes[1], {}, lambda _: set()) for message in batch.messages]
    connector.close()
    assert len(found) == 30
    assert b"old.boss@contoso.example" in (found[0].data or b"")


def test_throttled_while_listing(graph: GraphServer) -> None:
    graph.control(trouble={"throttle_each": 7})
    with pytest.raises(Throttled) as pause:
        listed(graph)
    assert pause.value.retry_after_seconds == 7


@pytest.mark.parametrize(
    ("settings", "kind", "permission"),
    [
        ({}, "users", "User.Read.All"),
        ({"groups_in": "staff"}, "groups", "GroupMember.Read.All"),
    ],
)
def test_a_missing_permission_is_named(graph: GraphServer, settings: dict[str, Any], kind: str, permission: str) -> None:
    graph.control(roles=["Calendars.Read"], trouble={"fail": {kind: [403, "Authorization_RequestDenied", 99]}})
    graph.control(entra={})
    connector = connect(graph, **settings)
    connector._tokens.renew()
    with pytest.raises(AuthFailed, match=f"lacks the permission {permission}.*It has: Calendars.Read"):
        list(connector.mailboxes())
    connector.close()
