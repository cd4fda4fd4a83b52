"""All pages."""

from __future__ import annotations

from fastapi import APIRouter

from archiver.http.pages import (
    activity,
    alerts,
    api_reference,
    dashboard,
    dead_letters,
    exports,
    message,
    policies,
    retention,
    search,
    settings,
    sign_in,
    sources,
    styleguide,
)

pages = APIRouter()
for part in (
    search,
    message,
    sources,
    exports,
    activity,
    dead_letters,
    alerts,
    dashboard,
    retention,
    policies,
    settings,
    sign_in,
    styleguide,
    api_reference,
):
    pages.include_router(part.router)
