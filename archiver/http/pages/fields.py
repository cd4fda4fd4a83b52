"""Generates the form of each kind of source from its settings: names, descriptions, allowed values."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

_RARE = frozenset({"schedule", "date_from", "date_to"})
_SPELT = {"tls": "TLS", "ca": "CA", "id": "ID", "url": "URL", "oauth": "OAuth", "imap": "IMAP", "csv": "CSV", "json": "JSON"}


@dataclass(frozen=True, slots=True)
class FormField:
    name: str
    title: str
    hint: str
    kind: str
    """text, number, check, choice, lines, document, secret"""
    value: Any
    required: bool
    choices: tuple[str, ...] = ()
    is_common: bool = False
    """Every kind of source has this field: mail selection and schedule."""


def fields_of(kind: Any, values: Mapping[str, Any] | None = None) -> list[FormField]:
    """Nested settings, which a form cannot show, are available only on the command line."""
    values = values or {}
    common = _common(kind.settings)
    found = []
    for name, info in kind.settings.model_fields.items():
        shape = _shape(info.annotation)
        if shape is not None:
            value = values.get(name, None if info.is_required() else info.get_default(call_default_factory=True))
            found.append(_field(name, info, shape, value, is_common=name in common))
    for name, info in kind.secrets.model_fields.items():
        found.append(_field(name, info, ("secret", ()), "", is_common=False))
    return sorted(found, key=lambda field: (field.is_common, not field.required))


def parse_values(kind: Any, form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and secrets of a submitted form; empty fields are omitted."""
    settings: dict[str, Any] = {}
    secrets: dict[str, Any] = {}
    for field in fields_of(kind):
        text = form.get(f"{'secret' if field.kind == 'secret' else 'setting'}.{field.name}", "")
        if field.kind == "secret":
            secrets |= {field.name: text} if text else {}
        elif field.kind == "check":
            settings[field.name] = text == "on"
        elif field.kind == "lines":
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            settings |= {field.name: lines} if lines else {}
        elif text.strip():
            settings[field.name] = text.strip()
    return settings, secrets


def _field(name: str, info: FieldInfo, shape: tuple[str, tuple[str, ...]], value: Any, *, is_common: bool) -> FormField:
    if shape[0] == "lines":
        value = "\n".join(map(str, value or ()))
    words = [_SPELT.get(word, word) for word in name.split("_")]
    title = info.title or " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])
    hint = info.description or ""
    required = info.is_required() and shape[0] != "check"
    return FormField(
        name, title, hint[:1].upper() + hint[1:], shape[0], "" if value is None else value, required, shape[1], is_common
    )


def _common(settings: type[BaseModel]) -> frozenset[str]:
    base = next((one for one in settings.__mro__ if one.__name__ == "SourceSettings"), None)
    return frozenset(base.model_fields) if base is not None and issubclass(base, BaseModel) else _RARE


def _shape(annotation: Any) -> tuple[str, tuple[str, ...]] | None:
    origin = get_origin(annotation)
    if origin is Annotated:
        if any(type(mark).__name__ == "Multiline" for mark in get_args(annotation)[1:]):
            return "document", ()
        return _shape(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        inner = [one for one in get_args(annotation) if one is not type(None)]
        shape = _shape(inner[0]) if len(inner) == 1 else None
        return ("choice", ("", *shape[1])) if shape and shape[0] == "choice" else shape  # none of them may be chosen
    if origin is Literal:
        return "choice", tuple(map(str, get_args(annotation)))
    if origin in (tuple, list, frozenset, set):
        return "lines", ()
    if annotation is bool:
        return "check", ()
    if annotation in (int, float):
        return "number", ()
    if annotation is SecretStr:
        return "secret", ()
    if isinstance(annotation, type) and issubclass(annotation, str | Path):
        return "text", ()
    if isinstance(annotation, type) and not issubclass(annotation, BaseModel) and annotation.__module__ == "datetime":
        return "text", ()
    return None
