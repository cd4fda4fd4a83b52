"""Marks on a text: which passages are quoted, hidden, a signature, from a nested message, or from its other form."""

from enum import StrEnum
from typing import NamedTuple


class Mark(StrEnum):
    QUOTE = "quote"
    SIGNATURE = "signature"
    HIDDEN = "hidden"
    NESTED = "nested"
    ALTERNATIVE = "alternative"  # only in the form of the text that is not shown


# Named tuples, because a reply can have many spans, and frozen dataclasses are slower to create.
class MarkSpan(NamedTuple):
    """The mark of text[start:end]. Spans are ordered by their start and may overlap."""

    start: int
    end: int
    mark: Mark

    def moved(self, offset: int) -> "MarkSpan":
        return MarkSpan(self.start + offset, self.end + offset, self.mark)


class MarkedText(NamedTuple):
    text: str
    spans: tuple[MarkSpan, ...] = ()


EMPTY = MarkedText("")


def unmarked(text: str, spans: tuple[MarkSpan, ...]) -> str:
    """What the sender wrote: the text without its marked spans."""
    kept, at = [], 0
    for span in sorted(spans, key=lambda span: span.start):
        if span.start > at:
            kept.append(text[at : span.start])
        at = max(at, span.end)
    kept.append(text[at:])
    return "".join(kept)


def stripped(marked: MarkedText) -> MarkedText:
    """Without white space at both ends."""
    text = marked.text.strip()
    if len(text) == len(marked.text):
        return marked
    offset = len(marked.text) - len(marked.text.lstrip())
    spans = []
    for span in marked.spans:
        start, end = max(0, span.start - offset), min(len(text), span.end - offset)
        if start < end:
            spans.append(MarkSpan(start, end, span.mark))
    return MarkedText(text, tuple(spans))
