"""The design language on one page, for those who change it: tokens and parts as they are."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from archiver.services.principal import Right
from archiver.web.pages.base import Viewed

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
    view.who.require(Right.ADMIN)
    return view.page("styleguide.html", tokens=_TOKENS)
