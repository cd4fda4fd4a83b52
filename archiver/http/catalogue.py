"""The texts of the pages, one file per language. English is complete; texts that another language lacks are in English."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from babel import Locale
from babel.numbers import format_decimal

_FOLDER = Path(__file__).parent / "texts"
DEFAULT = "en"
_REGIONS = {"en": "en_GB"}
"""Where dates and numbers differ within a language: days before months, 24 hours."""


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


@cache
def locale_of(language: str) -> Locale:
    return Locale.parse(_REGIONS.get(language, language))


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
    """`t("search.none")` with placeholders filled in.

    `n` selects the plural form by the rules of the language (CLDR): `key` for "one", `key_many` for "many" and "other", and
    `key_zero`, `key_two`, `key_few`, `key_other` in languages that distinguish more. A form that is missing is `key_many`.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self.locale = locale_of(language)
        self._texts = _load(DEFAULT) | _load(language)

    def __call__(self, key: str, **values: Any) -> str:
        if "n" in values:
            key = self._plural(key, values["n"])
            values["n"] = self.number(values["n"])
        return self._texts[key].format(**values)

    def _plural(self, key: str, count: float) -> str:
        form = self.locale.plural_form(count)
        forms = () if form == "one" else (f"{key}_{form}", f"{key}_many")
        return next((one for one in forms if one in self._texts), key)

    def has(self, key: str) -> bool:
        return key in self._texts

    def number(self, value: float, digits: int | None = None) -> str:
        """`digits` after the decimal sign; otherwise as many as it has, up to three."""
        pattern = None if digits is None else "#,##0" + ("." + "0" * digits if digits else "")
        return format_decimal(value, format=pattern, locale=self.locale)

    @property
    def direction(self) -> str:
        """`ltr` or `rtl`, for the `dir` of a page."""
        return self.locale.text_direction
