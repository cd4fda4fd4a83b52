"""Erasure on request: request, review, approve; and the receipts."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.errors import ArchiverError, UsageError
from archiver.http.api.erasures import review
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.retention import erasures
from archiver.retention.approval import needs_second_person
from archiver.retention.erasures import Erasure, NewErasure

router = APIRouter(include_in_schema=False)

_SEPARATORS = re.compile(r"[\s,;]+")


@router.get("/retention/erasures")
def erasures_page(view: Viewed) -> Response:
    return _erasures(view)


def _erasures(view: View, status: int = 200, **more: Any) -> Response:
    view.principal.require(Right.AUDIT)
    with view.context.reading() as connection:
        found = erasures.list_erasures(connection)
    return view.page(
        "retention_erasures.html", status, **{"tab": "erasures", "erasures": found, "error": None, "form": {}, **more}
    )


@router.post("/retention/erasures")
def request_erasure(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    addresses = [one for one in _SEPARATORS.split(form.get("addresses", "")) if one]
    try:
        new = NewErasure(form.get("name", ""), form.get("reason", ""), addresses, form.get("terms", "").splitlines())
        erasure = erasures.request(view.context.engine, view.principal, new)
    except ArchiverError as error:
        return _erasures(view, 400, error=str(error), form=form)
    return redirect(f"/retention/erasures/{erasure.id}")


@router.get("/retention/erasures/{erasure_id}")
def erasure_page(view: Viewed, erasure_id: UUID, after: UUID | None = None) -> Response:
    return _erasure(view, erasure_id, after)


def _erasure(view: View, erasure_id: UUID, after: UUID | None = None, status: int = 200, **more: Any) -> Response:
    view.principal.require(Right.AUDIT)
    with view.context.reading() as connection:
        erasure = erasures.load(connection, str(erasure_id))
        counts = erasures.count(connection, erasure)
        second = needs_second_person(connection, view.context.settings)
    found = review(view.context, view.principal, erasure_id, after)
    values = {"tab": "erasures", "erasure": erasure, "counts": counts, "found": found, "second_person": second, "error": None}
    return view.page("retention_erasure.html", status, **{**values, **more})


@router.post("/retention/erasures/{erasure_id}")
def decide_erasure(view: Posted, erasure_id: UUID, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    try:
        _decide(view, erasure_id, form)
    except ArchiverError as error:
        return _erasure(view, erasure_id, None, 400, error=str(error))
    return redirect(f"/retention/erasures/{erasure_id}")


def _decide(view: View, erasure_id: UUID, form: dict[str, str]) -> None:
    with view.context.engine.begin() as connection:
        erasure: Erasure = erasures.load(connection, str(erasure_id))
        chosen = [parse_id(name.removeprefix("m-")) for name in form if name.startswith("m-")]
        match form.get("do"):
            case "exclude":
                erasures.exclude(connection, view.principal, erasure, chosen, form.get("reason", ""))
            case "include":
                erasures.exclude(connection, view.principal, erasure, chosen, None)
            case "search":
                erasures.search_again(connection, view.principal, erasure)
            case "approve":
                second = needs_second_person(connection, view.context.settings)
                erasures.approve(connection, view.principal, erasure, second_person=second)
            case "reject":
                erasures.reject(connection, view.principal, erasure)
            case _:
                raise UsageError("unknown action: expected exclude, include, search, approve or reject")
