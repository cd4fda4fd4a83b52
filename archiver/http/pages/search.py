"""Search, the home page: search box, facets, result list, reading pane."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from archiver.access import users
from archiver.access.principal import Right
from archiver.access.scope import MailScope, scope_of
from archiver.errors import NotFound
from archiver.http.pages.base import Form, Posted, View, Viewed, local_path, redirect
from archiver.http.pages.change_notice import describe_change
from archiver.http.pages.histogram import histogram
from archiver.marks import tags
from archiver.reading import statistics
from archiver.search import news, suggestions
from archiver.search import saved as saved_searches
from archiver.search.conversations import MOST_COUNTED
from archiver.search.facets import FacetValue
from archiver.search.query.errors import QueryError
from archiver.search.saved import SavedSearch
from archiver.search.service import MessageHit, Results
from archiver.sources import runs

router = APIRouter(include_in_schema=False)

_PER_PAGE = {False: 30, True: 50}
"""Messages; grouped, fifty of them make about thirty rows."""
_FACETS = ("year", "month", "mailbox", "folder", "label", "sender", "domain", "type")
_SHOWN = 8
_COUNTED = 12
"""Saved searches whose new mail is counted."""
_MOST_VALUES = 1_000
_MAX_QUERY_CHARS = 2_000
_SUGGESTED = ("has:attachment", "type:pdf", "newer_than:30d", "larger:5M")
_SUGGESTED_SAMPLE = ("invoice", '"purchase order"', "heron lamp", "from:@lanternworks.example has:attachment", "type:pdf")
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

Text = Annotated[str, Query(max_length=_MAX_QUERY_CHARS)]


@router.get("/")
def search_page(
    view: Viewed, q: Text = "", sort: str = "", page: int = 1, part: str = "", similar: bool = False, change: str = ""
) -> Response:
    """`part=results` returns facets and list alone, for scripts."""
    query = q.strip()
    sort = sort if sort in ("newest", "oldest", "best") else "newest"
    page = min(max(page, 1), 1_000_000)
    grouped = view.user.settings.get("grouped") is not False
    per_page = _PER_PAGE[grouped]
    values: dict[str, Any] = {
        "q": query,
        "sort": sort,
        "page_number": page,
        "grouped": grouped,
        "density": "compact" if view.user.settings.get("density") == "compact" else "comfortable",
        "most_counted": MOST_COUNTED,
        "results": None,
        "error": None,
        "similar": similar,
        "link": partial(link, similar=similar),
        "other_reading": link(query, sort, similar=not similar),
    }
    try:
        values["results"] = results = _search(view, query, sort, page, similar=similar, grouped=grouped)
        last = max(1, -(-results.total // per_page))
        if not results.hits and page > last:
            return redirect(link(query, sort, last, part=part, similar=similar))
        values["facets"] = _facets(view, query, sort, results, similar=similar)
        values["chips"] = _chips(query, sort, similar=similar)
        values["bars"] = histogram(view.t, results.facets, datetime.now(view.zone).date())
        values["untimed"] = " ".join(word for word in _words(query) if not word.startswith(("after:", "before:", "on:")))
    except QueryError as error:
        values["error"] = error
    if values["results"] is not None and not values["results"].hits:
        values |= explain_nothing(view)
    values["suggested"] = () if query else _SUGGESTED_SAMPLE if view.context.settings.sample_sources else _SUGGESTED
    values["pages"] = _pages(query, sort, page, values["results"], per_page, similar=similar)
    values["sorts"] = [
        (one, view.t(f"search.{one}"), link(query, one, similar=similar), one == sort) for one in ("newest", "oldest", "best")
    ]
    values |= _saved(view, query, values["results"], counts=part != "results")
    values |= _marks(view, values["results"], change)
    return view.page("search_results.html" if part == "results" else "search.html", **values)


def _saved(view: View, query: str, results: Results | None, *, counts: bool) -> dict[str, Any]:
    """The saved searches with what is new in each, and the hits that are new since the last visit to this one."""
    listed, new_hits = saved_searches.of(view.user), set[UUID]()
    now = datetime.now(UTC)
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        since = saved_searches.visit(connection, view.user, query, now) if query else None
        if since is not None and results is not None:
            new_hits = news.new_among(connection, scope, since, [one for hit in results.hits for one in (hit.id, *hit.also)])
        new = {one.query: _count_new(view, connection, scope, one) for one in listed[:_COUNTED]} if counts else {}
    current = next((one for one in listed if one.query == query), None)
    return {"saved": listed, "new_counts": new, "new_hits": new_hits, "is_saved": current is not None, "current_saved": current}


def _count_new(view: View, connection: Any, scope: MailScope, one: SavedSearch) -> int:
    since = one.opened_at
    if since is None:
        return 0
    found = news.new_messages(connection, scope, since)
    key = ("new", scope.reader, one.query, since, len(found))
    search = view.context.search
    return int(view.context.count_cache.get(key, lambda: news.count_new(search, scope, one.query, view.zone, found)))


def _marks(view: View, results: Results | None, change: str) -> dict[str, Any]:
    """The reader's tags, those on the hits, and the notice of the change that was just made."""
    shown = [one for hit in results.hits for one in (hit.id, *hit.also)] if results else []
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        listed = view.context.count_cache.get(("tags", scope.reader), lambda: tags.list_tags(connection, scope))
        on_hits = tags.tags_on(connection, scope, shown)

    def names_on(hit: MessageHit) -> list[tuple[str, bool]]:
        """The tags of the messages that a row stands for."""
        found = [tag for one in (hit.id, *hit.also) for tag in on_hits.get(one, ())]
        return list(dict.fromkeys((tag.name, tag.is_shared) for tag in found))

    return {"tags": listed, "names_on": names_on, "change": describe_change(view, change) if change else None}


def _search(view: View, query: str, sort: str, page: int, *, similar: bool, grouped: bool) -> Results:
    per_page = _PER_PAGE[grouped]
    return view.context.search.search_as(
        view.principal,
        query,
        sort=sort,
        offset=(page - 1) * per_page,
        limit=per_page,
        facets=_FACETS,
        zone=view.zone,
        similar=similar,
        grouped=grouped,
    )


def explain_nothing(view: View) -> dict[str, Any]:
    """Why a reader sees nothing: what an administrator may know of mail that they may not read, and what is under way."""
    may_know, may_follow = Right.ADMIN in view.principal.rights, Right.VIEW in view.principal.rights
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        archived = 0
        if may_know and scope.mailboxes is not None:
            archived = view.context.count_cache.get("archived", lambda: statistics.archived_messages(connection))
        running = runs.running(connection) if may_follow else []
    readable = None if scope.mailboxes is None else len(scope.mailboxes)
    return {"readable_mailboxes": readable, "archived": archived, "syncs": running}


@router.get("/suggest")
def suggest(view: Viewed, q: Text = "") -> JSONResponse:
    """Completions of the last word."""
    with view.context.reading() as connection:
        found = suggestions.complete(connection, scope_of(connection, view.principal), q)
    return JSONResponse([{"text": one.text, "hint": view.t(f"hint.{one.hint}") if one.hint else ""} for one in found])


@router.post("/saved")
def save_search(view: Posted, form: Form) -> Response:
    query = form.get("query", "").strip()[:_MAX_QUERY_CHARS]
    with view.context.engine.begin() as connection:
        if form.get("do") == "forget":
            saved_searches.forget(connection, view.user, query)
        elif form.get("do") in ("tell", "be_quiet"):
            notify = form["do"] == "tell"
            saved_searches.change_notice(connection, view.user, query, datetime.now(UTC), notify=notify)
        else:
            name = form.get("name", "").strip()[:80] or query[:80]
            saved_searches.save(connection, view.user, query, name, datetime.now(UTC))
    return redirect(local_path(form.get("next"), link(query)))


@router.post("/view")
def change_view(view: Posted, form: Form) -> Response:
    """How this user's results are shown."""
    choices: dict[str, Any] = {}
    if form.get("grouped") in ("yes", "no"):
        choices["grouped"] = None if form["grouped"] == "yes" else False
    if form.get("density") in ("comfortable", "compact"):
        choices["density"] = None if form["density"] == "comfortable" else form["density"]
    with view.context.engine.begin() as connection:
        users.change_settings(connection, view.user, **choices)
    return redirect(local_path(form.get("next")))


@router.get("/search-help")
def help_page(view: Viewed) -> Response:
    return view.page("search_help.html", examples=_EXAMPLES)


def link(query: str, sort: str = "newest", page: int = 1, part: str = "", *, similar: bool = False) -> str:
    values = {
        "q": query,
        "sort": sort if sort != "newest" else "",
        "page": str(page) if page > 1 else "",
        "part": part,
        "similar": "1" if similar else "",
    }
    text = urlencode({name: value for name, value in values.items() if value})
    return f"/?{text}" if text else "/"


def quoted(operator: str, value: str) -> str:
    plain = all(char.isalnum() or char in "@.-_/+*" for char in value) and value != ""
    escaped = value.replace('"', " ")
    return f"{operator}:{value}" if plain else f'{operator}:"{escaped}"'


def token_of(facet: str, value: str) -> str:
    """The query term for a facet value."""
    if facet == "domain":
        return f"from:@{value}"
    return quoted({"sender": "from", "folder": "in", "label": "label", "type": "type", "mailbox": "mailbox"}[facet], value)


def _chips(query: str, sort: str, *, similar: bool) -> list[dict[str, str]]:
    """The operators of a query, each with the query without it. None if OR or brackets tie its parts together."""
    words = _words(query)
    if any(word in ("OR", "AND", "NOT") or word.startswith(("(", "-(")) for word in words):
        return []
    found = []
    for place, word in enumerate(words):
        operator, colon, value = word.lstrip("-").partition(":")
        if colon and value and operator.replace("_", "").isalpha():
            rest = " ".join([*words[:place], *words[place + 1 :]])
            found.append({"text": word, "href": link(rest, sort, similar=similar)})
    return found


@router.get("/facets/{name}")
def facet_page(view: Viewed, name: str, q: Text = "", sort: str = "", similar: bool = False, find: Text = "") -> Response:
    """All values of a facet."""
    if name not in _FACETS[2:]:
        raise NotFound(f"there is no facet {name[:50]!r}")
    found = view.context.search.search_as(
        view.principal, q.strip(), limit=0, facets=[name], zone=view.zone, similar=similar, values=_MOST_VALUES
    ).facets.get(name, [])
    wanted = find.strip().lower()
    listed = [_value(name, one, q.strip(), sort, similar=similar) for one in found if wanted in one.value.lower()]
    more = {"is_cut": len(found) >= _MOST_VALUES, "similar": similar, "sort": sort}
    return view.page("facet.html", name=name, q=q.strip(), find=find.strip(), listed=listed, **more)


def _value(name: str, one: FacetValue, query: str, sort: str, *, similar: bool) -> dict[str, Any]:
    token = token_of(name, one.value)
    chosen = f" {token} " in f" {query} "
    rest = " ".join(f" {query} ".replace(f" {token} ", " ").split())
    return {
        "value": one.value or "—",
        "count": one.count,
        "href": link(rest if chosen else f"{query} {token}".strip(), sort, similar=similar),
        "without": link(f"{rest} -{token}".strip(), sort, similar=similar),
        "chosen": chosen,
    }


def _facets(view: View, query: str, sort: str, results: Results, *, similar: bool) -> list[dict[str, Any]]:
    groups = []
    for name in _FACETS[2:]:  # years and months are shown as bars
        found = results.facets.get(name, [])
        values = [_value(name, one, query, sort, similar=similar) for one in found[:_SHOWN]]
        if values and (len(values) > 1 or values[0]["chosen"]):
            every = link(query, sort, similar=similar).replace("/", f"/facets/{name}", 1) if len(found) > _SHOWN else None
            groups.append({"name": name, "title": view.t(f"facet.{name}"), "values": values, "every": every})
    return groups


def _words(query: str) -> list[str]:
    try:
        lexer = shlex.shlex(query, posix=False)
        lexer.whitespace_split, lexer.commenters, lexer.quotes = True, "", '"'
        return list(lexer)
    except ValueError:
        return query.split()


def _pages(query: str, sort: str, page: int, results: Results | None, per_page: int, *, similar: bool) -> dict[str, Any]:
    if results is None:
        return {"before": None, "after": None, "first": 0, "last": 0}
    first = (page - 1) * per_page
    last = first + sum(1 + len(hit.also) for hit in results.hits)
    return {
        "before": link(query, sort, page - 1, similar=similar) if page > 1 else None,
        "after": link(query, sort, page + 1, similar=similar) if results.next_offset is not None else None,
        "first": first + 1 if results.hits else 0,
        "last": last,
    }
