"""The kinds of sources, and the validation of their values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from archiver.config import check_schedule
from archiver.errors import UsageError
from connectors.extras import missing_extra
from connectors.kinds import KINDS, ConnectorKind
from connectors.pace import Pace

WATCHED = frozenset(kind.name for kind in KINDS.values() if kind.watches)
RUNS_ONCE = frozenset(kind.name for kind in KINDS.values() if kind.runs_once)


def kinds(*, samples: bool = True) -> list[ConnectorKind]:
    """All kinds, or without those with generated mail."""
    return [kind for kind in KINDS.values() if samples or not kind.is_sample]


def kind_of(name: str, *, samples: bool = True) -> ConnectorKind:
    found = {kind.name: kind for kind in kinds(samples=samples)}
    if name not in found:
        raise UsageError(f"there is no source kind {name!r}; available kinds: {', '.join(found)}")
    return found[name]


def server_paths(kind: ConnectorKind) -> frozenset[str]:
    """The settings that name files on this server, found by their type."""
    return frozenset(name for name, info in kind.settings.model_fields.items() if _holds_path(info.annotation))


def refuse_server_paths(kind: ConnectorKind, settings: Mapping[str, Any]) -> None:
    """A client of the pages or the API may not name server files: it could have their content sent to a host of its choice."""
    named = sorted(name for name in server_paths(kind) if _names_path(kind, name, settings.get(name)))
    if named:
        raise UsageError(
            f"{', '.join(named)}: paths on the server can only be set on the server itself (`archiver source`);"
            " enter the content instead, or upload the file"
        )


def schema(kind: ConnectorKind) -> dict[str, Any]:
    """The settings as JSON schema, without those that name files on the server."""
    full, hidden = kind.settings.model_json_schema(), server_paths(kind)
    shown = {name: value for name, value in full["properties"].items() if name not in hidden}
    return {**full, "properties": shown, "required": [name for name in full.get("required", ()) if name in shown]}


def _names_path(kind: ConnectorKind, name: str, given: Any) -> bool:
    if given is None:
        return False
    try:
        return _is_path(TypeAdapter(kind.settings.model_fields[name].rebuild_annotation()).validate_python(given))
    except ValidationError:
        return True


def _is_path(value: Any) -> bool:
    if isinstance(value, BaseModel):
        return any(_is_path(one) for _, one in value)
    if isinstance(value, Mapping):
        return any(map(_is_path, value.values()))
    return any(map(_is_path, value)) if isinstance(value, tuple | list | set | frozenset) else isinstance(value, PurePath)


def _holds_path(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_holds_path(info.annotation) for info in annotation.model_fields.values())
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return True
    return any(_holds_path(argument) for argument in get_args(annotation))


def check_installed(kind: ConnectorKind) -> None:
    """Raises UsageError if a package that the kind needs is not installed."""
    if problem := missing_extra(kind.extra):
        raise UsageError(f"a source of kind {kind.name} can't be used: {problem}")


def validate(kind: ConnectorKind, settings: Mapping[str, Any], secrets: Mapping[str, Any]) -> tuple[BaseModel, BaseModel]:
    """Raises UsageError with one line per invalid value; a secret's value is never shown."""
    check_installed(kind)
    checked = _validate(kind, kind.settings, settings, "setting")
    schedule = getattr(checked, "schedule", None)
    if schedule:
        try:
            check_schedule(schedule)
        except ValueError as error:
            raise UsageError(f"the setting schedule={schedule!r} of {kind.name}: expected {error}") from None
    return checked, _validate(kind, kind.secrets, secrets, "secret")


def _validate(kind: ConnectorKind, model: type[BaseModel], values: Mapping[str, Any], what: str) -> BaseModel:
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


def pace_of(kind: str, settings: Mapping[str, Any]) -> Pace:
    """How fast the provider of a source lets mail be read. Unlimited for a source whose stored settings are no longer valid."""
    chosen = KINDS.get(kind)
    try:
        return chosen.pace(chosen.settings.model_validate(settings)) if chosen else Pace()
    except ValidationError:
        return Pace()
