"""All routes of /api/v1."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope

from archiver.api import audit, door, exports, imports, me, messages, oidc, search, sources, system, uploads, users
from archiver.api.problems import ERRORS

PREFIX = "/api/v1"


class _Api(APIRouter):
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Pages need not be compared with each of our routes."""
        return super().matches(scope) if scope["path"].startswith(PREFIX) else (Match.NONE, {})


router = _Api(prefix=PREFIX, responses=ERRORS, generate_unique_id_function=lambda route: route.name)
PARTS = (
    search,
    messages,
    me,
    sources,
    uploads,
    imports,
    system,
    exports,
    users,
    audit,
    door,
    oidc,
)  # those asked most come first
for part in PARTS:
    router.include_router(part.router)
