"""Keeps hostile HTML away from HTML5 parsers, all of which take quadratic time on deep nesting and on countless attributes.

Text is never dropped: only tags are, beyond a depth that no one writes.
"""

import re
from collections.abc import Iterator
from itertools import accumulate

from archiver.mail import limits

_TAG_NAME = re.compile(r"<(/?[a-zA-Z][a-zA-Z0-9]*)")
_ATTRIBUTE = re.compile(r"\s[^\s=]")
_FEW_TAGS = 1_000
_TAG_CHARS = 16 << 10
_ATTRIBUTES = 500
# Elements that never have content, and those that the next one of their kind closes.
_FLAT = frozenset({
    "area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
    "p", "li", "td", "th", "tr", "dt", "dd", "option", "tbody", "thead", "tfoot", "html", "head", "body",
})  # fmt: skip


class _Steps(dict[str, int]):
    """Tag name to change of depth, worked out once per spelling."""

    def __missing__(self, name: str) -> int:
        step = 0 if name.lstrip("/").lower() in _FLAT else -1 if name.startswith("/") else 1
        if len(self) < 4096:
            self[name] = step
        return step


_STEPS = _Steps()


def cap_nesting(html: str) -> str:
    """The same text with at most `limits.HTML_DEPTH` open elements and no tag with hundreds of attributes."""
    if len(html) > _TAG_CHARS:
        html = _without_huge_tags(html)
    if html.count("<") <= _FEW_TAGS:
        return html
    depths = accumulate(map(_STEPS.__getitem__, _TAG_NAME.findall(html)), _step)
    if max(depths, default=0) <= limits.HTML_DEPTH:
        return html
    return "".join(_shallow(html))


def _step(depth: int, change: int) -> int:
    depth += change
    return depth if depth > 0 else 0


def _shallow(html: str) -> Iterator[str]:
    at = depth = 0
    for tag in _TAG_NAME.finditer(html):
        if tag.start() < at:
            continue
        step = _STEPS[tag[1]]
        depth = max(0, depth + step)
        beyond = depth > limits.HTML_DEPTH or (step < 0 and depth == limits.HTML_DEPTH)
        if step == 0 or not beyond:
            continue
        yield html[at : tag.start()]
        yield " "
        end = html.find(">", tag.end())
        at = end + 1 if end >= 0 else len(html)
    yield html[at:]


def _without_huge_tags(html: str) -> str:
    """A long tag is usual (an inline image); one with hundreds of attributes is an attack."""
    pieces = html.split(">")
    if max(map(len, pieces)) < _TAG_CHARS:
        return html
    for number, piece in enumerate(pieces):
        if len(piece) < _TAG_CHARS:
            continue
        start = piece.rfind("<")
        if start >= 0 and len(_ATTRIBUTE.findall(piece, start)) > _ATTRIBUTES:
            pieces[number] = f"{piece[:start]}<span"
    return ">".join(pieces)
