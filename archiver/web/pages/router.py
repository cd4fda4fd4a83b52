"""All pages."""

from __future__ import annotations

from fastapi import APIRouter

from archiver.web.pages import activity, dashboard, door, message, search, settings, sources, styleguide

pages = APIRouter()
for part in (search, message, sources, activity, dashboard, settings, door, styleguide):
    pages.include_router(part.router)
