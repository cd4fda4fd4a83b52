"""Restores: put archived mail back into mailboxes. Begin with a dry run, look at its result, start, and read the report."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field, SecretStr, model_validator

from archiver.db.states import RestoreOutcome
from archiver.exports.selection import MAX_SELECTED, Selection
from archiver.http.api.page import Cursor, Limit, Page, RequestBody, decode_number, encode_cursor
from archiver.http.auth import Context, Restorer
from archiver.http.public_text import without_paths_in
from archiver.restores import service as restores
from archiver.restores.destination import RestoreDestination
from archiver.restores.rows import ReportedCopy, RestoreJob

router = APIRouter(prefix="/restores", tags=["restores"])


class NewRestore(RequestBody):
    """The results of a search, a mailbox or one of its folders, chosen messages, or everything that you may restore."""

    query: Annotated[
        str | None, Field(min_length=1, max_length=2000, description="Words match exactly here; typos are not tolerated.")
    ] = None
    mailbox_id: UUID | None = None
    folder: Annotated[str | None, Field(max_length=1000, description="Of `mailbox_id`; all of its folders without it.")] = None
    message_ids: Annotated[list[UUID], Field(max_length=MAX_SELECTED)] = Field(default_factory=list)
    everything: bool = False
    to_origins: Annotated[bool, Field(description="Each message back into the mailbox that it came from.")] = False
    to_mailbox_id: Annotated[UUID | None, Field(description="Into one archived mailbox, through its source.")] = None
    to_imap: Annotated[
        dict[str, Any],
        Field(
            description="Into any IMAP account, with the settings of an `imap` source; for administrators.",
            examples=[{"host": "imap.example.org", "user": "alice@example.org"}],
        ),
    ] = Field(default_factory=dict)
    password: Annotated[
        SecretStr | None, Field(max_length=1024, description="Of the IMAP account; stored sealed until the restore is done.")
    ] = None
    below: Annotated[str, Field(max_length=500, description="The folder, or Gmail label, to put everything below.")] = ""

    @model_validator(mode="after")
    def _one_selection(self) -> NewRestore:
        if (self.query is not None) + (self.mailbox_id is not None) + bool(self.message_ids) + self.everything != 1:
            raise ValueError("select exactly one: query, mailbox_id, message_ids or everything")
        if self.folder is not None and self.mailbox_id is None:
            raise ValueError("folder needs mailbox_id")
        if self.to_origins + (self.to_mailbox_id is not None) + bool(self.to_imap) != 1:
            raise ValueError("choose exactly one: to_origins, to_mailbox_id or to_imap")
        return self

    def selection(self) -> Selection:
        return Selection(self.query, self.mailbox_id, self.folder, tuple(self.message_ids), self.everything)

    def destination(self) -> RestoreDestination:
        return RestoreDestination(self.to_origins, self.to_mailbox_id, self.to_imap, self.below.strip("/"))


@router.post("", status_code=202)
def request_restore(body: NewRestore, principal: Restorer, context: Context) -> RestoreJob:
    """Begins the dry run: nothing is changed in any mailbox. When it is `ready`, `absent` says how many messages a start would
    restore, and `present` how many are already there.

    Users restore mail of their own mailboxes into their own mailboxes, if an administrator allows it; administrators what they
    may read, anywhere.
    """
    password = body.password.get_secret_value() if body.password else None
    with context.engine.begin() as connection:
        restore_id = restores.request(
            connection,
            context.settings,
            context.keyring,
            principal,
            body.selection(),
            body.destination(),
            password=password,
        )
        return restores.load(connection, principal, restore_id)


@router.get("")
def list_restores(principal: Restorer, context: Context) -> Page[RestoreJob]:
    """Your own; for administrators, all."""
    with context.reading() as connection:
        return Page(items=[without_paths_in(item, "error") for item in restores.list_restores(connection, principal)])


@router.get("/{restore_id}")
def show_restore(restore_id: UUID, principal: Restorer, context: Context) -> RestoreJob:
    with context.reading() as connection:
        return without_paths_in(restores.load(connection, principal, restore_id), "error")


@router.post("/{restore_id}/start", status_code=202)
def start_restore(restore_id: UUID, principal: Restorer, context: Context) -> RestoreJob:
    """After the dry run. A restore that failed or was cancelled continues where it stopped."""
    with context.engine.begin() as connection:
        restores.start(connection, principal, restore_id)
        return restores.load(connection, principal, restore_id)


@router.get("/{restore_id}/messages")
def list_restored_messages(
    restore_id: UUID,
    principal: Restorer,
    context: Context,
    outcome: RestoreOutcome | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[ReportedCopy]:
    """The report: what became of each copy, and why some were refused."""
    with context.reading() as connection:
        found = restores.report(connection, principal, restore_id, outcome, after=decode_number(cursor), limit=limit)
    return Page(items=found, next=encode_cursor(found[-1].number) if len(found) == limit else None)


@router.delete("/{restore_id}", status_code=204)
def cancel_restore(restore_id: UUID, principal: Restorer, context: Context) -> None:
    """Cancels a restore that is running; what is in the mailboxes stays there. Removes any other from the list."""
    with context.engine.begin() as connection:
        restores.cancel(connection, principal, restore_id)
