"""All pages."""

from __future__ import annotations

from fastapi import APIRouter

from archiver.http.pages import (
    activity,
    alerts,
    api_reference,
    backups,
    browse,
    cleanups,
    dashboard,
    dead_letters,
    erasures,
    exports,
    files,
    hold_notices,
    installation,
    labels,
    message,
    policies,
    restores,
    retention,
    search,
    selection,
    settings,
    sign_in,
    source_sign_in,
    sources,
    styleguide,
)

pages = APIRouter()
for part in (
    search,
    message,
    selection,
    files,
    browse,
    source_sign_in,
    installation,
    sources,
    exports,
    restores,
    cleanups,
    activity,
    dead_letters,
    alerts,
    backups,
    dashboard,
    retention,
    hold_notices,
    labels,
    policies,
    erasures,
    settings,
    sign_in,
    styleguide,
    api_reference,
):
    pages.include_router(part.router)
