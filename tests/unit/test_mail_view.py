"""How mail is laid out on a page: quotes, frames, themes."""

from __future__ import annotations

import pytest

from archiver.http.mail_view import fold_quotes, frame_height, is_plain, passages_of


def test_long_quotes_are_folded_and_short_ones_are_not() -> None:
    text = "Yes.\n> one line\nNo.\n" + "> far\n" * 5 + "Bye"
    found = [(one.text, one.is_quoted, one.is_folded, one.lines) for one in passages_of(text)]
    assert found == [
        ("Yes.\n", False, False, 0),
        ("one line\n", True, False, 1),
        ("No.\n", False, False, 0),
        ("far\n" * 5, True, True, 5),
        ("Bye", False, False, 0),
    ]


def test_a_quote_with_a_word_of_the_search_is_open_and_so_is_a_mail_of_quotes_alone() -> None:
    quote = "> a\n> b\n> Heron\n> c\n> d\n"
    assert not passages_of(f"Hi\n{quote}", "lamp heron")[1].is_folded
    assert passages_of(f"Hi\n{quote}", "lamp")[1].is_folded
    assert [one.is_folded for one in passages_of(quote)] == [False]
    assert passages_of("") == []


@pytest.mark.parametrize(
    ("html", "plain"),
    [
        ("<p>Hello</p>", True),
        ("<div>Hello<br>there</div>", True),
        ("<table><tr><td>x</td></tr></table>", False),
        ('<p style="color:red">x</p>', False),
        ('<body bgcolor="white">x</body>', False),
        ("<img alt>", False),
    ],
)
def test_mail_with_colours_or_layout_keeps_its_sheet(html: str, plain: bool) -> None:
    assert is_plain(html) is plain


def test_outermost_long_quotes_are_folded_once() -> None:
    inner = f"<blockquote>{'x' * 400}</blockquote>"
    html = f"<p>new</p><blockquote>a{inner}</blockquote><p>end</p><blockquote>short</blockquote>"
    folded = fold_quotes(html, "Quoted")
    assert folded.count("<details>") == folded.count("</details>") == 1
    assert folded.startswith("<p>new</p><details><summary>Quoted</summary><blockquote>a<blockquote>")
    assert folded.endswith("</blockquote></details><p>end</p><blockquote>short</blockquote>")


@pytest.mark.parametrize("html", ["</blockquote>" * 5, "<blockquote>" * 5, "<blockquote", "x</blockquote", ""])
def test_unbalanced_quotes_are_left_as_they_are(html: str) -> None:
    assert fold_quotes(html, "Quoted") == html


def test_a_frame_is_as_tall_as_its_mail_within_limits() -> None:
    assert frame_height("<p>x</p>", "x") == 120
    assert frame_height("<p>x</p>", "x\n" * 40) > 800
    assert frame_height("<table></table>", "x") == 560
    assert frame_height("<p>x</p>", "x\n" * 100_000) == 6_000
