"""Microsoft 365 groups: Graph shows their mail as threads of posts (learn.microsoft.com/graph/api/resources/post)."""

from __future__ import annotations

import base64
import email
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.policy import default
from typing import Any

import pytest

from connectors.base import RawMessage
from connectors.errors import AuthFailed, Throttled, Unavailable
from connectors.microsoft import MicrosoftConnector
from connectors.microsoft.group_post import GroupThread, build_post
from tests.contract.microsoft import KeepingContext
from tests.contract.subject import Taken, nothing
from tests.integration.microsoft import conftest
from tests.support.graph_server.running import GraphServer

ROLES = ["Mail.Read", "User.Read.All", "GroupMember.Read.All", "MailboxSettings.Read", "Group-Conversation.Read.All"]


def post(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"post-{number}",
        "receivedDateTime": f"2025-02-{number % 27 + 1:02}T10:00:00Z",
        "hasAttachments": bool(more.get("attachments")),
        "from": {"emailAddress": {"name": "Ann Müller", "address": "ann@contoso.example"}},
        "body": {"contentType": "html", "content": f"<p>Post {number}: grüße</p>"},
        "attachments": [],
        **more,
    }


def thread(number: int, *posts: dict[str, Any]) -> dict[str, Any]:
    last = max(one["receivedDateTime"] for one in posts)
    return {"id": f"thread-{number}", "topic": f"Topic {number}", "lastDeliveredDateTime": last, "posts": list(posts)}


FILE = {
    "@odata.type": "#microsoft.graph.fileAttachment",
    "name": "Plan ä.txt",
    "contentType": "text/plain",
    "contentBytes": base64.b64encode(b"the plan\r\n").decode(),
}
LINK = {"@odata.type": "#microsoft.graph.referenceAttachment", "name": "in the cloud.docx"}


@pytest.fixture
def team(graph: GraphServer) -> Iterator[list[dict[str, Any]]]:
    threads = [thread(1, post(1), post(2)), thread(2, post(3, attachments=[FILE, LINK]))]
    group = {"id": "g1", "displayName": "Team", "mail": "Team@contoso.example", "threads": threads}
    graph.control(unified=[group], roles=ROLES)
    yield threads
    graph.control(unified=[])


Connect = Callable[..., MicrosoftConnector]


@pytest.fixture
def connect(graph: GraphServer) -> Iterator[Connect]:
    """Closes what was opened."""
    opened: list[MicrosoftConnector] = []

    def open_one(context: KeepingContext | None = None, **settings: Any) -> MicrosoftConnector:
        opened.append(conftest.connect(graph, context, **settings))
        return opened[-1]

    yield open_one
    for connector in opened:
        connector.close()


def group_of(connector: MicrosoftConnector) -> Any:
    return next(box for box in connector.mailboxes() if box.address == "team@contoso.example")


def parsed(message: RawMessage) -> EmailMessage:
    assert message.data is not None
    found = email.message_from_bytes(message.data, policy=default)
    assert isinstance(found, EmailMessage)
    return found


def test_groups_by_choice(graph: GraphServer, connect: Connect, team: list[dict[str, Any]]) -> None:
    assert "team@contoso.example" not in {box.address for box in connect().mailboxes()}
    connector = connect(include_groups=True)
    connector.check()
    assert group_of(connector).provider_id == "group:g1"
    context = KeepingContext()
    list(connect(context, include_groups=True, mailboxes_out="team@*").mailboxes())
    assert context.left_out["team@contoso.example"] == "mailboxes_out: team@*"


def test_each_post_is_a_message_with_its_files(graph: GraphServer, connect: Connect, team: list[dict[str, Any]]) -> None:
    connector = connect(include_groups=True)
    batches = list(connector.fetch(group_of(connector), {}, nothing))
    messages = [message for batch in batches for message in batch.messages]
    assert [message.provider_key for message in messages] == [
        "thread-1␟post-1",
        "thread-1␟post-2",
        "thread-2␟post-3",
    ]
    last = parsed(messages[-1])
    assert (last["Subject"], last["To"], last["From"]) == (
        "Topic 2",
        "Team <team@contoso.example>",
        "Ann Müller <ann@contoso.example>",
    )
    body = last.get_body(("html",))
    assert body is not None
    assert "Post 3: grüße" in body.get_content()
    (file,) = last.iter_attachments()
    assert (file.get_filename(), file.get_payload(decode=True)) == ("Plan ä.txt", b"the plan\r\n")
    assert last["X-Archiver-Left-Out"] == "in the cloud.docx"
    assert last["X-Archiver-Converted-From"] == "Microsoft 365 group post"
    first, second = (parsed(message) for message in messages[:2])
    assert first["References"] == second["References"] != last["References"]
    assert first["Message-ID"] != second["Message-ID"]


def test_later_only_new_posts_are_read(graph: GraphServer, connect: Connect, team: list[dict[str, Any]]) -> None:
    connector = connect(include_groups=True)
    box = group_of(connector)
    taken = Taken().store(connector.fetch(box, {}, nothing))
    assert taken.listed == {"Conversations": set(taken.hashes)}
    assert Taken().store(connector.fetch(box, taken.state, taken.known)).given == []
    newer = [team[0], thread(2, *team[1]["posts"], post(9))]
    graph.control(unified=[{"id": "g1", "displayName": "Team", "mail": "Team@contoso.example", "threads": newer}])
    assert Taken().store(connector.fetch(box, taken.state, taken.known)).given == ["thread-2␟post-9"]


def test_the_same_post_gives_the_same_bytes_and_can_be_fetched_alone(
    graph: GraphServer, connect: Connect, team: list[dict[str, Any]]
) -> None:
    connector = connect(include_groups=True)
    box = group_of(connector)
    taken = Taken().store(connector.fetch(box, {}, nothing))
    again = Taken().store(connector.refetch(box, [*taken.given, "thread-1␟no such post", "nonsense"]))
    assert again.hashes == taken.hashes
    assert again.failed == {"thread-1␟no such post", "nonsense"}


def test_a_missing_permission_is_named(graph: GraphServer, connect: Connect, team: list[dict[str, Any]]) -> None:
    graph.control(roles=ROLES[:-1])
    with pytest.raises(AuthFailed, match=r"Group-Conversation\.Read\.All"):
        connect(include_groups=True).check()


@pytest.mark.parametrize(("status", "error"), [(503, Unavailable), (429, Throttled)])
def test_trouble_is_translated(
    graph: GraphServer, connect: Connect, team: list[dict[str, Any]], status: int, error: type[Exception]
) -> None:
    connector = connect(include_groups=True)
    box = group_of(connector)
    graph.control(trouble={"fail": {"groups": [status, "trouble", 99]}})
    with pytest.raises(error):
        list(connector.fetch(box, {}, nothing))


def test_a_group_is_no_target_of_a_restore(graph: GraphServer, connect: Connect, team: list[dict[str, Any]]) -> None:
    connector = connect(include_groups=True)
    with pytest.raises(Unavailable, match="group"):
        connector.target(group_of(connector))


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"id": "x", "body": None, "from": None},
        {"id": "x", "from": {"emailAddress": {"name": "a\r\nBcc: evil@example.org", "address": "x y\n@z"}}},
        {"id": "x", "body": {"contentType": "text", "content": "\ud800 lone"}, "receivedDateTime": "never"},
        {"id": "x", "attachments": [{"@odata.type": FILE["@odata.type"], "name": "\r\n", "contentBytes": "%%%"}, 7]},
        {"id": "x", "attachments": [{**FILE, "contentType": "multipart/mixed"}, {**FILE, "contentType": "a b/ü"}]},
    ],
)
def test_odd_posts_become_messages(odd: dict[str, Any]) -> None:
    built = build_post(odd, GroupThread("t", "a\nSubject: b", ""), "team@contoso.example", "Te\r\nam")
    found = email.message_from_bytes(built, policy=default)
    assert found["Bcc"] is None
    assert found["Subject"] == "a Subject: b"
    assert built == build_post(odd, GroupThread("t", "a\nSubject: b", ""), "team@contoso.example", "Te\r\nam")
