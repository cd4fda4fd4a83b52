"""How values look."""

import pytest

from archiver.http.catalogue import Texts
from archiver.http.formats import highlight, highlight_near_mark, size
from archiver.search.snippets import MatchedText


def test_a_passage_begins_shortly_before_its_first_mark() -> None:
    text = "Dear reader, after many words of greeting the order was sent, & the order is paid"
    first, second = text.index("order"), text.rindex("order")
    passage = MatchedText(text, ((first, first + 5), (second, second + 5)))
    assert highlight_near_mark(passage) == "…the <mark>order</mark> was sent, &amp; the <mark>order</mark> is paid"


def test_a_passage_with_an_early_mark_or_none_is_shown_whole() -> None:
    early, without = MatchedText("An order <b>", ((3, 8),)), MatchedText("no mark at all in this long passage of text")
    for passage in (early, without, MatchedText()):
        assert highlight_near_mark(passage) == highlight(passage)
    assert highlight_near_mark(MatchedText("x" * 90 + " order", ((91, 96),))) == "…<mark>order</mark>"
    assert highlight(early) == "An <mark>order</mark> &lt;b&gt;"


@pytest.mark.parametrize(
    ("language", "count", "expected"),
    [
        ("en", 0, "0 bytes"),
        ("en", 1, "1 byte"),
        ("en", 999, "999 bytes"),
        ("en", 1000, "1.0 kB"),
        ("en", 123_456, "123 kB"),
        ("en", 10**19, "10000 PB"),
        ("de", 1, "1 Byte"),
        ("de", 1500, "1,5 kB"),
    ],
)
def test_a_size_has_the_unit_that_fits(language: str, count: int, expected: str) -> None:
    assert size(Texts(language), count) == expected
