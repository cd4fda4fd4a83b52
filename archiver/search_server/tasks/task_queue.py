"""The task queue: accepted work, in order, with its history."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archiver.search_server import timestamps
from archiver.search_server.errors import ApiError
from archiver.search_server.state import Row, ServerState, marks

TYPES = (
    "documentAdditionOrUpdate", "documentEdition", "documentDeletion", "settingsUpdate", "indexCreation", "indexDeletion",
    "indexUpdate", "indexSwap", "taskCancelation", "taskDeletion", "dumpCreation", "snapshotCreation", "export",
    "upgradeDatabase", "indexCompaction", "networkTopologyChange",
)  # fmt: skip
STATUSES = ("enqueued", "processing", "succeeded", "failed", "canceled")
FINISHED = ("succeeded", "failed", "canceled")
_INLINE_BYTES = 256_000  # smaller payloads are stored in the row, larger ones in a file
COLUMNS = (
    "uid, batch_uid, index_uid, type, status, request, details, error, canceled_by, enqueued_at, started_at, finished_at,"
    " payload_bytes, custom_metadata"
)
_RESERVE_BYTES = 2_000_000
_KEPT_TASKS = 1_000_000
_FIRST = ("taskCancelation", "taskDeletion")
# a deletion goes first as well, but not before the tasks that it names one by one
_TURN = f"""CASE WHEN type NOT IN ({marks(_FIRST)}) THEN 1 ELSE EXISTS (
    SELECT 1 FROM tasks AS named WHERE named.uid = json_extract(CAST(tasks.request AS TEXT), '$.after')
    AND named.status IN ('enqueued', 'processing')) END"""  # noqa: S608
MAX_BATCH_BYTES = 24_000_000
MAX_BATCH_TASKS = 2_000


@dataclass(frozen=True, slots=True)
class Finish:
    """How one task ended."""

    uid: int
    status: str
    details: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


class TaskQueue:
    """Tasks in the state file, large payloads next to it."""

    def __init__(self, state: ServerState, spool: Path) -> None:
        self._state = state
        self._spool = spool
        self._spool.mkdir(parents=True, exist_ok=True)
        self._reserve = spool.parent / "reserve"
        self.on_new: Callable[[], None] = lambda: None

    def enqueue(
        self,
        kind: str,
        index_uid: str | None,
        request: Mapping[str, Any],
        details: Mapping[str, Any] | None = None,
        payload: bytes | None = None,
        custom_metadata: str | None = None,
    ) -> Row:
        """Accepts a task: it is on disk when this returns."""
        inline = payload is not None and len(payload) <= _INLINE_BYTES
        values = {
            "index_uid": index_uid,
            "type": kind,
            "status": "enqueued",
            "request": dict(request),
            "details": None if details is None else dict(details),
            "enqueued_at": timestamps.now(),
            "payload": payload if inline else None,
            "payload_bytes": len(payload or b""),
            "custom_metadata": custom_metadata,
        }
        spooled = self._write(payload) if payload is not None and not inline else None
        with self._state.transaction():
            uid = self._state.insert("tasks", values)
            if spooled is not None:
                spooled.rename(self._file(uid))
                _sync(self._spool)
        self.on_new()
        return self.get(uid)

    def payload(self, task: Row) -> bytes:
        row = self._state.one("SELECT payload FROM tasks WHERE uid = ?", [task["uid"]])
        if row is not None and row["payload"] is not None:
            return bytes(row["payload"])
        return self._file(task["uid"]).read_bytes()

    def get(self, uid: int) -> Row:
        row = self._state.one(f"SELECT {COLUMNS} FROM tasks WHERE uid = ?", [uid])  # noqa: S608
        if row is None:
            raise ApiError("task_not_found", f"Task `{uid}` not found.")
        return row

    def next_batch(self) -> list[Row]:
        """The oldest waiting task, with the following ones that can share its commit."""
        first = self._state.one(
            f"SELECT {COLUMNS} FROM tasks WHERE status IN ('enqueued', 'processing')"  # noqa: S608
            f" ORDER BY {_TURN}, uid LIMIT 1",
            _FIRST,
        )
        if first is None:
            return []
        return [first, *self._sharing([first])]

    def join(self, batch: list[Row]) -> list[Row]:
        """Adds tasks that arrived while this batch was being read, if they can share its commit."""
        first = f"SELECT 1 FROM tasks WHERE status = 'enqueued' AND type IN ({marks(_FIRST)})"  # noqa: S608
        came = self._sharing(batch) if self._state.one(first, _FIRST) is None else []  # (cancellations go first)
        if came:
            uids = [task["uid"] for task in came]
            self._state.run(
                f"UPDATE tasks SET status = 'processing', started_at = ?,"  # noqa: S608
                f" batch_uid = (SELECT batch_uid FROM tasks WHERE uid = ?) WHERE uid IN ({marks(uids)})",
                [timestamps.now(), batch[0]["uid"], *uids],
            )
            batch += came
        return came

    def _sharing(self, batch: list[Row]) -> list[Row]:
        """The tasks directly after these that fit into the same commit."""
        first = batch[0]
        if first["type"] != "documentAdditionOrUpdate":
            return []
        size = sum(task["payload_bytes"] for task in batch)
        rest = self._state.all(
            f"SELECT {COLUMNS} FROM tasks WHERE status IN ('enqueued', 'processing') AND uid > ? ORDER BY uid LIMIT ?",  # noqa: S608
            [batch[-1]["uid"], MAX_BATCH_TASKS - len(batch)],
        )
        found: list[Row] = []
        for task in rest:
            size += task["payload_bytes"]
            if task["type"] != first["type"] or task["index_uid"] != first["index_uid"] or size > MAX_BATCH_BYTES:
                break
            found.append(task)
        return found

    def start(self, batch: list[Row]) -> int:
        uids = [task["uid"] for task in batch]
        with self._state.transaction():
            number = int(self._state.note("next_batch") or 0)
            self._state.set_note("next_batch", number + 1)
            self._state.run(
                f"UPDATE tasks SET status = 'processing', started_at = ?, batch_uid = ? WHERE uid IN ({marks(uids)})",  # noqa: S608
                [timestamps.now(), number, *uids],
            )
        return number

    def finish(self, ends: list[Finish], also: Callable[[], None] | None = None) -> None:
        """Ends tasks and applies `also` in one transaction, then removes their payloads."""
        try:
            self._finish(ends, also)
        except sqlite3.OperationalError:
            if not self._reserve.exists():
                raise
            self._reserve.unlink()  # frees space on a full disk, so that the failure can be recorded
            self._finish(ends, also)
        for end in ends:
            self._file(end.uid).unlink(missing_ok=True)

    def _finish(self, ends: list[Finish], also: Callable[[], None] | None) -> None:
        finished_at = timestamps.now()
        with self._state.transaction():
            if also is not None:
                also()
            for end in ends:
                values: dict[str, Any] = {"status": end.status, "finished_at": finished_at, "payload": None}
                if end.details is not None:
                    values["details"] = dict(end.details)
                if end.error is not None:
                    values["error"] = dict(end.error)
                self._state.update("tasks", "uid", end.uid, values)

    def cancel(self, uids: list[int], canceled_by: int) -> int:
        """Removes waiting tasks from the queue."""
        canceled = 0
        for uid in uids:
            changed = self._state.run(
                "UPDATE tasks SET status = 'canceled', finished_at = ?, canceled_by = ?, payload = NULL"
                " WHERE uid = ? AND status = 'enqueued'",
                [timestamps.now(), canceled_by, uid],
            )
            if changed:
                self._file(uid).unlink(missing_ok=True)
            canceled += changed
        return canceled

    def delete(self, uids: list[int]) -> int:
        return sum(
            self._state.run("DELETE FROM tasks WHERE uid = ? AND status IN ('succeeded', 'failed', 'canceled')", [uid])
            for uid in uids
        )

    def prune(self) -> None:
        """Deletes the oldest finished tasks beyond a million."""
        self._state.run(
            "DELETE FROM tasks WHERE status IN ('succeeded', 'failed', 'canceled') AND uid <= (SELECT max(uid) FROM tasks) - ?",
            [_KEPT_TASKS],
        )

    def is_busy(self, index_uid: str) -> bool:
        return self._state.one("SELECT 1 FROM tasks WHERE status = 'processing' AND index_uid = ?", [index_uid]) is not None

    def recover(self) -> None:
        """At start: repeats interrupted tasks, and removes files without a task."""
        self._state.run("UPDATE tasks SET status = 'enqueued', started_at = NULL, batch_uid = NULL WHERE status = 'processing'")
        if not self._reserve.exists():
            self._reserve.write_bytes(bytes(_RESERVE_BYTES))
        waiting = {str(row["uid"]) for row in self._state.all("SELECT uid FROM tasks WHERE status = 'enqueued'")}
        for file in self._spool.iterdir():
            if file.stem not in waiting or file.suffix != ".payload":
                file.unlink()

    def _file(self, uid: int) -> Path:
        return self._spool / f"{uid}.payload"

    def _write(self, payload: bytes) -> Path:
        path = self._spool / f"{os.urandom(8).hex()}.new"
        with path.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        return path


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def shown(task: Row) -> dict[str, Any]:
    """A task in the format of `GET /tasks/{uid}`."""
    view = {
        "uid": task["uid"],
        "batchUid": task["batch_uid"],
        "indexUid": task["index_uid"],
        "status": task["status"],
        "type": task["type"],
        "canceledBy": task["canceled_by"],
        "details": task["details"],
        "error": task["error"],
        "duration": timestamps.duration(task["started_at"], task["finished_at"]),
        "enqueuedAt": task["enqueued_at"],
        "startedAt": task["started_at"],
        "finishedAt": task["finished_at"],
    }
    return view if task["custom_metadata"] is None else {**view, "customMetadata": task["custom_metadata"]}


def summary(task: Row) -> dict[str, Any]:
    """A task in the format of a 202 response."""
    return {
        "taskUid": task["uid"],
        "indexUid": task["index_uid"],
        "status": task["status"],
        "type": task["type"],
        "enqueuedAt": task["enqueued_at"],
    }
