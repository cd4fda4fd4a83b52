"""The OpenAPI document of /api/v1, stored in docs/openapi.json and renewed by scripts/openapi."""

from __future__ import annotations

import json
import sys
from typing import Any

from fastapi import FastAPI

from archiver import __version__
from archiver.http.api.router import router
from archiver.http.problems import problem_schema

_DESCRIPTION = """Sign in with `POST /api/v1/session` (sets a cookie, and returns the CSRF token that every change needs as
`X-CSRF-Token`), or send an API key as `Authorization: Bearer arc_…`. Errors are `application/problem+json` with a stable
`code`. Lists have `items` and `next`; send `next` as `cursor` to get the following page. See docs/api.md for more."""


def document() -> dict[str, Any]:
    app = FastAPI(title="Archiver", version=__version__, description=_DESCRIPTION)
    app.include_router(router)
    schema = app.openapi()
    schema.setdefault("components", {})["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": "archiver",
            "description": "Over https its name is __Host-archiver.",
        },
    }
    schema["security"] = [{"key": []}, {"session": []}]
    for operation in (operation for path in schema["paths"].values() for operation in path.values()):
        _describe_problems(operation["responses"])
    schema["components"]["schemas"] |= {"Problem": problem_schema()}
    for unused in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(unused, None)
    return schema


def _describe_problems(responses: dict[str, Any]) -> None:
    """FastAPI documents its own validation errors, and plain JSON as the type of ours; clients get neither."""
    responses.pop("422", None)
    for status in ("4XX", "5XX"):
        responses[status]["content"] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(document(), indent=1, ensure_ascii=False) + "\n")
