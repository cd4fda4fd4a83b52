"""Finds out which variant of mbox a file is, from all of it: what decides may come late in the file.

A file in which `>>From ` never occurs reads the same as mboxo and as mboxrd. One in which it does is taken for mboxrd, as all
newer programs write it. One with more bare than quoted `From ` lines in its messages (with lengths: with any) was written
without quoting. The user may say better (`--kind`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from connectors.files.mbox import Mbox, MessageSpan
from connectors.files.open_file import OpenFile
from connectors.files.variants import VARIANTS, MboxVariant

_BARE, _QUOTED = b"\nFrom ", b"\n>From "
_DEEP = re.compile(rb"\n>>+From ")
_OVERLAP = 64
_WORK_EVERY = 1000


@dataclass(slots=True)
class _Counts:
    messages: int = 0
    exported: int = 0
    lengths: int = 0
    bare: int = 0
    quoted: int = 0
    deep_at: int | None = None


def survey(file: OpenFile, working: Callable[[], None] = lambda: None) -> MboxVariant:
    """One pass. `working` is called often, and may raise to stop."""
    mbox, counts = Mbox(file), _Counts()
    for number, span in enumerate(mbox.spans()):
        if number % _WORK_EVERY == 0:
            working()
        counts.messages += 1
        counts.exported += span.is_exported
        counts.lengths += span.by_length
        if not span.is_exported:
            _count(mbox, span, counts, working)
    return _decide(counts)


def _count(mbox: Mbox, span: MessageSpan, counts: _Counts, working: Callable[[], None]) -> None:
    for number, (begin, data) in enumerate(mbox.stretches(span, _OVERLAP)):
        if number:
            working()
        if b"From " not in data:
            continue
        own = span.start - 1 - begin  # the line end before the message counts as the beginning of its first line
        counts.bare += data.count(_BARE, _OVERLAP - len(_BARE) + 1 if number else own)  # what was counted before is not again
        counts.quoted += data.count(_QUOTED, _OVERLAP - len(_QUOTED) + 1 if number else own)
        if counts.deep_at is None and b">>From " in data:
            deep = _DEEP.search(data, 0 if number else own)
            counts.deep_at = begin + deep.start() + 1 if deep else None


def _decide(counts: _Counts) -> MboxVariant:
    foreign = counts.messages - counts.exported
    if not foreign and counts.messages:
        return VARIANTS["mboxrd"].because("written by Archiver")
    has_lengths = counts.lengths * 2 > foreign
    lengths = f"{counts.lengths:,} of {foreign:,} messages have a Content-Length that is right"
    if has_lengths and counts.bare:
        return VARIANTS["mboxcl2"].because(f"{lengths}, and {counts.bare:,} `From ` lines in them are not quoted")
    if counts.bare > counts.quoted:
        said = f"{counts.bare:,} `From ` lines in messages are not quoted, {counts.quoted:,} are: none was changed"
        return VARIANTS["mbox"].because(said)
    if counts.deep_at is not None:
        return VARIANTS["mboxrd"].because(f"`>>From ` occurs, first at byte {counts.deep_at:,}")
    if has_lengths:
        return VARIANTS["mboxcl"].because(f"{lengths}, and no `From ` line in them is bare")
    quoted = f"{counts.quoted:,} lines begin with `>From `" if counts.quoted else "no `From ` line is quoted"
    return VARIANTS["mboxo"].because(f"{quoted}, none with `>>From `; mboxrd would read the same")
