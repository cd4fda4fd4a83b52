"""Dead letters: filter, look into, retry, discard, download, one by one or all that match."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.access.scope import scope_of
from archiver.db.states import DeadLetterKind
from archiver.errors import Conflict, UsageError
from archiver.http.api.page import decode_cursor, encode_cursor, time_of
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.http.public_text import without_paths
from archiver.sources import dead_letters
from archiver.sources import rows as source_rows
from archiver.sources.dead_letters import DeadLetterFilter

router = APIRouter(include_in_schema=False)

_LETTERS = 50
_AGES = (1, 24, 168, 720)
Text = Annotated[str, Query(max_length=2000)]


@router.get("/dead-letters")
def dead_letters_page(
    view: Viewed,
    kind: Text = "",
    source: Text = "",
    reason: Text = "",
    contains: Text = "",
    older: Text = "",
    discarded: bool = False,
    cursor: Text = "",
    retried: int | None = None,
) -> Response:
    chosen = {"kind": kind, "source": source, "reason": reason, "contains": contains, "older": older}
    chosen["discarded"] = "true" if discarded else ""
    return _page(view, chosen, cursor, retried=retried)


def _filter(chosen: dict[str, str]) -> DeadLetterFilter:
    kind, older = chosen.get("kind", ""), chosen.get("older", "")
    if kind and kind not in set(DeadLetterKind):
        raise UsageError(f"kind={kind[:20]!r}: expected {', '.join(DeadLetterKind)}")
    if older and not (older.isascii() and older.isdigit() and len(older) < 8):
        raise UsageError(f"older={older[:20]!r}: expected a number of hours")
    return DeadLetterFilter(
        source_id=parse_id(chosen["source"]) if chosen.get("source") else None,
        kind=kind or None,
        reason=chosen.get("reason") or None,
        reason_contains=chosen.get("contains") or None,
        older_than_hours=float(older) if older else None,
        discarded=chosen.get("discarded") == "true",
    )


def _page(view: View, chosen: dict[str, str], cursor: str = "", status: int = 200, **more: Any) -> Response:
    view.principal.require(Right.VIEW)
    wanted = _filter(chosen)
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        found = dead_letters.listed(connection, wanted, limit=_LETTERS, before=_before(cursor), scope=scope)
        values: dict[str, Any] = {
            "letters": found,
            "total": dead_letters.count(connection, wanted),
            "reasons": dead_letters.reasons(connection, replace(wanted, reason=None), scope=scope),
            "sources": source_rows.all_sources(connection),
        }
    last = found[-1] if len(found) == _LETTERS else None
    values |= {
        "next": encode_cursor(last.last_failed_at.isoformat(), last.id) if last else None,
        "chosen": chosen,
        "query": urlencode({name: value for name, value in chosen.items() if value}),
        "kinds": list(DeadLetterKind),
        "ages": _AGES,
        "error": None,
        "refused": (),
        "retried": None,
    }
    return view.page("dead_letters.html", status, **{**values, **more})


def _before(cursor: str) -> tuple[datetime, UUID] | None:
    if not cursor:
        return None
    at, letter_id = decode_cursor(cursor, 2)
    return time_of(at), parse_id(letter_id)


@router.get("/dead-letters/{letter_id}")
def dead_letter_page(view: Viewed, letter_id: UUID) -> Response:
    view.principal.require(Right.VIEW)
    with view.context.reading() as connection:
        letter = dead_letters.find(connection, str(letter_id), scope_of(connection, view.principal))
    return view.page("dead_letter.html", letter=letter)


@router.get("/dead-letters/{letter_id}/bytes")
def dead_letter_bytes(view: Viewed, letter_id: UUID) -> Response:
    """The message as it was fetched, for those who may read its mailbox."""
    view.principal.require(Right.READ)
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        digest = dead_letters.find_bytes(connection, dead_letters.find(connection, str(letter_id), scope), scope)
    raw = view.context.archive.read(digest)
    headers = {"Content-Disposition": f'attachment; filename="{letter_id}.eml"', "Cache-Control": "private, no-store"}
    return Response(raw, media_type="message/rfc822", headers=headers)


@router.post("/dead-letters")
def change_dead_letters(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    chosen = {name: form.get(name, "") for name in ("kind", "source", "reason", "contains", "older", "discarded")}
    act = {"retry": _retry, "discard": _discard, "retry-all": _retry_all, "discard-all": _discard_all}.get(form.get("do", ""))
    if act is None:
        raise UsageError("unknown action: expected retry, discard, retry-all or discard-all")
    return act(view, form, chosen)


def _selected(form: dict[str, str]) -> list[UUID]:
    found = [parse_id(name.removeprefix("id.")) for name, value in form.items() if name.startswith("id.") and value == "on"]
    return found or ([parse_id(form["id"])] if form.get("id") else [])


def _back(chosen: dict[str, str], **more: int) -> Response:
    return redirect(f"/dead-letters?{urlencode({**{name: value for name, value in chosen.items() if value}, **more})}")


def _retry(view: View, form: dict[str, str], chosen: dict[str, str]) -> Response:
    refused: dict[str, int] = {}
    for letter_id in _selected(form):
        try:
            with view.context.engine.begin() as connection:
                dead_letters.retry(connection, dead_letters.find(connection, str(letter_id)), view.principal)
        except Conflict as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
    count = len(_selected(form)) - sum(refused.values())
    return _page(view, chosen, status=409, refused=refused.items(), retried=count) if refused else _back(chosen, retried=count)


def _discard(view: View, form: dict[str, str], chosen: dict[str, str]) -> Response:
    with view.context.engine.begin() as connection:
        for letter_id in _selected(form):
            dead_letters.discard(connection, dead_letters.find(connection, str(letter_id)), view.principal)
    return _back(chosen)


def _retry_all(view: View, _: dict[str, str], chosen: dict[str, str]) -> Response:
    with view.context.engine.begin() as connection:
        done = dead_letters.retry_all(connection, _filter(chosen), view.principal)
    refused = [(without_paths(text), count) for text, count in done.refused]
    return (
        _page(view, chosen, status=409, refused=refused, retried=done.retried)
        if refused
        else _back(chosen, retried=done.retried)
    )


def _discard_all(view: View, _: dict[str, str], chosen: dict[str, str]) -> Response:
    with view.context.engine.begin() as connection:
        dead_letters.discard_all(connection, _filter(chosen), view.principal)
    return _back(chosen)
