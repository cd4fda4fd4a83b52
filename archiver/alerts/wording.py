"""The texts of alerts, in each language, from texts/*.toml: a title and an advice for each rule."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "texts"
DEFAULT_LANGUAGE = "en"


@cache
def load_texts(language: str) -> dict[str, dict[str, str]]:
    """Tables `title`, `advice` and `notice`, by rule; English for a language without texts."""
    path = _FOLDER / f"{language}.toml"
    if language not in known_languages():
        path = _FOLDER / f"{DEFAULT_LANGUAGE}.toml"
    return tomllib.loads(path.read_text("utf-8"))


@cache
def known_languages() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def title(rule: str, subject: str, details: Mapping[str, Any], language: str | None = None) -> str:
    """A rule may have a title of its own for one subject, and one for a single thing (`n` = 1)."""
    titles = load_texts(language or DEFAULT_LANGUAGE)["title"]
    keys = (f"{rule}_{subject}" if subject else "", f"{rule}_one" if details.get("n") == 1 else "", rule)
    found = next((titles[key] for key in keys if key in titles), rule.replace("_", " "))
    return _fill(found, details)


def advice(rule: str, details: Mapping[str, Any], language: str | None = None) -> str:
    return _fill(load_texts(language or DEFAULT_LANGUAGE)["advice"].get(rule, ""), details)


def notice(name: str, language: str | None = None, **values: Any) -> str:
    return _fill(load_texts(language or DEFAULT_LANGUAGE)["notice"][name], values)


def _fill(template: str, values: Mapping[str, Any]) -> str:
    """A missing value shows its name: an alert of an older version must not be lost for it."""
    return template.format_map(_Values(values)).strip()


class _Values(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"
