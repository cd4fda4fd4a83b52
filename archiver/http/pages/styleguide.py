"""The design language on one page: colours and components as users see them."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.access.principal import Right
from archiver.http.pages.base import Viewed

router = APIRouter(include_in_schema=False)

_TOKENS = (
    ("ground", "ink"),
    ("sheet", "ink"),
    ("raised", "quiet"),
    ("pressed", "ink"),
    ("wash", "accent"),
    ("accent", "accent-ink"),
    ("mark", "mark-ink"),
    ("sheet", "quiet"),
    ("sheet", "good"),
    ("sheet", "warn"),
    ("sheet", "bad"),
)


@router.get("/styleguide")
def styleguide(view: Viewed) -> Response:
    view.principal.require(Right.ADMIN)
    return view.page("styleguide.html", tokens=_TOKENS)
