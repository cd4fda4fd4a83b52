"""The requests that a parsing child answers (archiver.extract.serving).

Archiving only needs headers, so the modules that read whole messages are loaded with the first request for them.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from archiver.db.values import clean
from archiver.extract.serving import Answer, Answers
from archiver.mail.summary import summarise


def _summaries(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    received = [None if at is None else datetime.fromisoformat(at) for at in header["received_at"]]
    return {"found": summarise(pieces, received)}, ()


def _routes(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    """For journalled mail: its addresses, and what a journal report records."""
    from archiver.mail.formats.journal_reports import read_journal_report
    from archiver.mail.routing import read_route

    found: list[Any] = []
    for piece in pieces:
        route = read_route(piece)
        report = read_journal_report(piece) if route.is_report else None
        boundary = "" if report is None else report.boundary.decode("latin-1")
        found.append({"route": asdict(route), "report": {**asdict(report), "boundary": boundary} if report else None})
    return {"found": clean(found)}, ()


def _of_whole_messages(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    from archiver.parsing.answers import ANSWERS as KNOWN

    return KNOWN[header["op"]](header, pieces)


ANSWERS: Answers = {
    "summaries": _summaries,
    "routes": _routes,
    **dict.fromkeys(("texts", "whole", "content", "documents", "open", "header", "frame", "file"), _of_whole_messages),
}
