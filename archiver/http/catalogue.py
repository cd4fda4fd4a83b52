"""The texts of the pages, one file per language. English is complete; texts that another language lacks are in English."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "texts"
DEFAULT = "en"


@cache
def languages() -> dict[str, str]:
    """Languages by code, each with its own name."""
    return {path.stem: _load(path.stem)["language"] for path in sorted(_FOLDER.glob("*.toml"))}


@cache
def _load(language: str) -> dict[str, str]:
    return _flat(tomllib.loads((_FOLDER / f"{language}.toml").read_text("utf-8")))


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": str(value)}
    return found


def choose(wanted: str | None, accepted: str) -> str:
    """The user's own choice, otherwise the browser's first language that has texts."""
    if wanted in languages():
        return str(wanted)
    for one in accepted.split(","):
        code = one.partition(";")[0].strip().lower().partition("-")[0]
        if code in languages():
            return code
    return DEFAULT


class Texts:
    """`t("search.none")` with placeholders filled in; `n` selects the singular (`key`) or the plural (`key_many`)."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = _load(DEFAULT) | _load(language)

    def __call__(self, key: str, **values: Any) -> str:
        if "n" in values and values["n"] != 1 and f"{key}_many" in self._texts:
            key = f"{key}_many"
        if "n" in values:
            values["n"] = self.number(values["n"])
        return self._texts[key].format(**values)

    def has(self, key: str) -> bool:
        return key in self._texts

    def number(self, value: float) -> str:
        text = f"{value:,}"
        return text.replace(",", ".") if self.language == "de" else text
