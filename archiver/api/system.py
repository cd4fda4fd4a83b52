"""How the system stands: figures, queues, progress while it happens, dead letters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from archiver.api.auth import Administrator, Context, Viewer, still_may
from archiver.api.context import ApiContext
from archiver.api.page import Cursor, Limit, Page, decode_cursor, encode_cursor
from archiver.api.public_text import without_paths
from archiver.errors import NotReady, UsageError
from archiver.services import dead_letters, overview, runs
from archiver.services.access import scope_of
from archiver.services.dead_letters import DeadLetter
from archiver.services.overview import IndexState, Overview
from archiver.services.principal import Right
from archiver.services.runs import MailboxProgress, Progress

router = APIRouter(tags=["system"])

_LOOK_SECONDS = 1.0
_PING_SECONDS = 15.0


class Queues(BaseModel):
    queues: dict[str, dict[str, int]]
    outbox: int


class Running(BaseModel):
    session: Progress
    mailboxes: list[MailboxProgress]


@router.get("/status")
def show_status(who: Viewer, context: Context) -> Overview:
    """What is in the archive, and what waits."""
    return overview.count_rows(context.engine)


@router.get("/queues")
def show_queues(who: Viewer, context: Context) -> Queues:
    """Jobs by queue and state, and what is announced but not sent."""
    if context.settings.redis_url is None:
        raise NotReady("redis is not running")
    counts = overview.count_jobs(context.settings.redis_url.get_secret_value())
    return Queues(queues=counts, outbox=overview.count_rows(context.engine).outbox)


@router.get("/index")
def show_index(who: Viewer, context: Context) -> IndexState:
    """How much of the archive can be found, and how far."""
    return overview.index_state(context.engine)


@router.post("/index/reindex", status_code=202)
def start_reindex(who: Administrator, context: Context) -> None:
    """A new index beside the live one, filled anew and put in its place. Searching goes on meanwhile."""
    with context.engine.begin() as connection:
        overview.request_reindex(connection, who)


@router.get("/progress", response_class=StreamingResponse)
async def watch_progress(
    who: Viewer,
    context: Context,
    request: Request,
    once: Annotated[bool, Query(description="One event, and the end.")] = False,
) -> StreamingResponse:
    """Running cycles as server-sent events (`event: progress`), whenever something has changed; ends with the session."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(context, request, once=once), media_type="text/event-stream", headers=headers)


async def _events(context: ApiContext, request: Request, *, once: bool) -> AsyncIterator[bytes]:
    last, said_at = b"", 0.0
    while not context.stopping.is_set() and not await request.is_disconnected():
        if not await run_in_threadpool(still_may, request, Right.VIEW):
            return
        state = await run_in_threadpool(_progress, context)
        if state != last:
            yield b"event: progress\ndata: " + state + b"\n\n"
            last, said_at = state, time.monotonic()
        elif time.monotonic() - said_at > _PING_SECONDS:
            yield b": still here\n\n"
            said_at = time.monotonic()
        if once:
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _progress(context: ApiContext) -> bytes:
    with context.reading() as connection:
        found = [
            {"session": asdict(session), "mailboxes": [asdict(box) for box in runs.mailboxes(connection, session.session_id)]}
            for session in runs.running(connection)
        ]
    return orjson.dumps({"running": found})


@router.get("/runs/running")
def list_running(who: Viewer, context: Context) -> Page[Running]:
    """Cycles that run now."""
    with context.reading() as connection:
        items = [
            Running(session=session, mailboxes=runs.mailboxes(connection, session.session_id))
            for session in runs.running(connection)
        ]
    return Page(items=items)


@router.get("/dead-letters")
def list_dead_letters(
    who: Viewer,
    context: Context,
    source_id: UUID | None = None,
    discarded: bool = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[DeadLetter]:
    """What failed for good; newest first. Names of folders are for those who may read the mailbox."""
    before = _place(*decode_cursor(cursor, 2)) if cursor else None
    with context.reading() as connection:
        scope = scope_of(connection, who)
        found = dead_letters.listed(connection, source_id, discarded=discarded, most=limit, before=before, scope=scope)
    more = encode_cursor(found[-1].last_failed_at.isoformat(), found[-1].id) if len(found) == limit else None
    return Page(items=[_public(one) for one in found], next=more)


@router.get("/dead-letters/{letter_id}")
def show_dead_letter(letter_id: UUID, who: Viewer, context: Context) -> DeadLetter:
    with context.reading() as connection:
        return _public(dead_letters.find(connection, str(letter_id), scope_of(connection, who)))


@router.post("/dead-letters/{letter_id}/retry", status_code=204)
def retry_dead_letter(letter_id: UUID, who: Administrator, context: Context) -> None:
    """It is due at once."""
    with context.engine.begin() as connection:
        dead_letters.retry(connection, dead_letters.find(connection, str(letter_id)), who)


@router.post("/dead-letters/{letter_id}/discard", status_code=204)
def discard_dead_letter(letter_id: UUID, who: Administrator, context: Context) -> None:
    """Never tried again. The entry stays: what is not archived stays explained."""
    with context.engine.begin() as connection:
        dead_letters.discard(connection, dead_letters.find(connection, str(letter_id)), who)


def _public(letter: DeadLetter) -> DeadLetter:
    return replace(letter, reason=without_paths(letter.reason))


def _place(at: str, letter_id: str) -> tuple[Any, UUID]:
    try:
        return datetime.fromisoformat(at), UUID(letter_id)
    except ValueError:
        raise UsageError("cursor: not one that a page before this gave") from None
