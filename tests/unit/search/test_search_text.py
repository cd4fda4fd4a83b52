"""Folding, segmentation, queries, matches and crops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.search.words import WORD, count_words, fold, fold_any, words
from archiver.search_server.index.settings import full_settings
from archiver.search_server.index.text import Segmenter, fold_value, folded_text
from archiver.search_server.query.formatting import crop_window, select
from archiver.search_server.query.matching import Match, Matcher, distance
from archiver.search_server.query.query_terms import ParsedQuery, Unit, parse_query

PLAIN = Segmenter()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("snake_case don't", ["snake", "case", "don", "t"]),
        ("Straße ÉCOLE Łódź", ["strasse", "ecole", "lodz"]),
        ("e\u0301cole", ["ecole"]),
        ("İstanbul ışık", ["istanbul", "isik"]),
        ("東京 tower", ["東", "京", "tower"]),
        ("ﬁle ①", ["file", "1"]),
        ("soft\u00adhyphen", ["softhyphen"]),
        ("…", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert PLAIN.words(text) == words


@given(st.text(max_size=80))
def test_places_are_known(text: str) -> None:
    folded = folded_text(text)
    places = [folded.origin(place) for place in range(len(folded.text) + 1)]
    assert places == sorted(places)
    assert all(0 <= place <= len(text) for place in places)
    for start, end, word in PLAIN.tokens(text):
        assert 0 <= start < end <= len(text)
        assert " " not in word


def test_places_of_characters_that_become_several() -> None:
    folded = folded_text("aßb e\u0301x")
    assert folded.text == "assb ex"
    assert [folded.origin(place) for place in (0, 1, 3, 4, 5, 6)] == [0, 1, 2, 3, 4, 6]


def test_values_are_compared_without_case_and_compatibility_forms() -> None:
    assert fold_value("  ÄPFEL ") == fold_value("äpfel") != fold_value("apfel")
    assert fold_value("ﬁle") == "file"


@given(st.text(st.sampled_from("abc"), max_size=7), st.text(st.sampled_from("abc"), max_size=7))
def test_distance_is_symmetric_and_bounded(left: str, right: str) -> None:
    found = distance(left, right, 2)
    assert found == distance(right, left, 2)
    assert (found == 0) == (left == right)
    if len(left) == len(right):
        assert found <= max(3, sum(one != other for one, other in zip(left, right, strict=True)))


def test_distance_counts_a_swap_as_one() -> None:
    assert distance("dragon", "dargon", 2) == 1
    assert distance("dragon", "dragons", 1) == 1
    assert distance("dragon", "wagon", 2) == 2
    assert distance("dragon", "elephant", 2) == 3


def units(text: str, **settings: object) -> list[tuple[tuple[str, ...], bool, bool, int]]:
    parsed = parse_query(text, full_settings(settings), PLAIN)
    return [(unit.words, unit.quoted, unit.prefix, unit.typos) for unit in parsed.units]


def test_queries() -> None:
    assert units("two words") == [(("two",), False, False, 0), (("words",), False, True, 1)]
    assert units("two words ") == [(("two",), False, False, 0), (("words",), False, False, 1)]
    assert units('a "quoted phrase" b') == [
        (("a",), False, False, 0),
        (("quoted", "phrase"), True, False, 0),
        (("b",), False, True, 0),
    ]
    assert units("alice@example.org") == [(("alice", "example", "org"), False, True, 0)]
    assert units('"open end') == [(("open", "end"), True, False, 0)]
    assert units("information", typoTolerance={"enabled": False}) == [(("information",), False, True, 0)]
    assert units("the house", stopWords=["the"]) == [(("house",), False, True, 1)]
    parsed = parse_query('x -y -"a b" c-d', full_settings({}), PLAIN)
    assert [unit.words for unit in parsed.negatives] == [("y",), ("a", "b")]
    assert [unit.words for unit in parsed.units] == [("x",), ("c", "d")]


@given(st.text(max_size=60))
def test_any_query_is_read(text: str) -> None:
    parse_query(text, full_settings({}), PLAIN)


def marks(text: str, *wanted: Unit) -> list[str]:
    return [text[match.start : match.end] for match in Matcher(ParsedQuery(wanted), PLAIN).find(text)]


def test_matches() -> None:
    assert marks("Dragon dragons, dragon!", Unit(("dragon",))) == ["Dragon", "dragon"]
    assert marks("Dragon dragons", Unit(("drag",), prefix=True)) == ["Drag", "drag"]
    assert marks("new york, New-York newyork", Unit(("new", "york"), quoted=True)) == ["new york", "New-York"]
    assert marks("the dargon", Unit(("dragon",), typos=1)) == ["dargon"]
    assert marks("an aardvark", Unit(("a",))) == []
    assert marks("東京都と京都", Unit(("京", "都"), quoted=True)) == ["京都", "京都"]
    assert marks("Straße", Unit(("strasse",))) == ["Straße"]


TEXT = "one two three four five six seven eight nine ten eleven twelve"


@pytest.mark.parametrize(
    ("word", "length", "expected"),
    [
        ("one", 3, "one two three"),
        ("six", 3, "five six seven"),
        ("twelve", 3, "ten eleven twelve"),
        (None, 2, "one two"),
        ("six", 50, TEXT),
    ],
)
def test_crops(word: str | None, length: int, expected: str) -> None:
    place = TEXT.find(word) if word else -1
    matches = [Match(place, place + len(word), 0)] if word else []
    start, end = crop_window(TEXT, matches, length)
    assert TEXT[start:end] == expected


def test_a_crop_prefers_different_words() -> None:
    text = "a a a x x x x x x x x x x x x a x b x x x x x x x x"
    first = [Match(0, 1, 0), Match(2, 3, 0), Match(4, 5, 0), Match(text.index("a x b"), text.index("a x b") + 1, 0)]
    second = Match(text.index("b"), text.index("b") + 1, 1)
    start, end = crop_window(text, [*first, second], 5)
    assert "a x b" in text[start:end]


def test_selecting_attributes() -> None:
    document = {"a": 1, "b": {"c": 2, "d": 3}, "e": [{"f": 1, "g": 2}, {"f": 3}], "x.y": 4}
    assert select(document, None) == document
    assert select(document, ["*"]) == document
    assert select(document, ["a", "b.c"]) == {"a": 1, "b": {"c": 2}}
    assert select(document, ["e.f"]) == {"e": [{"f": 1}, {"f": 3}]}
    assert select(document, ["x.y", "none"]) == {"x.y": 4}


MIXED = st.text(st.sampled_from("abéÉeĆ\u0301\u0338ßıİςΣ 東のไ่ทย.-_1٣ﬁ①ąłآ\u00ad<=>"), max_size=30)


@given(st.one_of(st.text(max_size=60), MIXED))
def test_folding_only_what_is_not_ascii_is_folding_the_whole(text: str) -> None:
    assert fold(text).lower() == fold_any(text).lower()


LETTERS = st.text("abcd", min_size=1, max_size=7)


@given(LETTERS, LETTERS, st.sampled_from([1, 2]))
def test_every_word_within_its_typos_is_marked(word: str, typed: str, typos: int) -> None:
    matcher = Matcher(ParsedQuery((Unit((typed,), typos=typos),)), PLAIN)
    assert bool(matcher.find(word)) == (distance(word, typed, typos) <= typos)


@given(st.lists(st.sampled_from(["one", "two", "x", "y_z", "–"]), max_size=60), st.integers(1, 6))
def test_a_crop_is_the_window_with_the_most_matches(words: list[str], length: int) -> None:
    text = " ".join(words)
    matches = Matcher(ParsedQuery((Unit(("one",)), Unit(("two",)))), PLAIN).find(text)
    start, end = crop_window(text, matches, length)
    shown = [match.unit for match in matches if match.start >= start and match.end <= end]
    spots = [match.start() for match in WORD.finditer(text)]
    for place in range(len(matches)):
        first = spots.index(matches[place].start)
        beyond = spots[first + length] if first + length < len(spots) else len(text)
        inside = [match.unit for match in matches[place:] if match.end <= beyond]
        assert len(set(shown)) >= len(set(inside))


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_words_are_counted_without_cutting_them_out(text: str) -> None:
    assert count_words(text) == len(words(text))
