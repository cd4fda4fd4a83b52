"""Retention policies: list, propose, simulate, approve; and the receipts of what they deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.errors import ArchiverError, UsageError
from archiver.http.pages.base import Form, Posted, View, Viewed, parse_id, redirect
from archiver.retention import policies, runs, simulation
from archiver.retention.approval import needs_second_person
from archiver.retention.policies import NewPolicy, PolicyVersion

router = APIRouter(include_in_schema=False)

_FIELDS = ("name", "query", "counted_from", "from_year_end", "keep_for", "delete_after")


@router.get("/retention/policies")
def policies_page(view: Viewed) -> Response:
    return _policies(view)


def _policies(view: View, status: int = 200, **more: Any) -> Response:
    view.principal.require(Right.AUDIT)
    with view.context.reading() as connection:
        found = policies.list_versions(connection)
        current = {version.id for version in policies.in_force(connection)}
    values: dict[str, Any] = {"tab": "policies", "policies": found, "current": current, "error": None, "form": {}}
    return view.page("retention_policies.html", status, **{**values, **more})


@router.post("/retention/policies")
def propose_policy(view: Posted, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    try:
        new = NewPolicy(
            form.get("name", ""), form.get("reason", ""), form.get("query", ""), form.get("counted_from", "received"),
            form.get("from_year_end") == "on", form.get("keep_for", "").strip() or None,
            form.get("delete_after", "").strip() or None, str(view.zone),
        )  # fmt: skip
        policy_id = parse_id(form["policy"]) if form.get("policy") else None
        version = policies.propose(view.context.engine, view.principal, new, policy_id)
    except ArchiverError as error:
        return _policies(view, 400, error=str(error), form=form)
    view.context.save_config()
    return redirect(f"/retention/policies/{version.id}")


@router.get("/retention/policies/{version_id}")
def policy_page(view: Viewed, version_id: UUID) -> Response:
    return _policy(view, version_id)


def _policy(view: View, version_id: UUID, status: int = 200, **more: Any) -> Response:
    view.principal.require(Right.AUDIT)
    now = datetime.now(UTC)
    with view.context.reading() as connection:
        version = policies.load_version(connection, version_id)
        values = {
            "tab": "policies",
            "version": version,
            "versions": policies.versions_of(connection, version.policy_id),
            "current": {one.id for one in policies.in_force(connection)},
            "second_person": needs_second_person(connection, view.context.settings),
            "running": simulation.is_running(version, now),
            "is_fresh": version.simulated_at is not None and now - version.simulated_at < policies.SIMULATION_LASTS,
            "form": {**{name: getattr(version, name) or "" for name in _FIELDS}, "policy": version.policy_id},
            "error": None,
        }
    return view.page("retention_policy.html", status, **{**values, **more})


@router.post("/retention/policies/{version_id}")
def decide(view: Posted, version_id: UUID, form: Form) -> Response:
    view.principal.require(Right.ADMIN)
    context, shown = view.context, version_id
    with context.reading() as connection:
        version = policies.load_version(connection, version_id)
    try:
        if form.get("do") == "simulate":
            simulation.request(context.engine, view.principal, version)
        elif form.get("do") == "retire":
            shown = policies.retire(context.engine, view.principal, version.policy_id, form.get("reason", "")).id
        else:
            _decide(view, version, form.get("do", ""))
    except ArchiverError as error:
        return _policy(view, version_id, 400, error=str(error))
    context.save_config()
    return redirect(f"/retention/policies/{shown}")


def _decide(view: View, version: PolicyVersion, what: str) -> None:
    with view.context.engine.begin() as connection:
        if what == "approve":
            second = needs_second_person(connection, view.context.settings)
            policies.approve(connection, view.principal, version, second_person=second)
        elif what == "reject":
            policies.reject(connection, view.principal, version)
        else:
            raise UsageError("unknown action: expected simulate, approve, reject or retire")


@router.get("/retention/receipts")
def receipts_page(view: Viewed) -> Response:
    view.principal.require(Right.AUDIT)
    with view.context.reading() as connection:
        found = runs.list_runs(connection, limit=500)
    return view.page("retention_runs.html", tab="receipts", runs=found, error=None)
