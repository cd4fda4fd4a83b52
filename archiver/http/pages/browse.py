"""Browse: the tree of mailboxes and folders, and the mail of one of them by date, without a search."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from archiver.access import audit
from archiver.access.principal import Right
from archiver.access.scope import MailScope, scope_of
from archiver.date_range import END, FIRST
from archiver.errors import UsageError
from archiver.http import formats
from archiver.http.api.page import decode_cursor, encode_cursor, time_of
from archiver.http.pages.base import View, Viewed, parse_id
from archiver.http.pages.change_notice import describe_change
from archiver.http.pages.search import explain_nothing, link, quoted
from archiver.marks import tags
from archiver.reading import browsing
from archiver.reading.browsing import BrowsedMailbox, FolderTree, MailPage
from archiver.reading.messages import MessageRow, PageCursor

router = APIRouter(include_in_schema=False)

_PER_PAGE = 50
_NODES = 200
"""Mailboxes, and folders of one level, that are shown at once."""

Text = Annotated[str, Query(max_length=2_000)]


@router.get("/browse")
def browse_page(view: Viewed, find: Text = "", after: str = "") -> Response:
    """All mailboxes that the reader can see."""
    view.principal.require(Right.READ)
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        values = _mailboxes(view, connection, scope, find, after)
    nothing = {} if values["mailboxes"] or find else explain_nothing(view)
    return view.page("browse.html", mailbox=None, page=None, folder=None, crumbs=[], **values, **nothing)


@router.get("/browse/{mailbox_id}")
def mailbox_page(
    view: Viewed,
    mailbox_id: UUID,
    folder: str | None = None,
    below: str = "",
    above: str = "",
    until: str = "",
    find: Text = "",
    change: str = "",
) -> Response:
    """Its mail, newest first; of one folder, if it is named. `until`: a month, as 2024-05."""
    view.principal.require(Right.READ)
    folder = folder.replace("\0", "").strip("/") if folder else None
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        mailbox = browsing.load_mailbox(connection, scope, mailbox_id)
        tree = _tree(view, connection, mailbox_id)
        held = tree.node(folder).own if folder is not None else _count(view, connection, [mailbox_id]).get(mailbox_id, 0)
        shown = browsing.leaf_through(
            connection,
            scope.narrow_to(mailbox_id),
            folder,
            held,
            below=_cursor(below),
            above=_cursor(above),
            until=_month_end(view, until),
            limit=_PER_PAGE,
        )
        values: dict[str, Any] = {"tags_on": tags.tags_on(connection, scope, [one.id for one in shown.messages])}
    details = {"folder": folder, "shown": len(shown.messages)}
    audit.record_look(view.context.engine, view.principal, "message.listed", "mailbox", mailbox_id, **details)
    values |= _place(mailbox, folder, tree, find) | _list(view, mailbox, folder, shown, held)
    at = {"below": below, "above": above, "until": until}
    here = _address(mailbox, folder, **{name: value for name, value in at.items() if value})
    values |= {"here": here, "until": until, "change": describe_change(view, change) if change else None}
    return view.page("browse.html", **values)


def _list(view: View, mailbox: BrowsedMailbox, folder: str | None, shown: MailPage, held: int) -> dict[str, Any]:
    """The rows, and what the selection bar needs: the search for all of this place."""
    ways = _ways(mailbox, folder, shown)
    with view.context.reading() as connection:
        known = tags.list_tags(connection, scope_of(connection, view.principal))
    return {
        "page": shown,
        "months": _by_month(view, shown),
        "month_name": lambda at: formats.month(view.t, at),
        "ways": ways,
        "held": held,
        "density": "compact" if view.user.settings.get("density") == "compact" else "comfortable",
        "results": {"total": held, "has_similar": False},
        "pages": {"before": ways["newer"], "after": ways["older"]},
        "tags": known,
    }


@router.get("/browse/{mailbox_id}/folders")
def folder_level(view: Viewed, mailbox_id: UUID, under: Text = "", after: Text = "") -> Response:
    """One level of the tree, for scripts."""
    view.principal.require(Right.READ)
    with view.context.reading() as connection:
        mailbox = browsing.load_mailbox(connection, scope_of(connection, view.principal), mailbox_id)
        tree = _tree(view, connection, mailbox_id)
    return view.page("parts/folder_level.html", level=_level(mailbox, tree, under, after=after), folder=None)


def _tree(view: View, connection: Any, mailbox_id: UUID) -> FolderTree:
    """The reader's access to the mailbox is checked before."""
    found: FolderTree = view.context.count_cache.get(
        ("folders", mailbox_id), lambda: browsing.load_tree(connection, mailbox_id)
    )
    return found


def _count(view: View, connection: Any, mailbox_ids: list[UUID]) -> dict[UUID, int]:
    key = ("mailbox-counts", tuple(mailbox_ids))
    found: dict[UUID, int] = view.context.count_cache.get(key, lambda: browsing.count_mail(connection, mailbox_ids))
    return found


def _mailboxes(view: View, connection: Any, scope: MailScope, find: str, after: str) -> dict[str, Any]:
    last = None
    if after:
        address, _, last_id = after.rpartition(" ")
        last = BrowsedMailbox(parse_id(last_id), address, None, "")
    found = browsing.list_mailboxes(connection, scope, find=find.strip(), after=last, limit=_NODES + 1)
    listed = found[:_NODES]
    more = None
    if len(found) > _NODES:
        more = "/browse?" + urlencode({"find": find, "after": f"{listed[-1].address.lower()} {listed[-1].id}"})
    counts = _count(view, connection, [one.id for one in listed])
    return {"mailboxes": listed, "counts": counts, "find": find, "more": more}


def _place(mailbox: BrowsedMailbox, folder: str | None, tree: FolderTree, find: str) -> dict[str, Any]:
    """The way to a folder: every level above it, opened, and the one below it."""
    levels = [_level(mailbox, tree, "", folder=folder)]
    crumbs, path = [], ""
    for name in folder.split("/") if folder else []:
        path = f"{path}/{name}" if path else name
        crumbs.append({"name": name, "href": _address(mailbox, path)})
        levels.append(_level(mailbox, tree, path, folder=folder))
    found = [{"node": one, "href": _address(mailbox, one.path)} for one in tree.find(find.strip())] if find.strip() else None
    query = f"{quoted('mailbox', mailbox.address)} {quoted('in', folder) if folder else ''}".strip()
    return {
        "mailbox": mailbox,
        "folder": folder,
        "levels": levels,
        "crumbs": crumbs,
        "find": find,
        "found": found,
        "folders": len(tree),
        "home": _address(mailbox, None),
        "search_here": link(query),
        "query_here": query,
    }


def _level(
    mailbox: BrowsedMailbox, tree: FolderTree, under: str, *, after: str = "", folder: str | None = None
) -> dict[str, Any]:
    """The folders directly below one. `folder` is shown even if it is far down in the list."""
    found = tree.children(under, after=after, limit=_NODES + 1)
    nodes, more = found[:_NODES], None
    if len(found) > _NODES:
        more = f"/browse/{mailbox.id}/folders?" + urlencode({"under": under, "after": nodes[-1].name})
    prefix = f"{under}/" if under else ""
    if folder and folder.startswith(prefix) and folder != under:
        inside = prefix + folder[len(prefix) :].partition("/")[0]
        if all(node.path != inside for node in nodes):
            nodes = [*nodes, tree.node(inside)]
    listed = [
        {"node": node, "href": _address(mailbox, node.path), "load": _load(mailbox, node.path) if node.has_children else None}
        for node in nodes
    ]
    return {"under": under, "nodes": listed, "more": more}


def _address(mailbox: BrowsedMailbox, folder: str | None, **more: str) -> str:
    values = urlencode({**({"folder": folder} if folder is not None else {}), **more})
    return f"/browse/{mailbox.id}" + (f"?{values}" if values else "")


def _load(mailbox: BrowsedMailbox, path: str) -> str:
    return f"/browse/{mailbox.id}/folders?" + urlencode({"under": path})


def _ways(mailbox: BrowsedMailbox, folder: str | None, page: MailPage) -> dict[str, str | None]:
    if not page.messages:
        return {"newer": None, "older": None}
    first, last = page.messages[0], page.messages[-1]
    newer = _address(mailbox, folder, above=encode_cursor(first.date.isoformat(), first.id)) if page.has_newer else None
    older = _address(mailbox, folder, below=encode_cursor(last.date.isoformat(), last.id)) if page.has_older else None
    return {"newer": newer, "older": older}


def _cursor(value: str) -> PageCursor | None:
    if not value:
        return None
    date, message_id = decode_cursor(value, 2)
    return PageCursor(time_of(date), parse_id(message_id))


def _month_end(view: View, month: str) -> datetime | None:
    """The end of a month in the reader's time zone."""
    if not month:
        return None
    year, _, number = month.partition("-")
    if not (year.isdecimal() and number.isdecimal() and len(month) <= 7 and 1 <= int(number) <= 12):
        raise UsageError(f"{month[:20]!r} is not a month: expected one like 2024-05")
    following = (int(year) + int(number) // 12, int(number) % 12 + 1)
    if not FIRST.year <= following[0] < END.year:
        raise UsageError(f"{month[:20]!r}: expected a month between {FIRST.year} and {END.year - 1}")
    return datetime(*following, 1, tzinfo=view.zone)


def _by_month(view: View, page: MailPage) -> list[tuple[datetime, list[MessageRow]]]:
    """In the reader's time zone."""
    months = groupby(page.messages, key=lambda one: one.date.astimezone(view.zone).strftime("%Y-%m"))
    return [(found[0].date.astimezone(view.zone), found) for found in (list(group) for _, group in months)]
