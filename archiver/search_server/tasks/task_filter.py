"""Selects tasks: the query parameters of /tasks, validated and turned into a condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any

from archiver.search_server import timestamps
from archiver.search_server.errors import ApiError
from archiver.search_server.state import Row, ServerState, marks
from archiver.search_server.tasks.task_queue import STATUSES, TYPES

_INDEX_UID = re.compile(r"[a-zA-Z0-9_-]{1,512}")
_DATES = {
    f"{side}{event}At": (f"{column}_at", "<" if side == "before" else ">")
    for side in ("before", "after")
    for event, column in (("Enqueued", "enqueued"), ("Started", "started"), ("Finished", "finished"))
}
_LISTS = ("uids", "batchUids", "canceledBy", "statuses", "types", "indexUids")
FILTERS = (*_LISTS, *_DATES)
PAGING = ("limit", "from", "reverse")


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), name)


@dataclass(slots=True)
class TaskFilter:
    """A condition on tasks, as SQL."""

    conditions: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    @property
    def where(self) -> str:
        return " AND ".join(self.conditions) or "1"

    def add(self, condition: str, *values: Any) -> None:
        self.conditions.append(condition)
        self.values.extend(values)

    def uids(self, state: ServerState) -> list[int]:
        rows = state.all(f"SELECT uid FROM tasks WHERE {self.where} ORDER BY uid", self.values)  # noqa: S608
        return [row["uid"] for row in rows]


def parse_filter(query: Mapping[str, str], extra: tuple[str, ...] = ()) -> TaskFilter:
    """Raises ApiError for parameters that are unknown or wrong."""
    allowed = (*FILTERS, *extra)
    for name in query:
        if name not in allowed:
            raise ApiError(
                "bad_request", f"Unknown parameter `{name}`: expected one of {', '.join(f'`{one}`' for one in allowed)}"
            )
    found = TaskFilter()
    for name in _LISTS:
        if name in query and query[name] != "*":
            values = [_LIST_CHECKS[name](name, value.strip()) for value in query[name].split(",")]
            found.add(f"{_COLUMN[name]} IN ({marks(values)})", *values)
    for name, (column, sign) in _DATES.items():
        if name in query and query[name] != "*":
            found.add(f"{column} {sign} ?", _date(name, query[name], before=sign == "<"))
    return found


def page(state: ServerState, query: Mapping[str, str], columns: str) -> tuple[list[Row], dict[str, Any]]:
    """One page of tasks, newest first, with total, `from` and `next`."""
    return _page(state, query, columns, "uid")


def batch_page(state: ServerState, query: Mapping[str, str]) -> tuple[list[int], dict[str, Any]]:
    """One page of the numbers of the batches that contain such tasks."""
    rows, numbers = _page(state, query, "DISTINCT batch_uid", "batch_uid")
    return [row["batch_uid"] for row in rows], numbers


def _page(state: ServerState, query: Mapping[str, str], columns: str, key: str) -> tuple[list[Row], dict[str, Any]]:
    found = parse_filter(query, PAGING)
    found.add(f"{key} IS NOT NULL")
    limit = _number("limit", query.get("limit", "20"))
    counted = "*" if key == "uid" else f"DISTINCT {key}"
    total = (state.one(f"SELECT count({counted}) AS n FROM tasks WHERE {found.where}", found.values) or {"n": 0})["n"]  # noqa: S608
    forward = query.get("reverse", "false") == "true"
    if "from" in query:
        found.add(f"{key} >= ?" if forward else f"{key} <= ?", _number("from", query["from"]))
    order = "ASC" if forward else "DESC"
    rows = state.all(
        f"SELECT {columns} FROM tasks WHERE {found.where} ORDER BY {key} {order} LIMIT ?",  # noqa: S608
        [*found.values, limit + 1],
    )
    following = rows[limit][key] if len(rows) > limit else None
    rows = rows[:limit]
    return rows, {"total": total, "limit": limit, "from": rows[0][key] if rows else None, "next": following}


def _number(name: str, value: str) -> int:
    if not value.isdigit():
        raise ApiError(
            f"invalid_task_{_snake(name)}",
            f"Invalid value in parameter `{name}`: could not parse `{value}` as a positive integer",
        )
    return int(value)


def _one_of(allowed: tuple[str, ...]) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        for one in allowed:
            if one.lower() == value.lower():
                return one
        known = ", ".join(f"`{one}`" for one in allowed)
        raise ApiError(
            f"invalid_task_{_snake(name)}",
            f"Invalid value in parameter `{name}`: `{value}` is not a valid task {name.rstrip('es')}."
            f" Available values are {known}.",
        )

    return check


def _index_uid(name: str, value: str) -> str:
    if not _INDEX_UID.fullmatch(value):
        raise ApiError(
            "invalid_index_uid",
            f"Invalid value in parameter `{name}`: `{value}` is not a valid index uid. Index uid can be an integer or a string"
            " containing only alphanumeric characters, hyphens (-) and underscores (_), and can not be more than 512 bytes.",
        )
    return value


def _date(name: str, value: str, *, before: bool) -> str:
    parsed = timestamps.parse(value)
    if parsed is None:
        raise ApiError(
            f"invalid_task_{_snake(name)}",
            f"Invalid value in parameter `{name}`: `{value}` is an invalid date-time. It should follow the"
            " YYYY-MM-DD or RFC 3339 date-time format.",
        )
    if len(value) == 10 and not before:  # "after a day" begins when the day is over
        parsed += timedelta(days=1)
    return parsed.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


_LIST_CHECKS: dict[str, Callable[[str, str], Any]] = {
    "uids": _number,
    "batchUids": _number,
    "canceledBy": _number,
    "statuses": _one_of(STATUSES),
    "types": _one_of(TYPES),
    "indexUids": _index_uid,
}
_COLUMN = {
    "uids": "uid",
    "batchUids": "batch_uid",
    "canceledBy": "canceled_by",
    "statuses": "status",
    "types": "type",
    "indexUids": "index_uid",
}
