"""All routes of /api/v1."""

from __future__ import annotations

from fastapi import APIRouter

from archiver.api import audit, door, exports, me, messages, oidc, search, sources, system, uploads, users
from archiver.api.problems import ERRORS

router = APIRouter(prefix="/api/v1", responses=ERRORS, generate_unique_id_function=lambda route: route.name)
PARTS = (door, oidc, me, users, audit, sources, system, search, messages, uploads, exports)
for part in PARTS:
    router.include_router(part.router)
