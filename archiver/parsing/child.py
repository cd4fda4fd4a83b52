"""The requests that a parsing child answers (archiver.extract.serving).

Archiving only needs headers, so the modules that read whole messages are loaded with the first request for them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from archiver.extract.serving import Answer, Answers
from archiver.mail.summary import summarise


def _summaries(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    received = [None if at is None else datetime.fromisoformat(at) for at in header["received_at"]]
    return {"found": summarise(pieces, received)}, ()


def _of_whole_messages(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    from archiver.parsing.answers import ANSWERS as KNOWN

    return KNOWN[header["op"]](header, pieces)


ANSWERS: Answers = {
    "summaries": _summaries,
    **dict.fromkeys(("texts", "whole", "content", "documents", "open", "frame", "file"), _of_whole_messages),
}
