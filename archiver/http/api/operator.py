"""Queues and schedules, for administrators and for automation with OPERATOR_HMAC_KEY."""

from __future__ import annotations

import time
from typing import Annotated
from uuid import UUID

import redis
from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from archiver.access.operator_signature import (
    MAX_SKEW_SECONDS,
    NONCE_HEADER,
    OPERATOR,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    check_request,
)
from archiver.access.principal import Principal, Right
from archiver.errors import NotReady, NotSignedIn
from archiver.http.api.page import RequestBody
from archiver.http.auth import Context, client_address, require
from archiver.http.context import ApiContext
from archiver.http.problems import request_id
from archiver.maintenance import operate
from archiver.maintenance.operate import QueueStatus
from archiver.sources import dead_letters
from archiver.sources.dead_letters import DeadLetterFilter

router = APIRouter(prefix="/operator", tags=["operator"])
_MAX_BODY = 64 << 10


async def operator(request: Request, context: Context) -> Principal:
    """An administrator, or a request that is signed with OPERATOR_HMAC_KEY."""
    if SIGNATURE_HEADER not in request.headers:
        return await run_in_threadpool(require(Right.ADMIN), request)
    key = context.settings.operator_hmac_key
    if key is None:
        raise NotSignedIn("signed requests need OPERATOR_HMAC_KEY on the server")
    timestamp, nonce, signature = (request.headers.get(name, "") for name in (TIMESTAMP_HEADER, NONCE_HEADER, SIGNATURE_HEADER))
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    body = (await request.body())[:_MAX_BODY]
    check_request(key.get_secret_value(), request.method, path, timestamp, nonce, signature, body, time.time())
    await run_in_threadpool(_use_nonce, context, nonce)
    return OPERATOR.at(client_address(request), request_id(request))


def _use_nonce(context: ApiContext, nonce: str) -> None:
    """Kept in Redis for as long as the time stamp could be accepted. Without Redis, nothing is."""
    try:
        is_new = context.redis.set(f"archiver:operator-nonce:{nonce}", "1", nx=True, ex=2 * MAX_SKEW_SECONDS + 1)
    except redis.RedisError as error:
        raise NotReady("redis does not answer: a signed request can't be checked") from error
    if not is_new:
        raise NotSignedIn("this signed request was sent before: use a new nonce for each")


Operator = Annotated[Principal, Depends(operator)]


class LetterSelection(RequestBody):
    """Dead letters to retry. Everything that is not sent matches all."""

    source_id: UUID | None = None
    kind: Annotated[str | None, Field(pattern="^(message|document|job)$")] = None
    reason: Annotated[str | None, Field(max_length=2000, description="The whole reason.")] = None
    reason_contains: Annotated[str | None, Field(max_length=200)] = None
    older_than_hours: Annotated[float | None, Field(ge=0, le=1e6)] = None


class LetterRetries(BaseModel):
    retried: int
    refused: Annotated[dict[str, int], Field(description="Why others could not be retried, and how many.")]


class RequeuedJobs(BaseModel):
    jobs: int


class StartedJob(BaseModel):
    job_id: str


def _redis_url(context: ApiContext) -> str:
    if context.settings.redis_url is None:
        raise NotReady("redis is not running")
    return context.settings.redis_url.get_secret_value()


@router.get("/queues/{queue}")
def show_queue(queue: str, principal: Operator, context: Context) -> QueueStatus:
    return operate.load_status(_redis_url(context), operate.queue_named(queue))


@router.post("/queues/{queue}/pause")
def pause_queue(queue: str, principal: Operator, context: Context) -> QueueStatus:
    """Running jobs finish, and none is begun until the queue is resumed. Nothing is lost: jobs wait."""
    return operate.pause_queue(context.engine, _redis_url(context), operate.queue_named(queue), principal)


@router.post("/queues/{queue}/resume")
def resume_queue(queue: str, principal: Operator, context: Context) -> QueueStatus:
    return operate.resume_queue(context.engine, _redis_url(context), operate.queue_named(queue), principal)


@router.post("/queues/{queue}/drain")
def drain_queue(
    queue: str,
    principal: Operator,
    context: Context,
    wait_seconds: Annotated[float, Query(ge=0, le=60, description="How long to wait for running jobs.")] = 30.0,
) -> QueueStatus:
    """Pauses the queue and waits for running jobs: `counts.active` is 0 when it is drained."""
    found = operate.queue_named(queue)
    return operate.drain_queue(context.engine, _redis_url(context), found, principal, wait_seconds)


@router.post("/queues/{queue}/requeue")
def requeue(queue: str, principal: Operator, context: Context) -> RequeuedJobs:
    """Sends the announced jobs again that Redis may have lost. A job that it still has is not doubled."""
    return RequeuedJobs(jobs=operate.requeue(context.engine, operate.queue_named(queue), principal))


@router.post("/schedules/{name}/run", status_code=202)
def run_schedule(name: str, principal: Operator, context: Context) -> StartedJob:
    """Runs a scheduled job now: schedule-continuous-sync, reconcile-index or evaluate-alerts."""
    return StartedJob(job_id=operate.run_schedule(context.engine, _redis_url(context), name, principal))


@router.post("/replay")
def replay(body: LetterSelection, principal: Operator, context: Context) -> LetterRetries:
    """Retries all dead letters that match, at most 10,000 at once."""
    with context.engine.begin() as connection:
        done = dead_letters.retry_all(connection, DeadLetterFilter(**body.model_dump()), principal)
    return LetterRetries(retried=done.retried, refused=dict(done.refused))
