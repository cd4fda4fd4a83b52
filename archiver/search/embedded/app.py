"""The ASGI application: which route is answered by what."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

VERSION = "1.50.0"


def create_app(data: Path, master_key: str | None) -> Starlette:
    """The server's application on the folder `data`, which the caller has locked."""

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "available"})

    async def version(request: Request) -> JSONResponse:
        return JSONResponse({"commitSha": "embedded", "commitDate": "unknown", "pkgVersion": VERSION})

    async def stats(request: Request) -> JSONResponse:
        return JSONResponse({"databaseSize": 0, "usedDatabaseSize": 0, "lastUpdate": None, "indexes": {}})

    return Starlette(routes=[Route("/health", health), Route("/version", version), Route("/stats", stats)])
