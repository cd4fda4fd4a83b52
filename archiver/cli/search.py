"""`archiver search`: the search of the web pages, in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archiver.cli.connection import connect
from archiver.cli.output import Json, console, messages, print_json
from archiver.cli.zone import local_zone, named_zone
from archiver.quantity import quantity

if TYPE_CHECKING:  # these load large libraries
    from datetime import tzinfo

    from archiver.search.service import MessageHit, Results
    from archiver.search.snippets import MatchedText

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
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.db import schema
    from archiver.db.engine import make_engine
    from archiver.search.facets import FACETS
    from archiver.search.service import open_search

    chosen = named_zone(zone) if zone else local_zone()
    with connect() as settings:
        assert settings.database_url is not None
        engine = make_engine(settings.database_url.get_secret_value(), "search")
        try:
            schema.check(engine)
            wanted = FACETS if facets else ()
            results = open_search(settings, engine).search_as(
                LOCAL_OPERATOR,
                query,
                sort=sort,
                offset=(page - 1) * limit,
                limit=limit,
                facets=wanted,
                zone=chosen,
                similar=similar,
            )
        finally:
            engine.dispose()
    if json:
        print_json(as_json(results, page))
    else:
        _print(results, page, limit, chosen)


def as_json(results: Results, page: int) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "total": results.total,
        "total_is_lower_bound": results.total_is_lower_bound,
        "next_page": None if results.next_offset is None else page + 1,
        "similar": results.similar,
        "has_similar": results.has_similar,
        "hits": [_hit_as_json(hit) for hit in results.hits],
        "not_searchable": {
            "messages": sum(results.not_searchable.states.values()),
            "states": dict(results.not_searchable.states),
            "reasons": dict(results.not_searchable.reasons),
        },
    }
    if results.facets:
        answer["facets"] = {
            name: [{"value": facet.value, "count": facet.count} for facet in values] for name, values in results.facets.items()
        }
    return answer


def _hit_as_json(hit: MessageHit) -> dict[str, Any]:
    return {
        "id": hit.id,
        "sha256": hit.sha256,
        "date": hit.date.isoformat(),
        "from": hit.sender,
        "from_name": hit.sender_name,
        "subject": hit.subject.text,
        "snippet": hit.passage.text,
        "marks": hit.passage.marks,
        "found_in": hit.found_in,
        "bytes": hit.size_bytes,
        "has_attachments": hit.has_attachments,
        "thread": hit.thread_id,
        "copies": [dict(copy) for copy in hit.copies],
        "variants": hit.variants,
    }


def _print(results: Results, page: int, limit: int, zone: tzinfo) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("date", no_wrap=True)
    table.add_column("from", max_width=28, no_wrap=True)
    table.add_column("subject and passage", ratio=1)
    table.add_column("id", style="dim", no_wrap=True)
    for hit in results.hits:
        cell = Text.assemble(_style(hit.subject, "bold"))
        passage = " ".join(hit.passage.text.split())
        if passage:
            cell.append("\n")
            cell.append(_style(_flatten(hit.passage), "none"))
        if hit.found_in:
            cell.append(f"\nin {hit.found_in}", style="green")
        for variant in hit.variants:
            cell.append(f"\nalso archived as {variant}", style="dim")
        table.add_row(f"{hit.date.astimezone(zone):%Y-%m-%d %H:%M}", hit.sender_name or hit.sender or "-", cell, str(hit.id))
    if results.hits:
        console.print(table)
    for name, values in results.facets.items():
        shown = ", ".join(f"{facet.value} ({facet.count:,})" for facet in values[:8])
        console.print(f"{name:8} {shown or '-'}", style="dim", markup=False)
    first = (page - 1) * limit + 1
    more = "at least " if results.total_is_lower_bound else ""
    of = f", {first:,} to {first + len(results.hits) - 1:,} shown" if results.hits else ""
    messages.print(f"{more}{quantity(results.total, 'message')}{of}", style="dim", markup=False)
    if results.similar:
        messages.print(f"also {results.similar:,} similar: --similar shows them", style="dim", markup=False)
    for state, count in results.not_searchable.states.items():
        messages.print(f"the archive has {quantity(count, 'message')} {_STATES.get(state, state)}", style="dim", markup=False)


def _style(marked: MatchedText, style: str) -> Text:
    text = Text(marked.text or "(no subject)" if style == "bold" else marked.text, style=style)
    for start, end in marked.marks:
        text.stylize(_MARK, start, end)
    return text


def _flatten(marked: MatchedText) -> MatchedText:
    """Replaces each line end by one space, so that the positions of the marks stay valid."""
    from archiver.search.snippets import MatchedText as Plain

    return Plain("".join(" " if char.isspace() or not char.isprintable() else char for char in marked.text), marked.marks)
