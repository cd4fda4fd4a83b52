"""`archiver search`: the search of the web pages, in a terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archiver.cli.terminal.output import Json, console, messages, print_json
from archiver.cli.terminal.zone import local_zone, named_zone
from archiver.config import load_settings
from archiver.quantity import quantity
from archiver.search.local_request import LocalSearchRequest, ask
from archiver.supervisor.folder import DataFolder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo
    from uuid import UUID

_MARK = "bold yellow"
_STATES = {
    "pending": "not searchable yet",
    "body": "with attachments that are not searchable yet",
    "partial": "with attachments that can't be read",
    "failed": "that could not be indexed",
}


def search(
    query: Annotated[str, typer.Argument(help="The query; docs/search.md explains the language.")],
    limit: Annotated[int, typer.Option(min=0, max=1000, help="Hits per page.")] = 20,
    page: Annotated[int, typer.Option(min=1, help="The page to show.")] = 1,
    sort: Annotated[str, typer.Option(help="newest, oldest or best.")] = "newest",
    facets: Annotated[bool, typer.Option("--facets", help="Count the hits by sender, year, folder, …")] = False,
    zone: Annotated[
        str | None, typer.Option(help="Time zone of dates in the query and the result, such as Europe/Berlin.")
    ] = None,
    similar: Annotated[
        bool, typer.Option("--similar", help="Also show messages with typos or longer forms of the words.")
    ] = False,
    json: Json = False,
) -> None:
    """Search the archive: words, "phrases", from:alice, subject:invoice, has:attachment, after:2024-05, OR, -not, ( )."""
    chosen = named_zone(zone) if zone else local_zone()
    request = LocalSearchRequest(query, sort, page, limit, facets, getattr(chosen, "key", None) or "UTC", similar)
    answer = _ask_the_web_process(request)
    if answer is None:
        answer = _search_here(request, chosen)
    if json:
        print_json(answer)
    else:
        _print(answer, page, limit, chosen)


def _find_expiring(*asked: Any) -> Sequence[UUID]:
    from archiver.retention.expiry import find_expiring  # takes long to load, and few searches need it

    return find_expiring(*asked)


def _ask_the_web_process(request: LocalSearchRequest) -> dict[str, Any] | None:
    """Loading what a search needs takes longer than the search, and the web process of a running stack has it loaded."""
    settings = load_settings()
    return ask(DataFolder(settings.archiver_data).search_socket, request) if settings.embedded else None


def _search_here(request: LocalSearchRequest, zone: tzinfo) -> dict[str, Any]:
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.cli.terminal.connection import connect
    from archiver.db import schema
    from archiver.db.engine import make_engine
    from archiver.search.answer import answer_of
    from archiver.search.facets import FACETS
    from archiver.search.service import open_search

    with connect() as settings:
        assert settings.database_url is not None
        engine = make_engine(settings.database_url.get_secret_value(), "search")
        try:
            schema.check(engine)
            results = open_search(settings, engine, _find_expiring).search_as(
                LOCAL_OPERATOR,
                request.query,
                sort=request.sort,
                offset=(request.page - 1) * request.limit,
                limit=request.limit,
                facets=FACETS if request.facets else (),
                zone=zone,
                similar=request.similar,
            )
        finally:
            engine.dispose()
    return answer_of(results, request.page)


def _print(answer: dict[str, Any], page: int, limit: int, zone: tzinfo) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("date", no_wrap=True)
    table.add_column("from", max_width=28, no_wrap=True)
    table.add_column("subject and passage", ratio=1)
    table.add_column("id", style="dim", no_wrap=True)
    for hit in answer["hits"]:
        cell = Text.assemble(_style(hit["subject"] or "(no subject)", hit["subject_marks"], "bold"))
        if hit["snippet"].strip():
            cell.append("\n")
            cell.append(_style(_flatten(hit["snippet"]), hit["marks"], "none"))
        if hit["found_in"]:
            cell.append(f"\nin {hit['found_in']}", style="green")
        for variant in hit["variants"]:
            cell.append(f"\nalso archived as {variant}", style="dim")
        date = datetime.fromisoformat(hit["date"]).astimezone(zone)
        table.add_row(f"{date:%Y-%m-%d %H:%M}", hit["from_name"] or hit["from"] or "-", cell, hit["id"])
    if answer["hits"]:
        console.print(table)
    for name, values in answer.get("facets", {}).items():
        shown = ", ".join(f"{facet['value']} ({facet['count']:,})" for facet in values[:8])
        console.print(f"{name:8} {shown or '-'}", style="dim", markup=False)
    _print_totals(answer, (page - 1) * limit + 1)


def _print_totals(answer: dict[str, Any], first: int) -> None:
    more = "at least " if answer["total_is_lower_bound"] else ""
    of = f", {first:,} to {first + len(answer['hits']) - 1:,} shown" if answer["hits"] else ""
    messages.print(f"{more}{quantity(answer['total'], 'message')}{of}", style="dim", markup=False)
    if answer["similar"]:
        messages.print(f"also {answer['similar']:,} similar: --similar shows them", style="dim", markup=False)
    for state, count in answer["not_searchable"]["states"].items():
        messages.print(f"the archive has {quantity(count, 'message')} {_STATES.get(state, state)}", style="dim", markup=False)


def _style(text: str, marks: list[list[int]], style: str) -> Text:
    found = Text(text, style=style)
    for start, end in marks:
        found.stylize(_MARK, start, end)
    return found


def _flatten(text: str) -> str:
    """Replaces each line end by one space, so that the positions of the marks stay valid."""
    return "".join(" " if char.isspace() or not char.isprintable() else char for char in text)
