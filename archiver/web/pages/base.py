"""What all pages share: who looks at them, in which language and zone, and how they are rendered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlsplit
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.templating import Jinja2Templates

from archiver import __version__
from archiver.api.auth import context_of, session_cookie, signed_in
from archiver.api.context import ApiContext
from archiver.api.public_text import without_paths
from archiver.errors import UsageError
from archiver.services import sessions, users
from archiver.services.principal import Principal, Right
from archiver.services.users import User
from archiver.web import formats
from archiver.web.assets import static_path
from archiver.web.catalogue import Texts, choose

_HERE = Path(__file__).parents[1]
_MOST_FIELDS = 200
_PRIVATE = {"Cache-Control": "private, no-store"}

templates = Jinja2Templates(_HERE / "templates")
templates.env.trim_blocks = templates.env.lstrip_blocks = True
templates.env.globals["static"] = static_path()
templates.env.filters["public"] = without_paths
templates.env.auto_reload = False  # a new version comes with a new process


def texts_of(request: Request, user: User | None = None) -> Texts:
    wanted = user.settings.get("language") if user else None
    return Texts(choose(wanted, request.headers.get("Accept-Language", "")))


def zone_of(request: Request, user: User | None = None) -> tzinfo:
    """The user's own choice, else what their browser told, else UTC."""
    for name in (user.settings.get("zone") if user else None, request.cookies.get("zone")):
        try:
            if name:
                return ZoneInfo(str(name))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return UTC


def rendered(
    request: Request, t: Texts, template: str, status: int = 200, zone: tzinfo = UTC, /, **values: Any
) -> HTMLResponse:
    now = datetime.now(UTC)
    shared = {
        "t": t,
        "version": __version__,
        "theme": None,
        "me": None,
        "now": now,
        "size": partial(formats.size, t),
        "short_date": lambda at: formats.short_date(t, at, zone, now),
        "long_date": lambda at: formats.long_date(t, at, zone),
        "ago": lambda at: formats.ago(t, at, now),
        "duration": partial(formats.duration, t),
        "marked": formats.marked,
        "near_mark": formats.near_mark,
        "initials": formats.initials,
    }
    return templates.TemplateResponse(request, template, {**shared, **values}, status_code=status, headers=_PRIVATE)


@dataclass(frozen=True, slots=True)
class View:
    """One request of somebody who is signed in."""

    request: Request
    context: ApiContext
    who: Principal
    user: User
    t: Texts
    zone: tzinfo

    def page(self, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
        token = session_cookie(self.request)
        shared = {
            "me": self.user,
            "who": self.who,
            "may": {right.value: right in self.who.rights for right in Right},
            "csrf": sessions.csrf_token(token) if token else "",
            "theme": self.user.settings.get("theme"),
            "path": self.request.url.path,
        }
        return rendered(self.request, self.t, template, status, self.zone, **{**shared, **values})


def view(request: Request) -> View:
    who = signed_in(request)
    if who.user_id is None or who.session_id is None:
        raise UsageError("pages are for people who sign in; keys are for /api/v1")
    context = context_of(request)
    with context.reading() as connection:
        user = users.load(connection, who.user_id)
    return View(request, context, who, user, texts_of(request, user), zone_of(request, user))


async def form(request: Request) -> dict[str, str]:
    """The fields of a form. Its CSRF token counts like the header that scripts send."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        fields = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise UsageError(f"a form has at most {_MOST_FIELDS} fields") from None
    request.state.csrf = fields.pop("csrf", "")
    return {name: value.replace("\0", "") for name, value in fields.items()}


def posted(fields: Annotated[dict[str, str], Depends(form)], request: Request) -> View:
    return view(request)


Viewed = Annotated[View, Depends(view)]
Posted = Annotated[View, Depends(posted)]
Form = Annotated[dict[str, str], Depends(form)]


def given_id(value: str) -> UUID:
    """Of a form's field."""
    try:
        return UUID(value)
    except ValueError:
        raise UsageError(f"{value[:50]!r} is no id") from None


def see(path: str) -> Response:
    """After a change: look at the result."""
    return RedirectResponse(path, 303)


def own_path(given: str | None, otherwise: str = "/") -> str:
    """A path of ours to go on to, and no other place, however it is spelt."""
    if not given or not given.startswith("/") or given.startswith(("//", "/\\")) or any(ord(char) < 32 for char in given):
        return otherwise
    parts = urlsplit(given)
    return otherwise if parts.scheme or parts.netloc or "\\" in given else given


def sign_in_at(request: Request) -> str:
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/sign-in" if path == "/" or request.method != "GET" else f"/sign-in?next={quote(path, safe='')}"
