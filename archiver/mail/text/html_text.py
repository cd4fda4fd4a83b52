"""Extracts text from HTML: words intact, one line per block, links as text, hidden and quoted passages marked."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from resiliparse.extract.html2text import extract_plain_text

from archiver.mail import limits
from archiver.mail.defects import Defects
from archiver.mail.text.marks import EMPTY, Mark, MarkedText, MarkSpan, stripped
from archiver.mail.text.nesting import cap_nesting
from archiver.mail.text.tag_soup import soup_to_text

_CELL_END = re.compile(r"</[tT](?=[dhDH]\b)")
_OPTION = re.compile(r"<(/?option)\b", re.IGNORECASE)
_FRAMES = re.compile(r"<(/?)(?:noframes|frameset)\b", re.IGNORECASE)
_LIST = re.compile(r"<(/?)[uUoO][lL](?=[\s>])")
_MANY_ITEMS = 500
_SOUP_TAGS = 10_000
_BLANK_LINES = re.compile(r"\n[ \t\xa0\u200b-\u200f\u00ad\u034f\ufeff]*\n(?:[ \t\xa0\u200b-\u200f\u00ad\u034f\ufeff]*\n)+")
# A control character that HTML parsers preserve; the letter after it says what begins or ends at this point.
_SIGN = "\x1a"
_LETTERS = {Mark.HIDDEN: "h", Mark.QUOTE: "q", Mark.SIGNATURE: "s"}
_MARKS = {letter: mark for mark, letter in _LETTERS.items()}
_END = "e"
# In the spellings that programs use: Internet Explorer wrote tags and properties in capitals.
_HINTS: tuple[tuple[str, Mark], ...] = (
    ("display:none", Mark.HIDDEN),
    ("display: none", Mark.HIDDEN),
    ("DISPLAY: none", Mark.HIDDEN),
    ("visibility", Mark.HIDDEN),
    ("font-size:0", Mark.HIDDEN),
    ("font-size: 0", Mark.HIDDEN),
    ("<blockquote", Mark.QUOTE),
    ("<BLOCKQUOTE", Mark.QUOTE),
    ("_quote", Mark.QUOTE),  # gmail_quote, yahoo_quoted
    ("moz-cite", Mark.QUOTE),
    ("signature", Mark.SIGNATURE),  # gmail_signature, moz-signature, and ids such as Signature
)
_CAPITAL_HINTS = frozenset({"DISPLAY: none", "<BLOCKQUOTE"})
_CAPITALS = re.compile(r"<[A-Z]")
# Patterns that must follow if the hint alone is ambiguous.
_CHECKS = {
    "font-size:0": re.compile(r"font-size:0(?:\.0+)?(?:px|pt|em|rem|%)?[\s;\"'!]"),
    "font-size: 0": re.compile(r"font-size: 0(?:\.0+)?(?:px|pt|em|rem|%)?[\s;\"'!]"),
    "visibility": re.compile(r"visibility\s*:\s*hidden", re.IGNORECASE),
}
_TAG_NAME = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)")
_TAG_CHARS = 4096
_VOID = frozenset(
    {"img", "br", "input", "meta", "link", "hr", "area", "base", "col", "source", "style", "script", "body", "html"}
)


@dataclass(slots=True)
class Html:
    """An HTML document, and its text once it has been extracted."""

    html: str
    defects: Defects
    may_quote: bool = True
    text: MarkedText = EMPTY


class _Prepared(NamedTuple):
    html: str
    is_soup: bool
    has_signs: bool


def html_to_text(html: str, defects: Defects) -> MarkedText:
    """The text of an HTML document. Linear in its size; `nesting` limits the depth, on which the parser takes longer."""
    wanted = Html(html, defects)
    read_html((wanted,))
    return wanted.text


def read_html(wanted: Sequence[Html]) -> None:
    """Extracts the texts of several documents, step by step like `message.read_messages`, because this is where most time is
    spent."""
    prepared = [_prepared(one) for one in wanted]
    texts = [soup_to_text(one.html) if one.is_soup else _extract(one.html) for one in prepared]
    for one, text, source in zip(wanted, texts, prepared, strict=True):
        one.text = _mark(text, source.has_signs)


def _prepared(wanted: Html) -> _Prepared:
    """The document in a form that is safe to extract."""
    html = wanted.html
    if len(html) > limits.HTML_BYTES:
        wanted.defects.add("html_too_large")
        html = html[: limits.HTML_BYTES]
    if "\0" in html or _SIGN in html:
        html = html.replace("\0", "").replace(_SIGN, "")
    tags = html.count("<")
    is_soup = tags > _SOUP_TAGS
    if not is_soup:
        html = cap_nesting(html, tags)
    regions = sorted(_regions(html, wanted.may_quote))
    if regions:
        html = _with_signs(html, regions)
    if tags > _MANY_ITEMS and html.count("<li") + html.count("<LI") > _MANY_ITEMS:
        html = _LIST.sub(r"<\1div", html)  # indenting long lists takes quadratic time
    if not is_soup:
        html = _CELL_END.sub(" </t", html)  # the extraction would join adjacent cells without a space
        html = _OPTION.sub(r" <\1", html)  # … and the options of a form
        html = _FRAMES.sub(r"<\1div", html)  # shown by readers without frames, such as this one
    return _Prepared(html, is_soup, bool(regions))


def _mark(text: str, has_signs: bool) -> MarkedText:
    if not text:
        return EMPTY
    if "\n\n\n" in text or "\n \n" in text or "\xa0\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return stripped(_without_signs(text) if has_signs else MarkedText(text))


def _extract(html: str) -> str:
    text: str = extract_plain_text(
        html, preserve_formatting=True, main_content=False, links=True, alt_texts=True, list_bullets=False, form_fields=True
    )
    return text


def _with_signs(html: str, regions: list[tuple[int, str]]) -> str:
    pieces, at = [], 0
    for position, sign in regions:
        pieces += [html[at:position], sign]
        at = position
    pieces.append(html[at:])
    return "".join(pieces)


def _regions(html: str, may_quote: bool) -> Iterator[tuple[int, str]]:
    """Positions in the HTML and the signs to insert there, around hidden and quoted content and signatures."""
    in_capitals = _CAPITALS.search(html, 0, 4000) is not None
    for hint, mark in _HINTS:
        if (mark is Mark.QUOTE and not may_quote) or (hint in _CAPITAL_HINTS and not in_capitals):
            continue
        at = html.find(hint)
        while at >= 0:
            region = _element_around(html, at, hint)
            if region is None:
                at = html.find(hint, at + len(hint))
                continue
            start, end = region
            yield start, _SIGN + _LETTERS[mark]
            yield end, _SIGN + _END
            at = html.find(hint, end)


def _element_around(html: str, at: int, hint: str) -> tuple[int, int] | None:
    """The content of the element in whose opening tag a hint was found."""
    start = at if hint[0] == "<" else html.rfind("<", max(0, at - _TAG_CHARS), at)
    opened = html.find(">", start + 1, at + _TAG_CHARS) if start >= 0 else -1
    if opened < at:  # in a style sheet or in the text
        return None
    if hint in _CHECKS and _CHECKS[hint].match(html, at) is None:
        return None
    name = _TAG_NAME.match(html, start)
    if name is None or name[1].lower() in _VOID or html[opened - 1] == "/":
        return None
    return opened + 1, _element_end(html, name[1].lower(), opened + 1)


def _element_end(html: str, name: str, at: int) -> int:
    depth = 1
    for tag in _tags(name).finditer(html, at):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return tag.start()
    return len(html)


@lru_cache(maxsize=64)
def _tags(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?)(?:{name}|{name.upper()})\b")


def _without_signs(text: str) -> MarkedText:
    first, *rest = text.split(_SIGN)
    kept, length = [first], len(first)
    spans: list[MarkSpan] = []
    opened: list[tuple[int, Mark]] = []
    for piece in rest:
        letter = piece[:1]
        if letter in _MARKS:
            opened.append((length, _MARKS[letter]))
        elif opened:
            start, mark = opened.pop()
            if start < length:
                spans.append(MarkSpan(start, length, mark))
        kept.append(piece[1:])
        length += max(0, len(piece) - 1)
    spans += [MarkSpan(start, length, mark) for start, mark in opened if start < length]
    return MarkedText("".join(kept), tuple(sorted(spans, key=lambda span: (span.start, -span.end))))
