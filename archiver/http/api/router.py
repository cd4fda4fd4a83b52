"""All routes of /api/v1."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope

from archiver.http.api import (
    alerts,
    audit,
    cleanups,
    conversations,
    erasures,
    exports,
    hold_notices,
    holds,
    imports,
    labels,
    marks,
    me,
    messages,
    oidc,
    operator,
    policies,
    restores,
    search,
    sign_in,
    sources,
    system,
    uploads,
    users,
)
from archiver.http.problems import ERRORS

PREFIX = "/api/v1"


class _Api(APIRouter):
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Skips all API routes for requests of pages."""
        return super().matches(scope) if scope["path"].startswith(PREFIX) else (Match.NONE, {})


router = _Api(prefix=PREFIX, responses=ERRORS, generate_unique_id_function=lambda route: route.name)
PARTS = (
    search,
    messages,
    conversations,
    marks,
    me,
    sources,
    uploads,
    imports,
    system,
    alerts,
    operator,
    exports,
    restores,
    cleanups,
    users,
    audit,
    holds,
    hold_notices,
    labels,
    policies,
    erasures,
    sign_in,
    oidc,
)  # the busiest first: routes are matched in order
for part in PARTS:
    router.include_router(part.router)
