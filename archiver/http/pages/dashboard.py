"""Dashboard: amount and size of mail over time, by source, sender and domain."""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.access.scope import scope_of
from archiver.http import formats
from archiver.http.pages.base import View, Viewed
from archiver.http.pages.health import assess_health
from archiver.http.pages.search import explain_nothing, link, quoted, token_of
from archiver.reading import statistics
from archiver.reading.statistics import Figures, Month

router = APIRouter(include_in_schema=False)

_BARS = 240
"""Months; a longer time is shown by years."""
_WIDTH, _HEIGHT = 960, 180


@router.get("/dashboard")
def dashboard_page(view: Viewed) -> Response:
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        key = ("dashboard", scope, str(view.zone))
        found = view.context.count_cache.get(key, lambda: statistics.figures(connection, scope, view.zone))
    values: dict[str, Any] = explain_nothing(view) if not found.messages else {}
    if Right.VIEW in view.principal.rights:
        values |= {"health": assess_health(view), "storage": _storage(view, found)}
    values |= {
        "figures": found,
        "chart": _chart(found.months),
        "grown": _growth(found.archived),
        "month_name": lambda at: formats.month(view.t, at),
        "search": {
            "sender": lambda name: link(token_of("sender", name)),
            "domain": lambda name: link(token_of("domain", name)),
            "source": lambda name: link(quoted("source", name)),
        },
    }
    return view.page("dashboard.html", **values)


def _storage(view: View, found: Figures) -> dict[str, Any]:
    """The disk of the data folder. With packs elsewhere, the disk says nothing about their growth."""
    settings = view.context.settings
    disk = shutil.disk_usage(settings.archiver_data)
    months = None
    if found.stored_bytes is not None and settings.storage_type == "local":
        months = statistics.months_until_full(found.archived, found.stored_bytes, found.bytes, disk.free)
    return {"used": disk.total - disk.free, "total": disk.total, "free": disk.free, "months": months}


def _growth(archived: tuple[Month, ...]) -> list[dict[str, Any]]:
    """The last twelve months by when their mail was archived."""
    last = archived[-12:]
    highest = max((month.messages for month in last), default=0) or 1
    return [{"at": one.at, "messages": one.messages, "bytes": one.bytes, "share": one.messages / highest} for one in last]


def _period(year: int, month: int, *, by_month: bool) -> str:
    """The query for the mail of a bar."""
    end = (year, month + 1) if by_month and month < 12 else (year + 1, 1)
    return f"after:{year}-{month:02}-01 before:{end[0]}-{end[1]:02}-01"


def _chart(months: tuple[Month, ...]) -> dict[str, Any] | None:
    """Bars without gaps: by month, or by year if there are too many months."""
    if not months:
        return None
    first, last = months[0].at, months[-1].at
    by_month = (last.year - first.year) * 12 + last.month - first.month + 1 <= _BARS
    counts: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for month in months:
        count = counts[month.at.year, month.at.month if by_month else 1]
        count[0] += month.messages
        count[1] += month.bytes
    keys = [
        (year, number)
        for year in range(first.year, last.year + 1)
        for number in (range(1, 13) if by_month else (1,))
        if not by_month or (first.year, first.month) <= (year, number) <= (last.year, last.month)
    ]
    highest = max(count[0] for count in counts.values()) or 1
    step = _WIDTH / len(keys)
    bars = [
        {
            "x": round(position * step + step * 0.1, 2),
            "width": round(step * 0.8, 2),
            "height": round((_HEIGHT - 24) * counts[key][0] / highest, 2),
            "label": f"{key[0]}-{key[1]:02}" if by_month else str(key[0]),
            "href": link(_period(*key, by_month=by_month)),
            "messages": counts[key][0],
            "bytes": counts[key][1],
        }
        for position, key in enumerate(keys)
    ]
    marks = [bars[0], bars[len(bars) // 2], bars[-1]] if len(bars) > 2 else bars
    return {"bars": bars, "marks": marks, "width": _WIDTH, "height": _HEIGHT, "highest": highest}
