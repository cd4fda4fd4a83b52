"""All languages say the same, and nothing that a page asks for is missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from babel import Locale

from archiver import http
from archiver.http.catalogue import Texts, languages, locale_of

_WEB = Path(http.__file__).parent
_ASKED = re.compile(r"""\bt\(\s*["']([a-z_0-9]+\.[a-z_0-9-]+)["']\s*[,)]""")


_COMPLETE = ("en", "de")
"""Whoever adds a text writes it in these. Translations into the others may follow a little later, but not much."""
_LATER = 40
_FORMS = ("_zero", "_two", "_few", "_many", "_other")


def _singular(name: str) -> str:
    return next((name.removesuffix(form) for form in _FORMS if name.endswith(form)), name)


def texts(language: str) -> dict[str, str]:
    found = tomllib.loads((_WEB / "texts" / f"{language}.toml").read_text())
    return {
        f"{group}.{name}": text for group, inner in found.items() if isinstance(inner, dict) for name, text in inner.items()
    }


def _places(text: str) -> list[str]:
    return sorted(set(re.findall(r"\{(\w+)\}", text)))


@pytest.mark.parametrize("language", _COMPLETE)
def test_no_text_is_missing(language: str) -> None:
    found = {_singular(name) for name in texts(language)}
    assert {_singular(name) for name in texts("en")} - found == set()


@pytest.mark.parametrize("language", sorted(languages().keys() - _COMPLETE))
def test_few_texts_wait_for_their_translation(language: str) -> None:
    missing = texts("en").keys() - texts(language).keys()
    assert len(missing) <= _LATER, sorted(missing)


@pytest.mark.parametrize("language", sorted(languages()))
def test_every_text_has_the_places_of_the_english_one(language: str) -> None:
    """A singular may leave out the number: "one message"."""
    english, other = texts("en"), texts(language)
    assert {_singular(name) for name in other} - {_singular(name) for name in english} == set(), "texts that no page asks for"
    for name, text in other.items():
        wanted = english.get(name) or english.get(f"{_singular(name)}_many") or english[_singular(name)]
        assert set(_places(wanted)) - {"n"} <= set(_places(text)) <= {*_places(wanted), "n"}, name
        assert text.strip(), name


@pytest.mark.parametrize("language", _COMPLETE)
def test_every_plural_has_its_forms(language: str) -> None:
    """`key` for one and `key_many` for the rest, wherever English has both."""
    found = texts(language)
    for name in texts("en"):
        if name.endswith("_many"):
            assert name in found, name
            assert name.removesuffix("_many") in found, name


@pytest.mark.parametrize(
    ("language", "zero", "one", "two"),
    [
        ("en", "0 messages", "1 message", "2 messages"),
        ("de", "0 Nachrichten", "1 Nachricht", "2 Nachrichten"),
        ("fr", "0 message", "1 message", "2 messages"),
        ("es", "0 mensajes", "1 mensaje", "2 mensajes"),
    ],
)
def test_plurals_follow_the_language(language: str, zero: str, one: str, two: str) -> None:
    t = Texts(language)
    assert [t("search.total", n=n) for n in (0, 1, 2)] == [zero, one, two]


def test_a_language_with_more_forms_finds_them() -> None:
    t = Texts("en")
    t.locale = Locale.parse("pl")
    t._texts = {"mail": "{n} list", "mail_few": "{n} listy", "mail_many": "{n} listów"}
    assert [t("mail", n=n) for n in (1, 2, 5, 22, 0)] == ["1 list", "2 listy", "5 listów", "22 listy", "0 listów"]


def test_the_direction_of_a_page_is_that_of_its_language() -> None:
    assert Texts("en").direction == "ltr"
    assert locale_of("ar").text_direction == locale_of("he").text_direction == "rtl"


def test_styles_have_no_left_and_right() -> None:
    """So that the layout mirrors with the direction of the page."""
    physical = re.compile(
        r"(?:margin|padding|border)-(?:left|right)\b|text-align: (?:left|right)\b|[ {;](?:left|right): |float:"
    )
    lines = (_WEB / "static" / "archiver.css").read_text().splitlines()
    assert [line for line in lines if physical.search(line)] == [], "use -inline-start and -inline-end, start and end"


@pytest.mark.parametrize(
    "path", sorted([*_WEB.glob("templates/**/*.html"), *_WEB.glob("pages/*.py")]), ids=lambda path: path.name
)
def test_whatever_a_page_asks_for_is_there(path: Path) -> None:
    missing = set(_ASKED.findall(path.read_text())) - texts("en").keys()
    assert not missing
