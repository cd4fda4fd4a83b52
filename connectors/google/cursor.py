"""The position in a mailbox: the sync state of Gmail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.base import Json

PAGE_KEY = "google page"
LABELS_KEY = "google labels"
"""Without a colon: these are meaningful only for the mailbox itself."""


@dataclass(frozen=True, slots=True)
class GoogleCursor:
    history: str = ""
    """The historyId up to which everything is archived; during a listing, the one at its start."""
    rules: str = ""
    """Digest of the rules under which it was reached; if they change, the mailbox is listed again."""
    labels: Mapping[str, str] | None = None
    """The names of user labels by id; None if they have not been requested yet."""


@dataclass(frozen=True, slots=True)
class ListingPage:
    """An unfinished listing: its current part, and what is left of the current page."""

    part: str
    next: str | None
    """The token of the next page; empty for the first page of this part."""
    todo: tuple[str, ...] = ()


def state_key(address: str) -> str:
    return f"google:{address.lower()}"


def as_state(address: str, cursor: GoogleCursor, page: ListingPage | None) -> dict[str, Json]:
    goes_on = {"part": page.part, "next": page.next, "todo": list(page.todo)} if page else None
    return {
        state_key(address): {"history": cursor.history, "rules": cursor.rules},
        LABELS_KEY: dict(cursor.labels) if cursor.labels is not None else None,
        PAGE_KEY: goes_on,
    }


def read_cursor(state: Mapping[str, Json], address: str) -> GoogleCursor:
    """The start of the mailbox if there is no usable state."""
    match state.get(state_key(address)):
        case {"history": str(history), "rules": str(rules)} if history.isdigit():
            labels = state.get(LABELS_KEY)
            names = {str(key): str(name) for key, name in labels.items()} if isinstance(labels, dict) else None
            return GoogleCursor(history, rules, names)
    return GoogleCursor()


def read_page(state: Mapping[str, Json]) -> ListingPage | None:
    match state.get(PAGE_KEY):
        case {"part": str(part), "next": None | str() as token, "todo": list(todo)}:
            return ListingPage(part, token, tuple(map(str, todo)))
    return None
