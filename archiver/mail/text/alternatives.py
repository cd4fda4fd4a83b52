"""Combines the plain and the HTML form of a text: the form that is shown, and what only the other one contains.

The recipient has seen one of them, and searches for its words. So the words of both are part of the text: first
the form that says more, then those lines of the other one whose words it lacks.
"""

import re
from collections.abc import Sequence

from archiver.mail.text.marks import Mark, MarkedText, MarkSpan

# Scripts without spaces between words are compared character by character: the two forms break lines at different places.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]++")
# URLs are not visible to the reader, and trackers use different ones in each form.
_ADDRESS = re.compile(r"\(?\b[a-z][a-z0-9+.-]{1,15}+:[^\s<>()]++\)?", re.IGNORECASE)


def combine(plain: Sequence[MarkedText], html: Sequence[MarkedText], *, prefer_html: bool) -> list[MarkedText]:
    """The form that is shown, followed by the lines of the other form that have words of their own, which are marked.

    `prefer_html`: the plain form is so short that it may only say that there is HTML.
    """
    if not plain or not html:
        return list(plain or html)
    plain_words, html_words = _words(plain), _words(html)
    only_html = html_words - plain_words
    is_html_shown = len(only_html) * 2 > len(html_words) or (prefer_html and _length(html) > _length(plain))
    if is_html_shown:
        return [*html, *_lines_with(plain_words - html_words, plain)]
    return [*plain, *_lines_with(only_html, html)]


def _length(texts: Sequence[MarkedText]) -> int:
    return sum(len(marked.text.strip()) for marked in texts)


def _words(texts: Sequence[MarkedText]) -> set[str]:
    return {word for marked in texts for word in _words_of(marked.text)}


def _words_of(text: str) -> list[str]:
    return _WORD.findall(_without_addresses(text).casefold())


def _without_addresses(text: str) -> str:
    return _ADDRESS.sub(" ", text) if ":" in text else text


def _lines_with(words: set[str], texts: Sequence[MarkedText]) -> list[MarkedText]:
    """Returns whole lines, so that phrases can be found."""
    if not words:
        return []
    lines = [" ".join(_without_addresses(line).split()) for marked in texts for line in marked.text.split("\n")]
    found = "\n".join(line for line in lines if line and not words.isdisjoint(_WORD.findall(line.casefold())))
    return [MarkedText(found, (MarkSpan(0, len(found), Mark.ALTERNATIVE),))] if found else []
