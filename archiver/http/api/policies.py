"""Retention policies: propose, simulate, approve; and the receipts of what they deleted."""

from __future__ import annotations

import base64
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from archiver.evidence import signing
from archiver.http.api.page import Page, RequestBody
from archiver.http.auth import Administrator, Auditor, Context
from archiver.retention import policies, runs, simulation
from archiver.retention.approval import needs_second_person
from archiver.retention.policies import NewPolicy, PolicyVersion
from archiver.retention.runs import RetentionRun

router = APIRouter(tags=["retention"])

PeriodText = Annotated[str | None, Field(max_length=10, description="A period: 10y, 18m (months), 4w or 90d.")]


class PolicyRequest(RequestBody):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    reason: Annotated[str, Field(min_length=1, max_length=2000)]
    query: Annotated[str, Field(max_length=2000, description="Which mail it applies to; empty for all mail.")] = ""
    counted_from: Literal["received", "sent", "archived"] = "received"
    from_year_end: Annotated[bool, Field(description="The period begins with the end of the calendar year.")] = False
    keep_for: PeriodText = None
    delete_after: PeriodText = None


class PolicyRetirement(RequestBody):
    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class PolicyVersionShape(BaseModel):
    id: UUID
    policy_id: UUID
    number: int
    name: str
    query: str
    counted_from: str
    from_year_end: bool
    keep_for: str | None
    delete_after: str | None
    is_retired: bool
    reason: str
    created_by: str
    created_at: datetime
    simulated_at: datetime | None
    approved_by: str | None
    approved_at: datetime | None
    rejected_by: str | None
    rejected_at: datetime | None
    in_force: bool


class SimulationShape(BaseModel):
    version_id: UUID
    is_running: bool
    simulated_at: datetime | None
    figures: Annotated[dict[str, Any] | None, Field(description="Counts and bytes, each list as [value, messages, bytes].")]


class RunShape(BaseModel):
    id: UUID
    started_at: datetime
    finished_at: datetime | None
    copies: int
    messages: int
    size_bytes: int
    held: int
    unclear: int
    error: str | None


class ReceiptShape(RunShape):
    receipt: Annotated[str | None, Field(description="The exact text that is signed.")]
    signature: Annotated[str | None, Field(description="Ed25519, in base64.")]
    public_key: Annotated[str | None, Field(description="The key that checks the signature, as PEM.")]


@router.get("/policies")
def list_policies(principal: Auditor, context: Context) -> Page[PolicyVersionShape]:
    """All versions of all policies, the newest of each first."""
    with context.reading() as connection:
        found = [version for versions in policies.list_versions(connection) for version in versions]
        return Page(items=_shapes(connection, found))


@router.post("/policies", status_code=201)
def propose_policy(body: PolicyRequest, principal: Administrator, context: Context) -> PolicyVersionShape:
    """A policy that only keeps mail is in force at once; one that deletes has to be simulated and approved."""
    version = policies.propose(context.engine, principal, NewPolicy(**body.model_dump()))
    return _saved(context, version)


@router.post("/policies/{policy_id}/versions", status_code=201)
def change_policy(policy_id: UUID, body: PolicyRequest, principal: Administrator, context: Context) -> PolicyVersionShape:
    """A new version, which replaces the one in force once it is approved."""
    version = policies.propose(context.engine, principal, NewPolicy(**body.model_dump()), policy_id)
    return _saved(context, version)


@router.post("/policies/{policy_id}/retire", status_code=201)
def retire_policy(policy_id: UUID, body: PolicyRetirement, principal: Administrator, context: Context) -> PolicyVersionShape:
    """Proposes that the policy no longer applies."""
    return _saved(context, policies.retire(context.engine, principal, policy_id, body.reason))


@router.post("/policies/versions/{version_id}/simulation", status_code=202)
def start_simulation(version_id: UUID, principal: Administrator, context: Context) -> SimulationShape:
    """A worker counts what the version would delete, and when. Changes nothing."""
    with context.reading() as connection:
        version = policies.load_version(connection, version_id)
    simulation.request(context.engine, principal, version)
    return SimulationShape(
        version_id=version_id, is_running=True, simulated_at=version.simulated_at, figures=version.simulation
    )


@router.get("/policies/versions/{version_id}/simulation")
def show_simulation(version_id: UUID, principal: Auditor, context: Context) -> SimulationShape:
    with context.reading() as connection:
        version = policies.load_version(connection, version_id)
    return SimulationShape(
        version_id=version_id,
        is_running=version.simulation_started_at is not None,
        simulated_at=version.simulated_at,
        figures=version.simulation,
    )


@router.get("/policies/versions/{version_id}/simulation.csv", response_class=StreamingResponse)
def download_simulation(version_id: UUID, principal: Auditor, context: Context) -> StreamingResponse:
    """The figures of the last simulation."""
    with context.reading() as connection:
        version = policies.load_version(connection, version_id)
    headers = {"Content-Disposition": 'attachment; filename="simulation.csv"'}
    return StreamingResponse(simulation.as_csv(version), media_type="text/csv", headers=headers)


@router.post("/policies/versions/{version_id}/approve")
def approve_version(version_id: UUID, principal: Administrator, context: Context) -> PolicyVersionShape:
    """Takes effect at once. Needs a simulation of the last day and, with two-person approval, another administrator than
    the one who proposed it."""
    with context.engine.begin() as connection:
        second = needs_second_person(connection, context.settings)
        version = policies.load_version(connection, version_id)
        version = policies.approve(connection, principal, version, second_person=second)
    return _saved(context, version)


@router.post("/policies/versions/{version_id}/reject")
def reject_version(version_id: UUID, principal: Administrator, context: Context) -> PolicyVersionShape:
    with context.engine.begin() as connection:
        version = policies.reject(connection, principal, policies.load_version(connection, version_id))
    return _saved(context, version)


@router.get("/retention-runs")
def list_retention_runs(principal: Auditor, context: Context) -> Page[RunShape]:
    """Newest first: the runs that deleted something, or failed."""
    with context.reading() as connection:
        return Page(items=[RunShape(**_fields(run, RunShape)) for run in runs.list_runs(connection)])


@router.get("/retention-runs/{run_id}")
def show_receipt(run_id: UUID, principal: Auditor, context: Context) -> ReceiptShape:
    with context.reading() as connection:
        run = runs.load(connection, run_id)
        key = next((one.public_bytes for one in signing.public_keys(connection) if one.id == run.key), None)
    signature = base64.b64encode(run.signature).decode() if run.signature else None
    shape = {**_fields(run, RunShape), "receipt": run.receipt, "signature": signature}
    return ReceiptShape(**shape, public_key=signing.public_pem(key) if key else None)


@router.get("/retention-runs/{run_id}/list", response_class=Response)
def list_deleted(run_id: UUID, principal: Auditor, context: Context) -> Response:
    """What the run deleted: mailbox and SHA-256 of the message, one line each. The receipt has the SHA-256 of this text."""
    with context.reading() as connection:
        lines = [f"{line}\n" for line in runs.deleted_units(connection, runs.load(connection, run_id))]
    return Response("".join(lines), media_type="text/plain")


def _saved(context: Context, version: PolicyVersion) -> PolicyVersionShape:
    context.save_config()
    with context.reading() as connection:
        return _shapes(connection, [version])[0]


def _shapes(connection: Any, versions: list[PolicyVersion]) -> list[PolicyVersionShape]:
    current = {version.id for version in policies.in_force(connection)}
    return [PolicyVersionShape(**_fields(version, PolicyVersionShape), in_force=version.id in current) for version in versions]


def _fields(row: PolicyVersion | RetentionRun, shape: type[BaseModel]) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name in shape.model_fields}
