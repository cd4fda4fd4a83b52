"""How the text and the HTML of a mail are laid out on a page: quotes folded, frames as tall as their mail, plain mail in the
reader's theme. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUOTED_LINES = re.compile(r"(?:^>.*(?:\n|\Z))+", re.MULTILINE)
_QUOTE_SIGN = re.compile(r"^> ?", re.MULTILINE)
_DESIGN = re.compile(r"<(?:table|img|style|font|center)\b|\b(?:bgcolor|background|color)\b", re.IGNORECASE)
"""Mail with one of these chose its own colours or layout, and keeps its white sheet."""
_BLOCK = re.compile(r"<(/?)blockquote\b", re.IGNORECASE)
_FOLDED_LINES = 3
_FOLDED_HTML_CHARS = 300
_LINE_CHARS, _LINE_PIXELS = 90, 23
_LEAST_PIXELS, _DESIGNED_PIXELS, _MOST_PIXELS = 120, 560, 6_000


@dataclass(frozen=True, slots=True)
class TextPassage:
    text: str
    is_quoted: bool = False
    is_folded: bool = False
    lines: int = 0


def passages_of(text: str, wanted: str = "") -> list[TextPassage]:
    """The text in order, split into own and quoted passages. Long quotes are folded, unless they have a word of `wanted`."""
    words = [word for word in wanted.lower().split() if word.isalnum()]
    pieces: list[TextPassage] = []
    at = 0
    for quoted in _QUOTED_LINES.finditer(text):
        if quoted.start() > at:
            pieces.append(TextPassage(text[at : quoted.start()]))
        inside = _QUOTE_SIGN.sub("", quoted[0])
        lines = inside.count("\n") + (not inside.endswith("\n"))
        has_word = any(word in inside.lower() for word in words)
        pieces.append(TextPassage(inside, is_quoted=True, is_folded=lines > _FOLDED_LINES and not has_word, lines=lines))
        at = quoted.end()
    if len(pieces) == 1 and at >= len(text):  # nothing but a quote
        return [TextPassage(pieces[0].text, pieces[0].is_quoted, lines=pieces[0].lines)]
    return [*pieces, TextPassage(text[at:])] if at < len(text) else pieces


def is_plain(html: str) -> bool:
    """Whether safe HTML has no colours and no layout of its own, so that it can be shown in any theme."""
    return _DESIGN.search(html) is None


def frame_height(html: str, text: str) -> int:
    """An estimate in pixels, until a script has measured the frame, and without scripts."""
    lines = sum(1 + len(line) // _LINE_CHARS for line in text.split("\n"))
    least = _LEAST_PIXELS if is_plain(html) else _DESIGNED_PIXELS
    return min(max(lines * _LINE_PIXELS + 48, least), _MOST_PIXELS)


def fold_quotes(html: str, label: str) -> str:
    """Safe HTML, with each outermost long quote in a fold. `label` is safe HTML, too."""
    pieces, at, depth, begun = [], 0, 0, 0
    for tag in _BLOCK.finditer(html):
        if not tag[1]:
            if depth == 0:
                begun = tag.start()
            depth += 1
        elif depth:
            depth -= 1
            end = html.find(">", tag.end()) + 1
            if depth == 0 and end and end - begun > _FOLDED_HTML_CHARS:
                pieces += [html[at:begun], f"<details><summary>{label}</summary>", html[begun:end], "</details>"]
                at = end
    return "".join([*pieces, html[at:]])
