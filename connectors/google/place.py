"""Where we are in a mailbox: the sync state of Gmail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.base import Json

PAGE_KEY = "google page"
LABELS_KEY = "google labels"
"""Without a colon: these are of no use to anybody but the mailbox itself."""


@dataclass(frozen=True, slots=True)
class Place:
    history: str = ""
    """The historyId up to which everything is in; while a listing goes on, the one it began at."""
    rules: str = ""
    """The rules under which it was reached: under others, the mailbox is listed again."""
    labels: Mapping[str, str] | None = None
    """The names of user labels, by id; None if nobody has asked yet."""


@dataclass(frozen=True, slots=True)
class Page:
    """A listing that goes on: which part of it, and what of the current page is still to be fetched."""

    part: str
    next: str | None
    """The token of the page that follows; empty for the first page of this part."""
    todo: tuple[str, ...] = ()


def state_key(address: str) -> str:
    return f"google:{address.lower()}"


def as_state(address: str, place: Place, page: Page | None) -> dict[str, Json]:
    goes_on = {"part": page.part, "next": page.next, "todo": list(page.todo)} if page else None
    return {
        state_key(address): {"history": place.history, "rules": place.rules},
        LABELS_KEY: dict(place.labels) if place.labels is not None else None,
        PAGE_KEY: goes_on,
    }


def read_place(state: Mapping[str, Json], address: str) -> Place:
    """The beginning, if there is no state, or none that we could use."""
    match state.get(state_key(address)):
        case {"history": str(history), "rules": str(rules)} if history.isdigit():
            labels = state.get(LABELS_KEY)
            names = {str(key): str(name) for key, name in labels.items()} if isinstance(labels, dict) else None
            return Place(history, rules, names)
    return Place()


def read_page(state: Mapping[str, Json]) -> Page | None:
    match state.get(PAGE_KEY):
        case {"part": str(part), "next": None | str() as token, "todo": list(todo)}:
            return Page(part, token, tuple(map(str, todo)))
    return None
