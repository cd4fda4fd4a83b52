"""Nothing passes a hold: every path that deletes, and every kind of hold."""

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

import archiver
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.access.scope import EVERYTHING
from archiver.config import Settings
from archiver.db.engine import make_engine
from archiver.db.ids import message_uuid, uuid7
from archiver.errors import Conflict, NotFound, UsageError
from archiver.maintenance.compact import compact
from archiver.maintenance.erasure.eraser import Eraser
from archiver.maintenance.recovery.adopt import adopt
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.retention import executor, signer
from archiver.maintenance.snapshot import save_config
from archiver.marks import changes
from archiver.marks.changes import ChangeAction, ChangeRequest
from archiver.retention import erasures, holds, policies, simulation
from archiver.retention.delete import Deleted, delete_mailbox_mail, delete_message
from archiver.retention.erasures import NewErasure
from archiver.retention.holds import Hold, NewHold, OnHold
from archiver.retention.person_search import search_person
from archiver.retention.policies import NewPolicy
from archiver.secrets import Keyring
from archiver.sources import rows as source_rows
from archiver.sources.view import remove
from connectors.base import Batch
from tests.integration.store.conftest import MAILBOX, SECOND, SOURCE, World
from tests.integration.store.filled import id_of, messages_of

MakeWorld = Callable[..., World]
SECOND_PERSON = replace(LOCAL_OPERATOR, name="second@example.org")
# messages_of(n): from sender{n % 7}@example.org to reader{n % 11}@example.com, "Invoice number n"
ON_MESSAGE_1 = {
    "selection": NewHold("Case Lamp", "a claim", message_ids=[id_of(1)]),
    "mailbox": NewHold("Case Lamp", "a claim", mailbox_ids=[MAILBOX]),
    "sender": NewHold("Case Lamp", "a claim", addresses=["Sender1@example.org"]),
    "recipient": NewHold("Case Lamp", "a claim", addresses=["reader1@example.com"]),
    "owner": NewHold("Case Lamp", "a claim", addresses=["alice@example.org"]),
    "query in SQL": NewHold("Case Lamp", "a claim", query="from:sender1@example.org"),
    "query by words": NewHold("Case Lamp", "a claim", query='subject:"number 1"'),
    "query by text": NewHold("Case Lamp", "a claim", query='"with the number 1"'),
    "negated query": NewHold("Case Lamp", "a claim", query='-"with the number 2"'),
}


def delete_by_id(world: World) -> None:
    with pytest.raises(OnHold, match="Case Lamp"):
        delete_message(world.engine, world.archive, id_of(1), "asked for")


def delete_by_mailbox(world: World) -> None:
    done = delete_mailbox_mail(world.engine, world.archive, MAILBOX, "asked for")
    assert done.held >= 1
    assert done.holds == ("on hold: Case Lamp",)


def delete_with_source(world: World) -> None:
    with world.engine.begin() as connection:
        source = source_rows.find(connection, str(SOURCE))
    remove(world.engine, world.archive, LOCAL_OPERATOR, source, delete_mail=True)


def delete_by_statement(world: World) -> None:
    """Whatever a future path forgets."""
    for statement in (
        "UPDATE message_copies SET deleted_at = now() WHERE message_id = :id",
        "UPDATE message_copies SET message_id = NULL, deleted_at = now() WHERE message_id = :id",
        "DELETE FROM message_copies WHERE message_id = :id",
    ):
        with pytest.raises(DBAPIError, match=r"on hold|was not compared"), world.engine.begin() as connection:
            connection.execute(text(statement), {"id": id_of(1)})


def delete_by_compaction(world: World) -> None:
    for _ in range(2):
        compact(
            world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=timedelta(0), rest_seconds=0
        )


def delete_by_policy(world: World) -> None:
    later = datetime.now(UTC) + timedelta(days=3 * 366)
    version = policies.propose(world.engine, LOCAL_OPERATOR, NewPolicy("Clean up", "x", delete_after="1y"))
    version = simulation.simulate(world.engine, world.archive, LOCAL_OPERATOR, version)
    with world.engine.begin() as connection:
        policies.approve(connection, LOCAL_OPERATOR, version, second_person=False)
    run = replace(executor(world.engine, world.archive, Keyring({"test": b"k" * 32})), clock=lambda: later).run(100)
    assert run is not None
    assert run.held >= 1


def delete_by_erasure(world: World) -> None:
    new = NewErasure("DSR", "x", ["sender1@example.org"])
    erasure = erasures.request(world.engine, LOCAL_OPERATOR, new)
    search_person(world.engine, world.archive, NoIndex(), LOCAL_OPERATOR, erasure)  # type: ignore[arg-type]
    with world.engine.begin() as connection:
        erasures.approve(connection, LOCAL_OPERATOR, erasures.load(connection, "DSR"), second_person=False)
    sign = signer(world.engine, world.archive, Keyring({"test": b"k" * 32}))
    settings = Settings(archiver_data=world.folder / "data")
    settings.archiver_data.mkdir()
    Eraser(settings, world.engine, world.archive, sign, rest_seconds=0, keep_retired=timedelta(0)).advance()
    with world.engine.connect() as connection:
        assert erasures.load(connection, "DSR").kept == {"on hold: Case Lamp": 1}


def delete_by_selection(world: World) -> None:
    user = replace(LOCAL_OPERATOR, user_id=uuid7())
    with world.engine.begin() as connection:
        statement = "INSERT INTO users (id, email, name, role) VALUES (:id, :id, 'x', 'administrator') ON CONFLICT DO NOTHING"
        connection.execute(text(statement.replace(":id, :id", ":id, CAST(:id AS text)")), {"id": user.user_id})
        change = changes.begin(connection, user, ChangeRequest(ChangeAction.DELETE, "tidy up"))
        assert changes.choose(connection, change.id, EVERYTHING, [id_of(1)]) == 1
    changes.delete_portion(world.engine, world.archive, user, change, EVERYTHING)
    assert world.value("SELECT refused FROM mail_changes WHERE id = :id", id=change.id) == 1


class NoIndex:
    """An index that contains nothing yet."""

    def message_ids(self, *_: object, **__: object) -> list[UUID]:
        return []


PATHS = [
    delete_by_id, delete_by_selection, delete_by_mailbox, delete_by_policy, delete_by_erasure, delete_with_source,
    delete_by_statement, delete_by_compaction,
]  # fmt: skip
# What is a path: code that marks a copy as deleted, or removes a message. The last two carry out deletions of the packs again,
# which were committed when nothing stood against them.
MARKING = {"retention/delete.py", "retention/burial.py", "maintenance/recovery/rebuild.py"}
CALLING = {
    "retention/delete.py", "retention/runs.py", "maintenance/erasure/eraser.py", "maintenance/erasure/register.py",
    "marks/changes.py",
}  # fmt: skip


def test_the_table_of_paths_is_complete() -> None:
    """Code that deletes in another way needs a row in PATHS."""
    root = Path(archiver.__file__).parent
    marks = re.compile(
        r"DELETE FROM (?:messages|message_copies)\b|UPDATE message_copies\b[^;\"]*?\b(?:deleted_at =|message_id = NULL)"
    )
    code = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.py") if "tables" not in path.parts}
    assert {name for name, text in code.items() if marks.search(text)} == MARKING
    assert {name for name, text in code.items() if re.search(r"\bDeletion\($|\bDeletion\(connection", text, re.M)} == CALLING


def placed(world: World, new: NewHold) -> Hold:
    return holds.place(world.engine, LOCAL_OPERATOR, new)


def release(world: World, hold: Hold) -> None:
    with world.engine.begin() as connection:
        holds.release(connection, LOCAL_OPERATOR, hold, "settled", second_person=False)


@pytest.mark.parametrize("kind", ON_MESSAGE_1)
def test_no_path_that_deletes_passes_a_hold(world: World, kind: str) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2)))
    hold = placed(world, ON_MESSAGE_1[kind])
    for path in PATHS:
        path(world)
        assert world.archive.read(sha256(messages_of(1)[0].data or b"").digest()) == messages_of(1)[0].data, path.__name__
        assert world.value("SELECT count(*) FROM message_copies WHERE message_id = :m AND deleted_at IS NULL", m=id_of(1)) == 1
    release(world, hold)
    assert delete_message(world.engine, world.archive, id_of(1), "asked for").messages == 1


@pytest.mark.parametrize("kind", sorted(set(ON_MESSAGE_1) - {"selection"}))
def test_mail_that_arrives_later_is_on_hold_at_once(world: World, kind: str) -> None:
    ingest = world.open()
    placed(world, ON_MESSAGE_1[kind])
    ingest.store_batch(world.origin(), Batch(messages_of(1)))
    delete_by_id(world)
    delete_by_mailbox(world)


def test_what_is_not_on_hold_is_deleted(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2, 3)))
    placed(world, ON_MESSAGE_1["query by text"])
    done = delete_mailbox_mail(world.engine, world.archive, MAILBOX, "asked for")
    assert done == Deleted(2, 2, 1, ("on hold: Case Lamp",))
    assert world.rows("SELECT id FROM messages") == [(id_of(1),)]


def test_a_mailbox_on_hold_protects_its_copy_and_no_other(world: World) -> None:
    ingest = world.open()
    for mailbox in (MAILBOX, SECOND):
        ingest.store_batch(world.origin(mailbox), Batch(messages_of(1)))
    placed(world, ON_MESSAGE_1["mailbox"])
    with pytest.raises(OnHold):
        delete_message(world.engine, world.archive, id_of(1), "asked for")
    assert delete_mailbox_mail(world.engine, world.archive, SECOND, "asked for").copies == 1
    assert world.value("SELECT mailbox_id FROM message_copies WHERE deleted_at IS NULL") == MAILBOX


def test_holds_survive_a_rebuild_and_a_release_survives_an_older_database(world: World, new_world: MakeWorld) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2)))
    hold = placed(world, ON_MESSAGE_1["selection"])
    placed(world, replace(ON_MESSAGE_1["query by text"], name="Case Two"))
    save_config(world.engine, world.archive)
    world.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    delete_by_id(rebuilt)
    with rebuilt.engine.connect() as connection:
        assert {name for _, name in holds.names_on_message(connection, id_of(1))} >= {"Case Lamp"}
    older = new_world(copy_of=rebuilt, folder=world.folder)
    rebuilt.open()
    with rebuilt.engine.connect() as connection:
        current = holds.list_holds(connection)
    for found in current:
        release(rebuilt, found)
    save_config(rebuilt.engine, rebuilt.archive)
    delete_message(rebuilt.engine, rebuilt.archive, id_of(1), "the case is closed")
    rebuilt.close()
    older.open()
    adopt(older.engine, older.archive, rest_seconds=0)
    assert older.value("SELECT released_at IS NOT NULL FROM holds WHERE id = :id", id=hold.id) is True
    assert older.value("SELECT count(*) FROM messages WHERE id = :m", m=id_of(1)) == 0


def test_a_hold_waits_for_deletions_in_progress_and_then_nothing_passes_it(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2)))
    other = make_engine(str(world.engine.url.render_as_string(hide_password=False)), "test")
    deleting, placing = threading.Event(), threading.Event()
    result: list[Hold] = []

    def place() -> None:
        deleting.wait(60)
        placing.set()
        result.append(holds.place(other, LOCAL_OPERATOR, ON_MESSAGE_1["mailbox"]))

    thread = threading.Thread(target=place)
    thread.start()
    with world.engine.begin() as connection:
        assert holds.find_held(connection, world.engine, world.archive, []) == {}
        deleting.set()
        placing.wait(60)
        connection.execute(text("UPDATE message_copies SET deleted_at = now() WHERE message_id = :id"), {"id": id_of(2)})
        assert not result, "the hold waits"
    thread.join(60)
    assert len(result) == 1
    delete_by_id(world)
    other.dispose()


def test_a_release_needs_a_reason_and_another_person(world: World) -> None:
    world.open().store_batch(world.origin(), Batch(messages_of(1)))
    hold = placed(world, ON_MESSAGE_1["selection"])

    def step(principal: Principal, reason: str = "settled") -> Hold:
        with world.engine.begin() as connection:
            current = holds.load(connection, "case lamp")
            return holds.release(connection, principal, current, reason, second_person=True)

    with pytest.raises(UsageError, match="reason"):
        step(LOCAL_OPERATOR, " ")
    assert step(LOCAL_OPERATOR).released_at is None
    delete_by_id(world)
    with pytest.raises(Conflict, match="another administrator"):
        step(LOCAL_OPERATOR)
    with world.engine.begin() as connection:
        holds.withdraw_release(connection, SECOND_PERSON, holds.load(connection, str(hold.id)))
    assert step(SECOND_PERSON).released_at is None, "withdrawn: it starts again"
    released = step(LOCAL_OPERATOR)
    assert (released.released_by, released.release_reason) == ("local-operator", "settled")
    with pytest.raises(Conflict, match="was released"):
        step(SECOND_PERSON)
    actions = [row[0] for row in world.rows("SELECT action FROM audit_log ORDER BY id")]
    assert actions == [
        "hold.placed", "hold.release_requested", "hold.release_withdrawn", "hold.release_requested", "hold.released",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (NewHold("", "x", addresses=["a@b"]), "needs a name"),
        (NewHold("x", " ", addresses=["a@b"]), "reason"),
        (NewHold("x", "y"), "name what the hold is on"),
        (NewHold("x", "y", addresses=["nobody"]), "nobody"),
        (NewHold("x", "y", query="mailbox:nobody@nowhere"), "no mailbox nobody@nowhere"),
        (NewHold("x", "y", query="thread:01900000-0000-7000-8000-000000000001"), "thread:"),
        (NewHold("x", "y", query="hold:other"), "hold:"),
        (NewHold("x", "y", query="(open"), "parenthesis"),
    ],
)
def test_a_hold_that_means_nothing_is_refused(world: World, new: NewHold, says: str) -> None:
    world.open()
    with pytest.raises(UsageError, match=says):
        placed(world, new)
    assert world.value("SELECT count(*) FROM holds") == 0


def test_names_are_unique_among_holds_in_force_and_unknown_messages_are_named(world: World) -> None:
    world.open()
    missing = message_uuid(b"x" * 32)
    with pytest.raises(NotFound, match=str(missing)):
        placed(world, NewHold("Case", "x", message_ids=[missing]))
    hold = placed(world, NewHold("Case", "x", addresses=["a@example.org"]))
    with pytest.raises(Conflict, match="already a hold"):
        placed(world, NewHold("case", "x", addresses=["b@example.org"]))
    release(world, hold)
    again = placed(world, NewHold("case", "x", addresses=["b@example.org"]))
    with world.engine.connect() as connection:
        assert holds.load(connection, "CASE").id == again.id
        assert isinstance(holds.load(connection, str(hold.id)).id, UUID)
        assert [one.id for one in holds.list_holds(connection, released=True)] == [hold.id, again.id]
        with pytest.raises(NotFound):
            holds.load(connection, "other")
    assert again.created_at <= datetime.now(UTC)
