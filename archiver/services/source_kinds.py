"""The kinds of sources, and whether values are what a kind takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from archiver.config import check_schedule
from archiver.errors import UsageError
from connectors.kinds import KINDS, Kind

WATCHED = frozenset(kind.name for kind in KINDS.values() if kind.watches)
RUNS_ONCE = frozenset(kind.name for kind in KINDS.values() if kind.runs_once)


def kinds() -> list[Kind]:
    return list(KINDS.values())


def kind_of(name: str) -> Kind:
    if name not in KINDS:
        raise UsageError(f"there is no kind of source called {name!r}; there are: {', '.join(KINDS)}")
    return KINDS[name]


def validate(kind: Kind, settings: Mapping[str, Any], secrets: Mapping[str, Any]) -> tuple[BaseModel, BaseModel]:
    """Raises UsageError with a line for each wrong value; a secret's value is never shown."""
    checked = _validated(kind, kind.settings, settings, "setting")
    schedule = getattr(checked, "schedule", None)
    if schedule:
        try:
            check_schedule(schedule)
        except ValueError as error:
            raise UsageError(f"the setting schedule={schedule!r} of {kind.name}: expected {error}") from None
    return checked, _validated(kind, kind.secrets, secrets, "secret")


def _validated(kind: Kind, model: type[BaseModel], values: Mapping[str, Any], what: str) -> BaseModel:
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        known = ", ".join(model.model_fields) or "none"
        lines = []
        for item in error.errors(include_input=what == "setting"):
            name = ".".join(map(str, item["loc"]))
            given = f"={item['input']!r}" if what == "setting" and item["type"] not in ("missing", "extra_forbidden") else ""
            extra = f" ({what}s of {kind.name}: {known})" if item["type"] == "extra_forbidden" else ""
            lines.append(f"the {what} {name}{given} of {kind.name}: {item['msg'].removeprefix('Value error, ')}{extra}")
        raise UsageError("\n".join(lines)) from None
