"""Conversations that were wrongly joined: split, and join again."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from archiver.access.scope import scope_of
from archiver.http.auth import Administrator, Context
from archiver.indexing import splitting

router = APIRouter(tags=["messages"])


class SplitShape(BaseModel):
    messages: Annotated[int, Field(description="Messages that are a conversation of their own now.")]


@router.post("/messages/{message_id}/split")
def split_conversation(message_id: UUID, principal: Administrator, context: Context) -> SplitShape:
    """From this message on, with everything that answers to it, it is a conversation of its own, for all readers. Answers that
    arrive later follow. `409` if the whole conversation begins with it."""
    with context.engine.begin() as connection:
        moved = splitting.split(connection, principal, scope_of(connection, principal), message_id)
    context.save_config()
    return SplitShape(messages=moved)


@router.delete("/messages/{message_id}/split", status_code=204)
def rejoin_conversation(message_id: UUID, principal: Administrator, context: Context) -> None:
    """Undoes the last split that this message is part of. `409` if there is none."""
    with context.engine.begin() as connection:
        splitting.rejoin(connection, principal, scope_of(connection, principal), message_id)
    context.save_config()
