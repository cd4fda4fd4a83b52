"""Retention labels: their definitions, and the form at a message."""

from __future__ import annotations

from datetime import datetime, time
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.errors import ArchiverError, UsageError
from archiver.http.api.labels import labelling
from archiver.http.pages.base import Form, Posted, View, Viewed, redirect
from archiver.retention import labels
from archiver.retention.labels import LabelRequest

router = APIRouter(include_in_schema=False)


@router.get("/retention/labels")
def labels_page(view: Viewed, retired: bool = False) -> Response:
    return _labels(view, retired=retired)


def _labels(view: View, status: int = 200, *, retired: bool = False, **more: Any) -> Response:
    view.principal.require(Right.AUDIT)
    with view.context.reading() as connection:
        found = labels.list_labels(connection, retired=retired)
        uses = labels.count_uses(connection)
    values = {"tab": "labels", "labels": found, "uses": uses, "retired": retired, "error": None, "form": {}}
    return view.page("retention_labels.html", status, **{**values, **more})


@router.post("/retention/labels")
def change_label(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    try:
        with view.context.engine.begin() as connection:
            if form.get("do") == "retire":
                labels.retire(connection, view.principal, form.get("name", ""))
            else:
                options = {"hides": bool(form.get("hides")), "locks": bool(form.get("locks"))}
                labels.define(connection, view.principal, form.get("name", ""), form.get("title", ""), **options)
    except ArchiverError as error:
        return _labels(view, 400, error=str(error), form=form)
    view.context.save_config()
    return redirect("/retention/labels")


@router.post("/messages/{message_id}/labels")
def label_message(view: Posted, form: Form, message_id: UUID) -> Response:
    """Puts a label on the message, or removes one."""
    request = LabelRequest(form.get("label", ""), [message_id], _end_of(view, form), form.get("reason", ""))
    work = labelling(view.context, view.principal)
    if form.get("do") == "remove":
        work.remove(request)
    else:
        work.put(request)
    return redirect(f"/messages/{message_id}")


def _end_of(view: View, form: dict[str, str]) -> datetime | None:
    """The end of the chosen day, in the reader's time zone. A label without a date ignores it."""
    text = form.get("until", "").strip()
    with view.context.reading() as connection:
        takes_date = labels.load_label(connection, form.get("label", "")).takes_date
    if not text or not takes_date:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise UsageError(f"{text}: expected a date such as 2033-04-01") from None
    return datetime.combine(day, time(23, 59, 59), view.zone)
