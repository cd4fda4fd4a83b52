"""Protects HTML5 parsers from hostile HTML: all of them take quadratic time on deep nesting and on many attributes.

Text is never dropped, only tags beyond a depth that does not occur in real mail.
"""

import re
from collections.abc import Iterator
from itertools import accumulate

from archiver.mail import limits

_TAG_NAME = re.compile(r"<(/?[a-zA-Z][a-zA-Z0-9]*)")
_ATTRIBUTE = re.compile(r"\s[^\s=]")
_FEW_TAGS = 1_500
_TAG_CHARS = 16 << 10
_ATTRIBUTES = 500
# Elements without content, and those that the next element of the same kind closes.
_FLAT = frozenset({
    "area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
    "p", "li", "td", "th", "tr", "dt", "dd", "option", "tbody", "thead", "tfoot", "html", "head", "body",
})  # fmt: skip


# Open formatting is repeated in each following paragraph (HTML, section 13.2.4.3), and lists are indented level by level.
_REPEATED = frozenset({
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
    "ul", "ol", "dl", "blockquote",
})  # fmt: skip
_REPEATED_DEPTH = 32


class _Steps(dict[str, int]):
    """Maps a tag name to its change of depth, computed once per spelling."""

    def __init__(self, only: frozenset[str] | None = None) -> None:
        self._only = only

    def __missing__(self, name: str) -> int:
        element = name.lstrip("/").lower()
        counts = element in self._only if self._only is not None else element not in _FLAT
        step = 0 if not counts else -1 if name.startswith("/") else 1
        if len(self) < 4096:
            self[name] = step
        return step


_STEPS = _Steps()
_REPEATED_STEPS = _Steps(_REPEATED)


def cap_nesting(html: str, tags: int) -> str:
    """The same text with at most `limits.HTML_DEPTH` open elements and no tag with hundreds of attributes.

    `tags` is the number of "<", which callers already know.
    """
    if len(html) > _TAG_CHARS:
        html = _without_huge_tags(html)
    if tags <= _FEW_TAGS:
        return html
    names = _TAG_NAME.findall(html)
    deepest = max(accumulate(map(_STEPS.__getitem__, names), _step), default=0)
    if deepest <= _REPEATED_DEPTH:
        return html
    if deepest > limits.HTML_DEPTH or max(accumulate(map(_REPEATED_STEPS.__getitem__, names), _step)) > _REPEATED_DEPTH:
        return "".join(_shallow(html))
    return html


def _step(depth: int, change: int) -> int:
    depth += change
    return depth if depth > 0 else 0


def _shallow(html: str) -> Iterator[str]:
    at = depth = repeated = 0
    for tag in _TAG_NAME.finditer(html):
        if tag.start() < at:
            continue
        step, repeated_step = _STEPS[tag[1]], _REPEATED_STEPS[tag[1]]
        is_beyond = _is_beyond(depth, step, limits.HTML_DEPTH) or _is_beyond(repeated, repeated_step, _REPEATED_DEPTH)
        depth, repeated = _step(depth, step), _step(repeated, repeated_step)
        if is_beyond:
            yield html[at : tag.start()]
            yield " "
            end = html.find(">", tag.end())
            at = end + 1 if end >= 0 else len(html)
    yield html[at:]


def _is_beyond(depth: int, step: int, limit: int) -> bool:
    return (step > 0 and depth >= limit) or (step < 0 and depth > limit)


def _without_huge_tags(html: str) -> str:
    """A long tag is normal (an inline image); one with hundreds of attributes is an attack."""
    # A run of that length without ">" covers at least one window of half the length.
    half = _TAG_CHARS // 2
    kept: list[str] = []
    at = looked_at = 0
    for window in range(0, len(html) - half, half):
        if window < looked_at or html.find(">", window, window + half) >= 0:
            continue
        start = html.rfind(">", looked_at, window) + 1 or looked_at
        end = html.find(">", window + half)
        looked_at = end = end if end >= 0 else len(html)
        tag = html.rfind("<", start, end)
        if end - start >= _TAG_CHARS and tag >= 0 and len(_ATTRIBUTE.findall(html, tag, end)) > _ATTRIBUTES:
            kept += [html[at:tag], "<span"]
            at = end
    return "".join([*kept, html[at:]]) if kept else html
