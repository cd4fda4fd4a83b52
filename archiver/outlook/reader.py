"""Reads an Outlook file in a confined child process. An item that kills the child, or takes too long, fails alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from archiver.extract.pool import ChildFailed, Children, ReadersUnavailable, Talk
from archiver.extract.process import ChildProcess
from archiver.outlook.items import ORPHANED
from connectors.base import SPOOL_BYTES
from connectors.errors import Unavailable
from connectors.outlook import MSG, OutlookEntry, OutlookFile, OutlookUnreadable

_MODULE = "archiver.outlook.child"
_OPEN_SECONDS = 600.0
_ITEMS_SECONDS = 120.0
_AT_ONCE = 50
_PIECE_BYTES = 4 << 20
_SMALL_PROCESSES, _SMALL_RECYCLE_AFTER = 2, 2_000
_FAILURES_IN_A_ROW = 20
_RECYCLE_RESIDENT_BYTES = 200 << 20


def open_outlook(descriptor: int, kind: str, *, recover: bool = False, tick: Callable[[], None] = lambda: None) -> OutlookFile:
    """Raises OutlookUnreadable."""
    if kind == MSG and os.fstat(descriptor).st_size <= SPOOL_BYTES:
        told, data = _read_small(descriptor)
        if not told.get("is_large"):
            return SmallMsg(told, data)
    return OutlookReader(descriptor, kind, recover=recover, tick=tick)


def _read_small(descriptor: int) -> tuple[dict[str, Any], bytes]:
    content = os.pread(descriptor, SPOOL_BYTES, 0)
    try:
        told, pieces = _readers().ask("message", [content], bytes=SPOOL_BYTES)
    except ChildFailed as failed:
        raise OutlookUnreadable(str(failed)) from failed
    except ReadersUnavailable as error:
        raise Unavailable(str(error)) from error
    if "broken" in told:
        raise OutlookUnreadable(str(told["broken"])[:500])
    return told, pieces[0]


@cache
def _readers() -> Children:
    return Children(_MODULE, _SMALL_PROCESSES, _ITEMS_SECONDS, recycle_after=_SMALL_RECYCLE_AFTER)


os.register_at_fork(after_in_child=_readers.cache_clear)


class SmallMsg:
    """One message that was read at once."""

    total = 1
    summary = ""

    def __init__(self, told: dict[str, Any], data: bytes) -> None:
        self._entry = _entry(told, data, 0, ())

    def entries(self, start: int = 0) -> Iterator[OutlookEntry]:
        if start == 0:
            yield self._entry

    def close(self) -> None: ...


class OutlookReader:
    """An open file (implements connectors.outlook.OutlookFile)."""

    def __init__(self, descriptor: int, kind: str, *, recover: bool, tick: Callable[[], None] = lambda: None) -> None:
        self._request = {"descriptor": descriptor, "kind": kind, "recover": recover}
        self._descriptor, self._tick = descriptor, tick
        self._child: ChildProcess | None = None
        try:
            self._folders, is_damaged = self._open()
        except ChildFailed as failed:
            self.close()
            raise OutlookUnreadable(str(failed)) from failed
        self.total = sum(folder["items"] for folder in self._folders)
        self.summary = _summary(self._folders, self.total, is_damaged) if kind == "pst" else ""

    def entries(self, start: int = 0) -> Iterator[OutlookEntry]:
        first = 0
        for number, folder in enumerate(self._folders):
            if folder["error"] and start <= first:
                yield OutlookEntry(first, 0, folder["path"], error=f"the folder {folder['error']}")
            if start < first + folder["items"]:
                yield from self._folder(number, folder, first, max(0, start - first))
            first += folder["items"]

    def close(self) -> None:
        if self._child is not None:
            self._child.dispose()
            self._child = None

    # --- items

    def _folder(self, number: int, folder: dict[str, Any], first: int, at: int) -> Iterator[OutlookEntry]:
        failures = 0
        while at < folder["items"]:
            limit = 1 if failures else min(_AT_ONCE, folder["items"] - at)
            try:
                found = [*self._ask_items(number, folder, first, at, limit)]
            except ChildFailed as failed:
                failures += 1
                if limit > 1:
                    continue  # then one by one
                if failures > _FAILURES_IN_A_ROW:
                    reason = (
                        f"given up: {folder['items'] - at:,} items are not read, because too many in a row failed: {failed}"
                    )
                    yield OutlookEntry(first + at, 0, folder["path"], error=reason)
                    return
                found = [OutlookEntry(first + at, 0, folder["path"], error=str(failed))]
            else:
                failures = 0
            yield from found
            at += len(found)

    def _ask_items(self, number: int, folder: dict[str, Any], first: int, at: int, limit: int) -> Iterator[OutlookEntry]:
        answer, pieces = self._ask("items", _ITEMS_SECONDS, folder=number, start=at, limit=limit, bytes=SPOOL_BYTES)
        for offset, (told, data) in enumerate(zip(answer["found"], pieces, strict=True)):
            entry = _entry(told, data, first + at + offset, folder["path"])
            is_large = bool(told.get("is_large"))
            yield replace(entry, data=None, pieces=partial(self._large, number, at + offset)) if is_large else entry

    def _large(self, folder: int, index: int) -> Iterator[bytes]:
        """A message that does not fit into memory, in pieces. If the child fails, the message can't be archived."""
        try:
            answer, pieces = self._ask("large", _ITEMS_SECONDS, folder=folder, index=index, bytes=_PIECE_BYTES)
            yield from pieces
            while not answer["is_end"]:
                answer, pieces = self._ask("more", _ITEMS_SECONDS, bytes=_PIECE_BYTES)
                yield from pieces
        except ChildFailed as failed:
            raise OSError(0, f"a large item can't be read: {failed}") from failed

    # --- the child

    def _open(self) -> tuple[list[dict[str, Any]], bool]:
        self.close()
        self._child = ChildProcess(_MODULE, files=(self._descriptor,))
        answer = self._send("open", _OPEN_SECONDS, self._request)
        if "broken" in answer[0]:
            raise ChildFailed(str(answer[0]["broken"])[:500])
        folders = [
            {"path": tuple(map(str, path)), "items": max(0, int(items)), "error": str(error)[:500]}
            for path, items, error in answer[0]["folders"]
        ]
        return folders, bool(answer[0]["is_damaged"])

    def _ask(self, op: str, seconds: float, **header: Any) -> tuple[dict[str, Any], list[bytes]]:
        if op != "more" and (self._child is None or self._is_used_up(self._child)):
            self._open()
        return self._send(op, seconds, header)

    def _is_used_up(self, child: ChildProcess) -> bool:
        return not child.is_alive or child.resident_bytes > _RECYCLE_RESIDENT_BYTES

    def _send(self, op: str, seconds: float, header: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        assert self._child is not None
        try:
            return Talk(self._child, seconds, self._tick).ask(op, **header)
        except ReadersUnavailable as error:
            raise Unavailable(str(error)) from error


def _entry(told: dict[str, Any], data: bytes, number: int, path: tuple[str, ...]) -> OutlookEntry:
    if reason := told.get("unreadable") or told.get("left_out"):
        return OutlookEntry(number, 0, path, error=str(reason)[:500], is_left_out="left_out" in told)
    flags, problems = tuple(map(str, told["flags"])), tuple(str(problem)[:500] for problem in told["problems"])
    at = _date(told["received_at"])
    return OutlookEntry(number, int(told["node"]), path, data, flags=flags, received_at=at, problems=problems)


def _summary(folders: list[dict[str, Any]], total: int, is_damaged: bool) -> str:
    used = sum(folder["items"] > 0 for folder in folders)
    orphaned = sum(folder["items"] for folder in folders if folder["path"] == (ORPHANED,))
    text = f"pst: {total:,} items in {used:,} folders, {orphaned:,} of them orphaned"
    return f"{text}; it is damaged, and read as far as possible" if is_damaged else text


def _date(text: str | None) -> datetime | None:
    """Parsed again, because a child is not trusted."""
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
