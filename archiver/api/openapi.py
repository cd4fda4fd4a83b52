"""The OpenAPI document of /api/v1, as it is kept in docs/openapi.json. Renewed by scripts/openapi."""

from __future__ import annotations

import json
import sys
from typing import Any

from fastapi import FastAPI

from archiver import __version__
from archiver.api.problems import problem_schema
from archiver.api.router import router

_DESCRIPTION = """Sign in with `POST /api/v1/session` (a cookie, and a CSRF token that every change needs as `X-CSRF-Token`),
or send an API key as `Authorization: Bearer arc_…`. Errors are `application/problem+json` with a stable `code`. Lists have
`items` and `next`; give `next` back as `cursor` for the following page. docs/api.md says more."""


def document() -> dict[str, Any]:
    app = FastAPI(title="Archiver", version=__version__, description=_DESCRIPTION)
    app.include_router(router)
    made = app.openapi()
    made.setdefault("components", {})["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": "archiver",
            "description": "With https the name is __Host-archiver.",
        },
    }
    made["security"] = [{"key": []}, {"session": []}]
    for way in (way for path in made["paths"].values() for way in path.values()):
        _problems(way["responses"])
    made["components"]["schemas"] |= {"Problem": problem_schema()}
    for unused in ("HTTPValidationError", "ValidationError"):
        made["components"]["schemas"].pop(unused, None)
    return made


def _problems(responses: dict[str, Any]) -> None:
    """FastAPI writes down its own form of a validation error, and JSON as the type of ours."""
    responses.pop("422", None)
    for status in ("4XX", "5XX"):
        responses[status]["content"] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(document(), indent=1, ensure_ascii=False) + "\n")
