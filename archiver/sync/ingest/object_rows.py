"""Where the frames of a batch are stored, as rows of `objects`."""

from __future__ import annotations

from archiver.store.backend import Written
from archiver.store.frames import FrameKind

_INDEXED_KINDS = frozenset({FrameKind.MESSAGE, FrameKind.PART, FrameKind.DICTIONARY, FrameKind.TEXT})
"""The kinds of frames with rows in `objects`; the others are only replayed."""


def object_rows(written: Written) -> list[dict[str, object]]:
    """The rows of `objects` for the frames of a batch."""
    return [
        {"h": frame.sha256.hex(), "k": frame.kind.label, "p": frame.place.offset, "s": frame.place.length, "r": frame.raw_bytes}
        for frame in sorted(written.batch.frames, key=lambda frame: (frame.sha256, frame.kind))
        if frame.kind in _INDEXED_KINDS
    ]
