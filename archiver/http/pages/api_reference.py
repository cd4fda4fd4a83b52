"""The OpenAPI document, and the page that shows it and tries its routes: rendered from it, so the two are never apart."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from markupsafe import Markup, escape

from archiver.access.principal import Principal
from archiver.config import page_address
from archiver.http.api.reference import RouteGroup, Schema, read_groups, read_schemas
from archiver.http.auth import signed_in
from archiver.http.pages.base import Viewed, templates

router = APIRouter(include_in_schema=False)


@cache
def _document() -> tuple[bytes, list[RouteGroup], list[Schema]]:
    """Built when it is first asked for: most processes never need it, and it takes a while."""
    import orjson

    from archiver.http.api.openapi import document

    made = document()
    return orjson.dumps(made), read_groups(made), read_schemas(made)


def _prose(text: str) -> Markup:
    """The little Markdown of our docstrings: paragraphs, and code between backticks."""
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        pieces = (escape(piece) for piece in paragraph.split("`"))
        marked = (Markup("<code>{}</code>").format(piece) if odd % 2 else piece for odd, piece in enumerate(pieces))
        paragraphs.append(Markup("<p>{}</p>").format(Markup().join(marked)))
    return Markup("\n").join(paragraphs)


templates.env.filters["prose"] = _prose


@router.get("/api/v1/openapi.json")
def openapi(who: Annotated[Principal, Depends(signed_in)]) -> Response:
    return Response(_document()[0], media_type="application/json")


@router.get("/settings/api")
def reference_page(view: Viewed) -> Response:
    _, groups, schemas = _document()
    settings = view.context.settings
    address = page_address(settings) if settings.archiver_url else str(view.request.base_url).rstrip("/")
    return view.page("settings_api.html", tab="api", groups=groups, schemas=schemas, address=address, error=None)
