"""Both languages say the same, and nothing that a page asks for is missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from archiver import http

_WEB = Path(http.__file__).parent
_ASKED = re.compile(r"""\bt\(\s*["']([a-z_0-9]+\.[a-z_0-9-]+)["']\s*[,)]""")


def texts(language: str) -> dict[str, str]:
    found = tomllib.loads((_WEB / "texts" / f"{language}.toml").read_text())
    return {
        f"{group}.{name}": text for group, inner in found.items() if isinstance(inner, dict) for name, text in inner.items()
    }


def test_the_same_texts_with_the_same_places_in_them() -> None:
    english, german = texts("en"), texts("de")
    assert english.keys() == german.keys()
    for name, text in english.items():
        assert set(re.findall(r"\{(\w+)\}", text)) == set(re.findall(r"\{(\w+)\}", german[name])), name


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_plural_has_its_singular(language: str) -> None:
    found = texts(language)
    assert [name for name in found if name.endswith("_many") and name.removesuffix("_many") not in found] == []


@pytest.mark.parametrize(
    "path", sorted([*_WEB.glob("templates/**/*.html"), *_WEB.glob("pages/*.py")]), ids=lambda path: path.name
)
def test_whatever_a_page_asks_for_is_there(path: Path) -> None:
    missing = set(_ASKED.findall(path.read_text())) - texts("en").keys()
    assert not missing
