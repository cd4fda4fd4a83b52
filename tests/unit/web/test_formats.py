"""How values look."""

from archiver.search.snippets import Marked
from archiver.web.formats import marked, near_mark


def test_a_passage_begins_shortly_before_its_first_mark() -> None:
    text = "Dear reader, after many words of greeting the order was sent, & the order is paid"
    first, second = text.index("order"), text.rindex("order")
    passage = Marked(text, ((first, first + 5), (second, second + 5)))
    assert near_mark(passage) == "…the <mark>order</mark> was sent, &amp; the <mark>order</mark> is paid"


def test_a_passage_with_an_early_mark_or_none_is_shown_whole() -> None:
    early, without = Marked("An order <b>", ((3, 8),)), Marked("no mark at all in this long passage of text")
    for passage in (early, without, Marked()):
        assert near_mark(passage) == marked(passage)
    assert near_mark(Marked("x" * 90 + " order", ((91, 96),))) == "…<mark>order</mark>"
    assert marked(early) == "An <mark>order</mark> &lt;b&gt;"
