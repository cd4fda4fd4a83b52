"""Search, which is home: one box, facets, a list, and a pane to read in."""

from __future__ import annotations

import shlex
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.background import BackgroundTask

from archiver.errors import UsageError
from archiver.search.query.errors import QueryError
from archiver.services import audit, messages, saved_searches, suggestions
from archiver.services.access import scope_of
from archiver.services.export import export
from archiver.services.principal import Right
from archiver.services.search import Results
from archiver.web.pages.base import Form, Posted, View, Viewed, given_id, own_path, see
from archiver.web.pages.histogram import histogram

router = APIRouter(include_in_schema=False)

_PER_PAGE = 30
_FACETS = ("year", "month", "mailbox", "folder", "label", "sender", "domain", "type")
_SHOWN = 8
_MOST_QUERY = 2_000
_EXAMPLES = (
    ("invoice lamp", "words"),
    ('"price list"', "phrase"),
    ("invoice OR receipt", "either"),
    ("invoice -reminder", "without"),
    ("from:anna", "from"),
    ("from:@example.org", "domain"),
    ("to:sales@example.org", "to"),
    ("subject:report", "subject"),
    ("has:attachment", "attachment"),
    ("type:pdf", "type"),
    ("filename:invoice", "filename"),
    ("larger:5M", "larger"),
    ("after:2023-01-01 before:2024-01-01", "dates"),
    ("newer_than:6m", "relative"),
    ("in:INBOX", "folder"),
    ("mailbox:anna@example.org", "mailbox"),
)

Text = Annotated[str, Query(max_length=_MOST_QUERY)]


@router.get("/")
def search_page(view: Viewed, q: Text = "", sort: str = "", page: int = 1, part: str = "") -> Response:
    """`part=results` gives the two panes alone, for scripts."""
    query = q.strip()
    sort = sort if sort in ("newest", "oldest", "best") else "newest"
    page = min(max(page, 1), 1_000_000)
    values: dict[str, Any] = {
        "q": query,
        "sort": sort,
        "page_number": page,
        "per_page": _PER_PAGE,
        "results": None,
        "error": None,
        "link": link,
    }
    try:
        values["results"] = results = _search(view, query, sort, page)
        last = max(1, -(-results.total // _PER_PAGE))
        if not results.hits and page > last:
            return see(link(query, sort, last, part=part))
        values["facets"] = _facets(view, query, sort, results)
        values["bars"] = histogram(view.t, results.facets, datetime.now(view.zone).date())
        values["untimed"] = " ".join(word for word in _words(query) if not word.startswith(("after:", "before:", "on:")))
    except QueryError as error:
        values["error"] = error
    values["pages"] = _pages(query, sort, page, values["results"])
    values["sorts"] = [(one, view.t(f"search.{one}"), link(query, one), one == sort) for one in ("newest", "oldest", "best")]
    values["saved"] = saved_searches.of(view.user)
    values["is_saved"] = any(one["query"] == query for one in values["saved"])
    return view.page("search_results.html" if part == "results" else "search.html", **values)


def _search(view: View, query: str, sort: str, page: int) -> Results:
    context = view.context
    with context.reading() as connection:
        scope = scope_of(connection, view.who)
    found = context.search.search(
        query, scope, sort=sort, offset=(page - 1) * _PER_PAGE, limit=_PER_PAGE, facets=_FACETS, zone=view.zone
    )
    if query:
        audit.record_look(context.engine, view.who, "search", "search", None, query=query, total=found.total)
    return found


@router.get("/suggest")
def suggest(view: Viewed, q: Text = "") -> JSONResponse:
    """What the word at the end may become."""
    with view.context.reading() as connection:
        found = suggestions.complete(connection, scope_of(connection, view.who), q)
    return JSONResponse([{"text": one.text, "hint": view.t(f"hint.{one.hint}") if one.hint else ""} for one in found])


@router.post("/saved")
def save_search(view: Posted, given: Form) -> Response:
    query = given.get("query", "").strip()[:_MOST_QUERY]
    with view.context.engine.begin() as connection:
        if given.get("do") == "forget":
            saved_searches.forget(connection, view.user, query)
        else:
            saved_searches.save(connection, view.user, query, given.get("name", "").strip()[:80] or query[:80])
    return see(own_path(given.get("next"), link(query)))


@router.get("/search-help")
def help_page(view: Viewed) -> Response:
    return view.page("search_help.html", examples=_EXAMPLES)


@router.post("/export")
def export_selected(view: Posted, given: Form) -> Response:
    """The messages that were ticked, as a zip of .eml files with a manifest."""
    view.who.require(Right.EXPORT)
    wanted = [given_id(name.removeprefix("id.")) for name in given if name.startswith("id.")][:_PER_PAGE]
    if not wanted:
        raise UsageError(view.t("search.selection"))
    with view.context.reading() as connection:
        scope = scope_of(connection, view.who)
        for one in wanted:
            messages.visible_hash(connection, scope, one)  # raises for what they may not see
    audit.record_look(view.context.engine, view.who, "export", "message", None, messages=[str(one) for one in wanted])
    folder = tempfile.TemporaryDirectory(prefix="archiver-export-")
    path = Path(folder.name) / "mail.zip"
    export(view.context.engine, view.context.archive, path, "zip", ids=iter(wanted))
    headers = {"Content-Security-Policy": "sandbox; default-src 'none'"}
    return FileResponse(path, filename="mail.zip", headers=headers, background=BackgroundTask(folder.cleanup))


def link(query: str, sort: str = "newest", page: int = 1, part: str = "") -> str:
    values = {"q": query, "sort": sort if sort != "newest" else "", "page": str(page) if page > 1 else "", "part": part}
    text = urlencode({name: value for name, value in values.items() if value})
    return f"/?{text}" if text else "/"


def quoted(operator: str, value: str) -> str:
    plain = all(char.isalnum() or char in "@.-_/+*" for char in value) and value != ""
    escaped = value.replace('"', " ")
    return f"{operator}:{value}" if plain else f'{operator}:"{escaped}"'


def token_of(facet: str, value: str) -> str:
    """The words that ask for a value of a facet."""
    if facet == "domain":
        return f"from:@{value}"
    return quoted({"sender": "from", "folder": "in", "label": "label", "type": "type", "mailbox": "mailbox"}[facet], value)


def _facets(view: View, query: str, sort: str, results: Results) -> list[dict[str, Any]]:
    groups = []
    for name in _FACETS[2:]:  # years and months are bars
        values = []
        for one in results.facets.get(name, [])[:_SHOWN]:
            token = token_of(name, one.value)
            chosen = f" {token} " in f" {query} "
            target = " ".join(f" {query} ".replace(f" {token} ", " ").split()) if chosen else f"{query} {token}".strip()
            values.append({"value": one.value or "—", "count": one.count, "href": link(target, sort), "chosen": chosen})
        if values and (len(values) > 1 or values[0]["chosen"]):
            groups.append({"name": name, "title": view.t(f"facet.{name}"), "values": values})
    return groups


def _words(query: str) -> list[str]:
    try:
        lexer = shlex.shlex(query, posix=False)
        lexer.whitespace_split, lexer.commenters, lexer.quotes = True, "", '"'
        return list(lexer)
    except ValueError:
        return query.split()


def _pages(query: str, sort: str, page: int, results: Results | None) -> dict[str, Any]:
    if results is None:
        return {"before": None, "after": None, "first": 0, "last": 0}
    first = (page - 1) * _PER_PAGE
    last = first + len(results.hits)
    return {
        "before": link(query, sort, page - 1) if page > 1 else None,
        "after": link(query, sort, page + 1) if results.next_offset is not None else None,
        "first": first + 1 if results.hits else 0,
        "last": last,
    }
