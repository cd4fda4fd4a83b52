"""/tasks and /batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from archiver.search_server import timestamps
from archiver.search_server.errors import ApiError
from archiver.search_server.request import Call, ServerResponse
from archiver.search_server.state import Row
from archiver.search_server.tasks.task_filter import batch_page, page, parse_filter
from archiver.search_server.tasks.task_queue import COLUMNS, shown


def list_tasks(call: Call) -> ServerResponse:
    rows, numbers = page(call.service.state, call.query, COLUMNS)
    return ServerResponse({"results": [shown(row) for row in rows], **numbers})


def get_task(call: Call) -> ServerResponse:
    return ServerResponse(shown(call.service.queue.get(_uid(call.path["task_uid"], "task"))))


def cancel_tasks(call: Call) -> ServerResponse:
    return _on_matching(call, "taskCancelation", "canceledTasks", " AND status IN ('enqueued', 'processing')")


def delete_tasks(call: Call) -> ServerResponse:
    return _on_matching(call, "taskDeletion", "deletedTasks", "")


def _on_matching(call: Call, kind: str, counted: str, condition: str) -> ServerResponse:
    verb = "cancel" if kind == "taskCancelation" else "delete"
    if set(call.query) <= {"customMetadata"}:
        raise ApiError(
            "missing_task_filters",
            f"Query parameters to filter the tasks to {verb} are missing. Available query parameters are: `uids`,"
            " `indexUids`, `statuses`, `types`, `canceledBy`, `beforeEnqueuedAt`, `afterEnqueuedAt`, `beforeStartedAt`, "
            "`afterStartedAt`, `beforeFinishedAt`, `afterFinishedAt`.",
        )
    found = parse_filter(call.query, ("customMetadata",))
    found.add(f"1{condition}")
    uids = found.uids(call.service.state)
    details = {"matchedTasks": len(uids), counted: None, "originalFilter": f"?{urlencode(dict(call.query))}"}
    after = max(uids, default=None) if "uids" in call.query else None
    return replace(call.accept(kind, None, {"tasks": uids, "after": after}, details), status=200)


def list_batches(call: Call) -> ServerResponse:
    uids, numbers = batch_page(call.service.state, call.query)
    return ServerResponse({"results": [_batch(call, uid) for uid in uids], **numbers})


def get_batch(call: Call) -> ServerResponse:
    return ServerResponse(_batch(call, _uid(call.path["batch_uid"], "batch")))


def _batch(call: Call, uid: int) -> dict[str, Any]:
    rows = call.service.state.all(f"SELECT {COLUMNS} FROM tasks WHERE batch_uid = ? ORDER BY uid", [uid])  # noqa: S608
    if not rows:
        raise ApiError("batch_not_found", f"Batch `{uid}` not found.")
    details: dict[str, Any] = {}
    for row in rows:
        for name, value in (row["details"] or {}).items():
            both = isinstance(value, int) and isinstance(details.get(name), int)
            details[name] = details[name] + value if both else value
    return {
        "uid": uid,
        "progress": None,
        "details": details,
        "stats": {
            "totalNbTasks": len(rows),
            "status": _count(rows, "status"),
            "types": _count(rows, "type"),
            "indexUids": _count(rows, "index_uid"),
        },
        "duration": timestamps.duration(rows[0]["started_at"], rows[-1]["finished_at"]),
        "startedAt": rows[0]["started_at"],
        "finishedAt": rows[-1]["finished_at"],
        "batchStrategy": "batched all enqueued tasks of the same kind for the same index",
    }


def _count(rows: list[Row], column: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        if row[column] is not None:
            counts[row[column]] = counts.get(row[column], 0) + 1
    return counts


def _uid(text: str, what: str) -> int:
    if not text.isdigit():
        raise ApiError(
            f"invalid_{what}_uids", f"Invalid value in parameter `uids`: could not parse `{text}` as a positive integer"
        )
    return int(text)
