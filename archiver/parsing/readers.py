"""Parses mail in child processes that can be killed: no message can stop or take over the process that archives the others.

If a parser hangs, eats memory or crashes on a message, its child is ended and replaced, and the messages
that came with it are read one by one. A child is started once and reads group after group; what goes to and fro are the bytes
of messages, and JSON.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from types import TracebackType
from typing import Any

from archiver.errors import NotFound
from archiver.extract.pool import ChildFailed, Children, Talk
from archiver.logs import get_logger
from archiver.mail.formats.calendar import Event
from archiver.mail.formats.journal_reports import JournalReport, RecordedRecipient
from archiver.mail.header.route import AuthenticityCheck, Hop
from archiver.mail.routing import MailRoute
from archiver.mail.summary import Summary
from archiver.mail.text.links import DoubtfulLink
from archiver.parsing.opened_mail import File, FileInfo, MailContent, ReadableHeader

_MODULE = "archiver.parsing.child"
_PROCESSES = 6
"""At most; started as needed: one for each concurrent reader (bodies, attachments, a reindex)."""
_SECONDS = 30.0
_RECYCLE_AFTER = 20_000
"""Requests per child: starting one costs as much as reading a thousand messages."""
_DATES = ("sent_at", "received_at", "sort_at")

log = get_logger("reading")


@dataclass(frozen=True, slots=True)
class ReadFile:
    """An attachment, without its content."""

    name: str
    content_type: str
    position: str
    inline: bool
    content_id: str
    is_message: bool
    size_bytes: int
    sha256: bytes
    is_part: bool
    """The archive stores it as a part, under its SHA-256."""


@dataclass(frozen=True, slots=True)
class ReadMail:
    """A message that a child has parsed and remembers."""

    files: tuple[ReadFile, ...]
    has_attachments: bool
    is_cut: bool
    """It has more text than the limit."""


@dataclass(frozen=True, slots=True)
class Document:
    json: bytes
    is_cut: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class Confinement:
    in_force: tuple[str, ...]
    refused: dict[str, bool]

    @property
    def is_shut_in(self) -> bool:
        return all(self.refused.values())


class MailReaders:
    """Any number of threads may use it; each waits for a free child."""

    def __init__(self, processes: int = _PROCESSES, seconds: float = _SECONDS) -> None:
        self.children = Children(_MODULE, processes, seconds, recycle_after=_RECYCLE_AFTER)

    def summaries(self, heads: Sequence[bytes], received_at: Sequence[datetime | None]) -> list[Summary | None]:
        """The summaries of header blocks; None for one that can't be read even on its own."""
        try:
            return list(self._summaries(heads, received_at))
        except ChildFailed as failed:
            log.warning("not_read_side_by_side", headers=len(heads), reason=str(failed))
        return [self._summary_alone(head, at) for head, at in zip(heads, received_at, strict=True)]

    def _summary_alone(self, head: bytes, received_at: datetime | None) -> Summary | None:
        try:
            return self._summaries([head], [received_at])[0]
        except ChildFailed as failed:
            log.warning("header_unreadable", reason=str(failed))
            return None

    def _summaries(self, heads: Sequence[bytes], received_at: Sequence[datetime | None]) -> list[Summary]:
        answer, _ = self.children.ask("summaries", heads, received_at=received_at)
        return [_summary(found) for found in answer["found"]]

    def routes(self, heads: Sequence[bytes]) -> list[tuple[MailRoute, JournalReport | None] | None]:
        """For journalled mail, from the beginning of each message; None for one that can't be read even on its own."""
        try:
            return list(self._routes(heads))
        except ChildFailed as failed:
            log.warning("not_read_side_by_side", headers=len(heads), reason=str(failed))
        return [self._route_alone(head) for head in heads]

    def _route_alone(self, head: bytes) -> tuple[MailRoute, JournalReport | None] | None:
        try:
            return self._routes([head])[0]
        except ChildFailed as failed:
            log.warning("header_unreadable", reason=str(failed))
            return None

    def _routes(self, heads: Sequence[bytes]) -> list[tuple[MailRoute, JournalReport | None]]:
        answer, _ = self.children.ask("routes", heads)
        return [_route(found["route"], found["report"]) for found in answer["found"]]

    @contextmanager
    def group(self, tick: Callable[[], None] = lambda: None) -> Iterator[MailGroup]:
        """For messages that are read together; `tick` is called every few seconds while waiting for a child."""
        with self.children.talk(tick=tick) as talk:
            yield MailGroup(talk)

    def content(self, raw: bytes, files_at: str, wait: float | None = None) -> MailContent:
        with self.children.talk(wait) as talk:
            found = talk.ask("open", [raw], files_at=files_at)[0]["content"]
        made = {
            "attachments": tuple(FileInfo(**file) for file in found["attachments"]),
            "links": tuple(found["links"]),
            "doubtful_links": tuple(DoubtfulLink(**one) for one in found["doubtful_links"]),
            "events": tuple(Event(**{**one, "attendees": tuple(one["attendees"])}) for one in found["events"]),
        }
        return MailContent(**{**found, **made})

    def header(self, raw: bytes, wait: float | None = None) -> ReadableHeader:
        with self.children.talk(wait) as talk:
            found = talk.ask("header", [raw])[0]["header"]
        return ReadableHeader(
            fields=tuple((name, value) for name, value in found["fields"]),
            hops=tuple(Hop(**one) for one in found["hops"]),
            checks=tuple(AuthenticityCheck(**one) for one in found["checks"]),
            is_cut=found["is_cut"],
        )

    def frame(self, raw: bytes, *, keep_remote: bool, wait: float | None = None) -> str:
        with self.children.talk(wait) as talk:
            return talk.ask("frame", [raw], keep_remote=keep_remote)[1][0].decode("utf-8", "replace")

    def file(self, raw: bytes, number: int, wait: float | None = None) -> File:
        with self.children.talk(wait) as talk:
            found, pieces = talk.ask("file", [raw], number=number)
        if found["name"] is None:
            raise NotFound(f"this message has no attachment {number}")
        return File(str(found["name"]), str(found["content_type"]), bytes.fromhex(found["sha256"]), pieces[0])

    def confinement(self) -> Confinement:
        """The measures that confine a child, as it verified itself."""
        found, _ = self.children.ask("confinement")
        return Confinement(tuple(map(str, found["in_force"])), {str(name): bool(no) for name, no in found["refused"].items()})

    def close(self) -> None:
        self.children.close()

    def __enter__(self) -> MailReaders:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class MailGroup:
    """Messages in one child. After ChildFailed, the child and everything it had read are gone."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def read(self, raws: Sequence[bytes], left_out: dict[int, dict[bytes, int]]) -> tuple[list[ReadMail], list[int]]:
        """What they are, and the numbers of those to be read whole; `left_out` are files that only a mark stands for."""
        named = {str(number): {sha.hex(): size for sha, size in files.items()} for number, files in left_out.items()}
        answer, _ = self._talk.ask("texts", raws, left_out=named)
        return [_mail(*found) for found in answer["found"]], [int(number) for number in answer["nested"]]

    def read_whole(self, number: int, raw: bytes) -> ReadMail:
        return _mail(*self._talk.ask("whole", [raw], number=number)[0]["found"])

    def content(self, number: int, file: int) -> bytes:
        return self._talk.ask("content", number=number, file=file)[1][0]

    def documents(self, inputs: Sequence[Sequence[Any]]) -> list[Document]:
        answer, pieces = self._talk.ask("documents", inputs=inputs)
        return [Document(json, bool(cut), error) for json, (cut, error) in zip(pieces, answer["notes"], strict=True)]


@cache
def process_readers() -> MailReaders:
    """Those of this process."""
    return MailReaders()


os.register_at_fork(after_in_child=process_readers.cache_clear)


def _mail(files: list[list[Any]], has_attachments: bool, is_cut: bool) -> ReadMail:
    return ReadMail(tuple([_file(*file) for file in files]), has_attachments, is_cut)


def _file(
    name: str, kind: str, position: str, inline: bool, cid: str, message: bool, size: int, sha: str, part: bool
) -> ReadFile:
    return ReadFile(name, kind, position, inline, cid, message, size, bytes.fromhex(sha), part)


def _summary(found: dict[str, Any]) -> Summary:
    """Dates are parsed again, because a child is not trusted."""
    read: dict[str, datetime] = {}
    for name in _DATES:
        at = found[name]
        if at is not None:
            found[name] = read[at] if at in read else read.setdefault(at, _date(at))
    return found


def _route(route: dict[str, Any], report: dict[str, Any] | None) -> tuple[MailRoute, JournalReport | None]:
    senders, recipients, delivered_to = (tuple(map(str, route[name])) for name in ("senders", "recipients", "delivered_to"))
    found = MailRoute(senders, recipients, delivered_to, bool(route["is_report"]))
    if report is None:
        return found, None
    recorded = tuple(RecordedRecipient(**one) for one in report["recipients"])
    boundary = str(report["boundary"]).encode("latin-1")
    return found, JournalReport(tuple(report["senders"]), recorded, int(report["inner_start"]), boundary)


def _date(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
