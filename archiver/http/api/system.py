"""State of the system: counts, queues, live progress, dead letters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from archiver.access.principal import Right
from archiver.access.scope import scope_of
from archiver.db.states import DeadLetterKind
from archiver.errors import NotReady, UsageError
from archiver.http.api.page import INVALID_CURSOR, Cursor, Limit, Page, decode_cursor, encode_cursor
from archiver.http.auth import Administrator, Context, Viewer, is_still_allowed
from archiver.http.context import ApiContext
from archiver.http.public_text import without_paths_in
from archiver.maintenance import status
from archiver.maintenance.status import IndexState, Overview
from archiver.sources import dead_letters, runs
from archiver.sources.dead_letters import DeadLetter, DeadLetterFilter
from archiver.sources.runs import MailboxProgress, RunProgress

router = APIRouter(tags=["system"])

_POLL_SECONDS = 1.0
_PING_SECONDS = 15.0


class Queues(BaseModel):
    queues: dict[str, dict[str, int]]
    outbox: int


class Running(BaseModel):
    session: RunProgress
    mailboxes: list[MailboxProgress]


@router.get("/status")
def show_status(principal: Viewer, context: Context) -> Overview:
    """What the archive holds, and what is waiting."""
    return status.count_rows(context.engine)


@router.get("/queues")
def show_queues(principal: Viewer, context: Context) -> Queues:
    """Jobs by queue and state, and jobs in the outbox that are not queued yet."""
    if context.settings.redis_url is None:
        raise NotReady("redis is not running")
    counts = status.count_jobs(context.settings.redis_url.get_secret_value())
    return Queues(queues=counts, outbox=status.count_rows(context.engine).outbox)


@router.get("/index")
def show_index(principal: Viewer, context: Context) -> IndexState:
    """How much of the archive is searchable, and how completely."""
    return status.index_state(context.engine)


@router.post("/index/reindex", status_code=202)
def start_reindex(principal: Administrator, context: Context) -> None:
    """Build a new index beside the live one, then switch to it. Search keeps working in the meantime."""
    with context.engine.begin() as connection:
        status.request_reindex(connection, principal)


@router.get("/progress", response_class=StreamingResponse)
async def watch_progress(
    principal: Viewer,
    context: Context,
    request: Request,
    once: Annotated[bool, Query(description="Send one event and close the stream.")] = False,
) -> StreamingResponse:
    """Running cycles as server-sent events (`event: progress`), on every change. The stream ends with the session."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(context, request, once=once), media_type="text/event-stream", headers=headers)


async def _events(context: ApiContext, request: Request, *, once: bool) -> AsyncIterator[bytes]:
    last, sent_at = b"", 0.0
    while not context.stopping.is_set() and not await request.is_disconnected():
        if not await run_in_threadpool(is_still_allowed, request, Right.VIEW):
            return
        state = await run_in_threadpool(_progress, context)
        if state != last:
            yield b"event: progress\ndata: " + state + b"\n\n"
            last, sent_at = state, time.monotonic()
        elif time.monotonic() - sent_at > _PING_SECONDS:
            yield b": still here\n\n"
            sent_at = time.monotonic()
        if once:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _progress(context: ApiContext) -> bytes:
    running = _running(context)
    found = [{"session": asdict(session), "mailboxes": [asdict(box) for box in boxes]} for session, boxes in running]
    return orjson.dumps({"running": found})


def _running(context: ApiContext) -> list[tuple[RunProgress, list[MailboxProgress]]]:
    with context.reading() as connection:
        found = [(session, runs.mailboxes(connection, session.session_id)) for session in runs.running(connection)]
    return [(session, [without_paths_in(box, "error") for box in mailboxes]) for session, mailboxes in found]


@router.get("/runs/running")
def list_running(principal: Viewer, context: Context) -> Page[Running]:
    """Cycles that are running now."""
    return Page(items=[Running(session=session, mailboxes=mailboxes) for session, mailboxes in _running(context)])


@router.get("/dead-letters")
def list_dead_letters(
    principal: Viewer,
    context: Context,
    source_id: UUID | None = None,
    kind: DeadLetterKind | None = None,
    reason_contains: Annotated[str | None, Query(max_length=200)] = None,
    older_than_hours: Annotated[float | None, Query(ge=0, le=1e6)] = None,
    discarded: bool = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[DeadLetter]:
    """Items that failed for good, newest first. Folder names are shown only to users who may read the mailbox."""
    before = _parse_cursor(*decode_cursor(cursor, 2)) if cursor else None
    with context.reading() as connection:
        scope = scope_of(connection, principal)
        wanted = DeadLetterFilter(source_id, kind, None, reason_contains, older_than_hours, discarded)
        found = dead_letters.listed(connection, wanted, limit=limit, before=before, scope=scope)
    more = encode_cursor(found[-1].last_failed_at.isoformat(), found[-1].id) if len(found) == limit else None
    return Page(items=[_public(one) for one in found], next=more)


@router.get("/dead-letters/{letter_id}")
def show_dead_letter(letter_id: UUID, principal: Viewer, context: Context) -> DeadLetter:
    with context.reading() as connection:
        return _public(dead_letters.find(connection, str(letter_id), scope_of(connection, principal)))


@router.post("/dead-letters/{letter_id}/retry", status_code=204)
def retry_dead_letter(letter_id: UUID, principal: Administrator, context: Context) -> None:
    """The item is due at once."""
    with context.engine.begin() as connection:
        dead_letters.retry(connection, dead_letters.find(connection, str(letter_id)), principal)


@router.post("/dead-letters/{letter_id}/discard", status_code=204)
def discard_dead_letter(letter_id: UUID, principal: Administrator, context: Context) -> None:
    """The item is never retried. The entry stays, so that the gap in the archive stays explained."""
    with context.engine.begin() as connection:
        dead_letters.discard(connection, dead_letters.find(connection, str(letter_id)), principal)


def _public(letter: DeadLetter) -> DeadLetter:
    return without_paths_in(letter, "reason")


def _parse_cursor(at: str, letter_id: str) -> tuple[Any, UUID]:
    try:
        return datetime.fromisoformat(at), UUID(letter_id)
    except ValueError:
        raise UsageError(INVALID_CURSOR) from None
