"""Extracts text from HTML with tens of thousands of tags, on which a real parser takes quadratic time.

A single pass over the tags with regular expressions: less precise, but linear for any input.
"""

import html as html_module
import re

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*+)([^<>]*+)>")
_HREF = re.compile(r"\shref\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", re.IGNORECASE)
_LONG_NUMBERS = re.compile(r"&#\d{8,}+;?")  # longer numbers are no characters, and `int` rejects thousands of digits
_SPACES = re.compile(r"[ \t\r\n\f]+")
_BLOCKS = frozenset({
    "address", "article", "blockquote", "br", "center", "dd", "div", "dl", "dt", "footer", "form", "h1", "h2", "h3", "h4", "h5",
    "h6", "header", "hr", "li", "ol", "option", "p", "pre", "section", "table", "title", "tr", "ul",
})  # fmt: skip
_CELLS = frozenset({"td", "th"})
_LINE = "\0"  # stands for a line break until white space is collapsed


def soup_to_text(html: str) -> str:
    for opening, closing in (("<!--", "-->"), ("<script", "</script"), ("<style", "</style")):
        html = _without(html, opening, closing)
    pieces: list[str] = []
    at = 0
    for tag in _TAG.finditer(html):
        pieces.append(html[at : tag.start()])
        at = tag.end()
        name = tag[2].lower()
        if name in _BLOCKS:
            pieces.append(_LINE)
        elif name in _CELLS:
            pieces.append(" ")
        elif name == "a" and not tag[1] and (href := _HREF.search(tag[3])) is not None:
            pieces.append(f"({href[1] or href[2] or href[3]}) ")
    pieces.append(html[at:])
    text = html_module.unescape(_LONG_NUMBERS.sub("\ufffd", _SPACES.sub(" ", "".join(pieces))))
    return "\n".join(line for line in map(str.strip, text.split(_LINE)) if line)


def _without(html: str, opening: str, closing: str) -> str:
    """Removes everything between two markers; without a closing marker, everything to the end."""
    lower = html.lower()
    if opening not in lower or len(lower) != len(html):
        return html
    kept, at = [], 0
    while (start := lower.find(opening, at)) >= 0:
        kept.append(html[at:start])
        end = lower.find(closing, start)
        end = lower.find(">", end) if end >= 0 else -1
        at = end + 1 if end >= 0 else len(html)
    kept.append(html[at:])
    return "".join(kept)
