"""Erasure on request: search for a person's mail, review it, approve it; and the signed receipts."""

from __future__ import annotations

import base64
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from archiver.access.principal import Principal
from archiver.access.scope import scope_of
from archiver.evidence import signing
from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Administrator, Auditor, Context
from archiver.http.context import ApiContext
from archiver.retention import erasures
from archiver.retention.approval import needs_second_person
from archiver.retention.erasures import Erasure, NewErasure

router = APIRouter(prefix="/erasures", tags=["retention"])

_PAGE = 100


class ErasureRequest(RequestBody):
    name: Annotated[str, Field(min_length=1, max_length=200, description="A case reference, which stays; not the person.")]
    reason: Annotated[str, Field(min_length=1, max_length=2000)]
    addresses: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    terms: Annotated[tuple[str, ...], Field(max_length=100, description="Names, or other words that identify the person.")] = ()


class ErasureReview(RequestBody):
    message_ids: Annotated[list[UUID], Field(min_length=1, max_length=10_000)]
    reason: Annotated[
        str | None, Field(max_length=2000, description="Why these messages stay; null to erase them after all.")
    ] = None


class ErasureShape(BaseModel):
    id: UUID
    name: str
    reason: str
    state: Annotated[str, Field(description="searching, review, approved, purging, finished or rejected.")]
    addresses: list[str]
    terms: list[str]
    created_by: str
    created_at: datetime
    searched_at: datetime | None
    unread: int
    approved_by: str | None
    approved_at: datetime | None
    rejected_by: str | None
    rejected_at: datetime | None
    copies: int
    messages: int
    size_bytes: int
    kept: dict[str, int]
    excluded: dict[str, int]
    deleted_at: datetime | None
    finished_at: datetime | None
    error: str | None


class ErasureDetails(ErasureShape):
    found: int
    found_in_people: int
    found_excluded: int


class FoundShape(BaseModel):
    message_id: UUID
    in_people: bool
    excluded_by: str | None
    excluded_reason: str | None
    sort_at: datetime
    sender: Annotated[str | None, Field(description="Only for those who may read the message, as the subject.")]
    subject: str | None
    size_bytes: int
    kept_by: list[str]


class ErasureReceipt(BaseModel):
    receipt: str | None
    signature: str | None
    key: str | None
    public_key: str | None


@router.get("")
def list_erasures(principal: Auditor, context: Context) -> Page[ErasureShape]:
    """Newest first."""
    with context.reading() as connection:
        return Page(items=[ErasureShape(**_fields(one)) for one in erasures.list_erasures(connection)])


@router.post("", status_code=201)
def request_erasure(body: ErasureRequest, principal: Administrator, context: Context) -> ErasureDetails:
    """A worker searches for the person. Nothing is erased before it is reviewed and approved."""
    return _details(context, erasures.request(context.engine, principal, NewErasure(**body.model_dump())).id)


@router.get("/{erasure_id}")
def show_erasure(erasure_id: UUID, principal: Auditor, context: Context) -> ErasureDetails:
    return _details(context, erasure_id)


@router.get("/{erasure_id}/messages")
def list_found(erasure_id: UUID, principal: Auditor, context: Context, after: UUID | None = None) -> Page[FoundShape]:
    """What was found, and what keeps it; up to 100 messages, in the order of their ids."""
    return Page(items=[FoundShape(**one) for one in review(context, principal, erasure_id, after)])


@router.post("/{erasure_id}/search")
def search_again(erasure_id: UUID, principal: Administrator, context: Context) -> ErasureDetails:
    """For mail that has arrived since. What was excluded stays excluded."""
    with context.engine.begin() as connection:
        erasures.search_again(connection, principal, erasures.load(connection, str(erasure_id)))
    return _details(context, erasure_id)


@router.post("/{erasure_id}/review")
def review_erasure(erasure_id: UUID, body: ErasureReview, principal: Administrator, context: Context) -> ErasureDetails:
    """Excludes messages from the erasure, with a reason, or includes them again."""
    with context.engine.begin() as connection:
        erasures.exclude(connection, principal, erasures.load(connection, str(erasure_id)), body.message_ids, body.reason)
    return _details(context, erasure_id)


@router.post("/{erasure_id}/approve")
def approve_erasure(erasure_id: UUID, principal: Administrator, context: Context) -> ErasureDetails:
    """Start the erasure in a worker. With two-person approval, the approver must not be the requester."""
    with context.engine.begin() as connection:
        second = needs_second_person(connection, context.settings)
        erasures.approve(connection, principal, erasures.load(connection, str(erasure_id)), second_person=second)
    return _details(context, erasure_id)


@router.post("/{erasure_id}/reject")
def reject_erasure(erasure_id: UUID, principal: Administrator, context: Context) -> ErasureDetails:
    with context.engine.begin() as connection:
        erasures.reject(connection, principal, erasures.load(connection, str(erasure_id)))
    return _details(context, erasure_id)


@router.get("/{erasure_id}/receipt")
def show_erasure_receipt(erasure_id: UUID, principal: Auditor, context: Context) -> ErasureReceipt:
    with context.reading() as connection:
        erasure = erasures.load(connection, str(erasure_id))
        key = next((one.public_bytes for one in signing.public_keys(connection) if one.id == erasure.key), None)
    signature = base64.b64encode(erasure.signature).decode() if erasure.signature else None
    pem = signing.public_pem(key) if key else None
    return ErasureReceipt(receipt=erasure.receipt, signature=signature, key=erasure.key, public_key=pem)


@router.get("/{erasure_id}/list", response_class=Response)
def list_erased(erasure_id: UUID, principal: Auditor, context: Context) -> Response:
    """What was erased: mailbox and SHA-256 of the message, one line each. The receipt has the SHA-256 of this text."""
    with context.reading() as connection:
        lines = [f"{line}\n" for line in erasures.erased_units(connection, erasures.load(connection, str(erasure_id)))]
    return Response("".join(lines), media_type="text/plain")


def review(context: ApiContext, principal: Principal, erasure_id: UUID, after: UUID | None) -> list[dict[str, Any]]:
    """One page of what was found. Senders and subjects are for those who may read the message."""
    with context.engine.begin() as connection:
        found = erasures.found_messages(connection, erasures.load(connection, str(erasure_id)), after, _PAGE)
        ids = [one.message_id for one in found]
        kept = erasures.what_keeps(connection, context.engine, context.archive, ids) if found else {}
        readable = erasures.readable_ids(connection, scope_of(connection, principal), ids)
    hidden = {"sender": None, "subject": None}
    return [
        {**asdict(one), **({} if one.message_id in readable else hidden), "kept_by": list(kept.get(one.message_id, ()))}
        for one in found
    ]


def _details(context: ApiContext, erasure_id: UUID) -> ErasureDetails:
    with context.engine.connect() as connection:
        erasure = erasures.load(connection, str(erasure_id))
        counts = erasures.count(connection, erasure)
    return ErasureDetails(
        **_fields(erasure), found=counts.found, found_in_people=counts.in_people, found_excluded=counts.excluded
    )


def _fields(erasure: Erasure) -> dict[str, Any]:
    return {name: getattr(erasure, name) for name in ErasureShape.model_fields}
