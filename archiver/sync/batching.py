"""Combines small batches, so that a hundred folders with a few messages each do not cost a hundred disk syncs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from archiver.db.values import clean
from connectors.base import BATCH_BYTES, BATCH_MESSAGES, Batch, Json, RawMessage

_SMALL_MESSAGES = BATCH_MESSAGES // 4
_SMALL_BYTES = BATCH_BYTES // 4
_SMALL_LISTING = 1000
_SECONDS = 1.0
"""A slow source must not delay the storing of what it has already delivered."""

T = TypeVar("T")


@dataclass(slots=True)
class Gathered:
    batches: list[Batch] = field(default_factory=list)
    is_all: bool = False
    """The connector has no more batches."""
    error: Exception | None = None
    """What the connector raised after these batches. The batches are stored first."""


def gather(batches: Iterator[Batch]) -> Gathered:
    """Takes the next batch and, if it is small, the batches that follow, until together they are worth storing."""
    gathered, began = Gathered(), time.monotonic()
    messages = size = 0
    try:
        for batch in batches:
            gathered.batches.append(batch)
            messages += len(batch.messages) + len(batch.failed) + len(batch.skipped)
            size += sum(map(_size, batch.messages))
            if messages >= _SMALL_MESSAGES or size >= _SMALL_BYTES or not _is_plain(batch):
                return gathered
            if time.monotonic() - began > _SECONDS:
                return gathered
    except Exception as error:  # noqa: BLE001 - re-raised once the batches are stored
        gathered.error = error
    else:
        gathered.is_all = True
    return gathered


def _is_plain(batch: Batch) -> bool:
    """False for batches that are stored alone: the order of changes matters, and a long listing is enough work by itself."""
    return not batch.changes and sum(len(listing.provider_keys) for listing in batch.listings) < _SMALL_LISTING


def _size(message: RawMessage) -> int:
    return len(message.data) if message.data is not None else _SMALL_BYTES


def join(batches: Sequence[Batch]) -> Batch:
    """Merges the batches into one, in order."""
    if len(batches) == 1:
        return batches[0]
    state: dict[str, Json] = {}
    for batch in batches:
        state |= batch.state
    return Batch(
        messages=tuple(message for batch in batches for message in batch.messages),
        changes=tuple(change for batch in batches for change in batch.changes),
        skipped=tuple(skipped for batch in batches for skipped in batch.skipped),
        failed=tuple(failed for batch in batches for failed in batch.failed),
        listings=tuple(listing for batch in batches for listing in batch.listings),
        state=state,
    )


def clean_batch(batch: Batch) -> Batch:
    """Replaces names and reasons that Postgres can't store, so that a repeated report compares equal to the stored one.

    Provider keys are left as they are: `fit_key` keeps different keys distinct.
    """
    return replace(
        batch,
        messages=_clean_items(batch.messages, "folder", "flags", "labels", "recipients"),
        changes=_clean_items(batch.changes, "folder", "flags", "labels"),
        skipped=_clean_items(batch.skipped, "folder", "rule"),
        failed=_clean_items(batch.failed, "folder", "reason", "detail"),
        listings=_clean_items(batch.listings, "folder"),
        state=clean(batch.state),
    )


def _clean_items(items: Iterable[T], *names: str) -> tuple[T, ...]:
    return tuple(_with(item, {name: clean(getattr(item, name)) for name in names}) for item in items)


def _with(item: Any, values: dict[str, Any]) -> Any:
    changed = {name: value for name, value in values.items() if value != getattr(item, name)}
    return replace(item, **changed) if changed else item
