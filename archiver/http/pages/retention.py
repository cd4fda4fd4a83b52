"""Retention: legal holds."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter, BackgroundTasks
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.alerts import custodian_notices
from archiver.errors import ArchiverError, UsageError
from archiver.http.api.holds import refresh
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.reading.lookup import find_mailbox
from archiver.reading.messages import mailbox_addresses
from archiver.retention import holds
from archiver.retention.approval import needs_second_person
from archiver.retention.holds import NewHold

router = APIRouter(include_in_schema=False)

_SEPARATORS = re.compile(r"[\s,;]+")


@router.get("/retention")
def holds_page(view: Viewed, released: bool = False) -> Response:
    return _holds(view, released=released)


def _holds(view: View, status: int = 200, *, released: bool = False, **more: Any) -> Response:
    view.principal.require(Right.AUDIT)
    with view.context.reading() as connection:
        found = [(hold, holds.count(connection, hold)) for hold in holds.list_holds(connection, released=released)]
        addresses = mailbox_addresses(connection, [box for hold, _ in found for box in hold.mailbox_ids])
        second = needs_second_person(connection, view.context.settings)
        notices = {hold.id: custodian_notices.list_notices(connection, hold) for hold, _ in found if hold.addresses}
    values = {
        "tab": "holds",
        "holds": found,
        "addresses": addresses,
        "released": released,
        "second_person": second,
        "notices": notices,
    }
    return view.page("retention_holds.html", status, **{**values, "error": None, "form": {}, **more})


@router.post("/retention/holds")
def place_hold(view: Posted, form: Form, background: BackgroundTasks) -> Response:
    view.principal.require(Right.ADMIN)
    try:
        boxes = [find_mailbox(view.context.engine, one) for one in _listed(form, "mailboxes")]
        ids = [parse_id(one) for one in _listed(form, "ids")]
        new = NewHold(
            form.get("name", ""), form.get("reason", ""), boxes, _listed(form, "people"), form.get("query"), ids, str(view.zone)
        )
        hold = holds.place(view.context.engine, view.principal, new)
    except ArchiverError as error:
        return _holds(view, 400, error=str(error), form=form)
    view.context.save_config()
    background.add_task(refresh, view.context, hold)
    return redirect(f"/retention#hold-{hold.id}")


@router.post("/retention/holds/release")
def release_hold(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    try:
        with view.context.engine.begin() as connection:
            hold = holds.load(connection, str(parse_id(form.get("id", ""))))
            if form.get("do") == "withdraw":
                holds.withdraw_release(connection, view.principal, hold)
            elif form.get("do") == "release":
                second = needs_second_person(connection, view.context.settings)
                holds.release(connection, view.principal, hold, form.get("reason", ""), second_person=second)
            else:
                raise UsageError("unknown action: expected release or withdraw")
    except ArchiverError as error:
        return _holds(view, 400, error=str(error))
    view.context.save_config()
    return redirect("/retention")


def _listed(form: dict[str, str], name: str) -> list[str]:
    return [one for one in _SEPARATORS.split(form.get(name, "")) if one]
