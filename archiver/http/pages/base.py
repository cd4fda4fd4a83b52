"""What all pages share: the signed-in user, language and time zone, forms, and rendering."""

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
from archiver.access import users
from archiver.access.login import logins
from archiver.access.principal import Principal, Right
from archiver.access.users import User
from archiver.alerts.history import count_open
from archiver.errors import UsageError
from archiver.http import formats
from archiver.http.assets import static_path
from archiver.http.auth import context_of, session_cookie, signed_in
from archiver.http.catalogue import Texts, choose
from archiver.http.context import ApiContext
from archiver.http.file_view import honest_name, kind_of
from archiver.http.public_text import without_paths

_HERE = Path(__file__).parents[1]
_MAX_FIELDS = 200
_PRIVATE = {"Cache-Control": "private, no-store"}

templates = Jinja2Templates(_HERE / "templates")
templates.env.trim_blocks = templates.env.lstrip_blocks = True
templates.env.globals["static"] = static_path()
templates.env.filters["public"] = without_paths
templates.env.filters["honest"] = honest_name
templates.env.filters["file_kind"] = lambda file: kind_of(file.content_type, file.name)
templates.env.auto_reload = False  # templates change only with a new process


def texts_of(request: Request, user: User | None = None) -> Texts:
    wanted = user.settings.get("language") if user else None
    return Texts(choose(wanted, request.headers.get("Accept-Language", "")))


def zone_of(request: Request, user: User | None = None) -> tzinfo:
    """The user's own choice, otherwise the browser's time zone, otherwise UTC."""
    for name in (user.settings.get("zone") if user else None, request.cookies.get("zone")):
        try:
            if name:
                return ZoneInfo(str(name))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return UTC


def render(request: Request, t: Texts, template: str, status: int = 200, zone: tzinfo = UTC, /, **values: Any) -> HTMLResponse:
    now = datetime.now(UTC)
    shared = {
        "t": t,
        "version": __version__,
        "theme": None,
        "me": None,
        "now": now,
        "size": partial(formats.size, t),
        "short_date": lambda at: formats.short_date(t, at, zone, now),
        "month": partial(formats.month, t),
        "long_date": lambda at: formats.long_date(t, at, zone),
        "ago": lambda at: formats.ago(t, at, now),
        "duration": partial(formats.duration, t),
        "highlight": formats.highlight,
        "highlight_near_mark": formats.highlight_near_mark,
        "initials": formats.initials,
    }
    return templates.TemplateResponse(request, template, {**shared, **values}, status_code=status, headers=_PRIVATE)


@dataclass(frozen=True, slots=True)
class View:
    """One request of a signed-in user."""

    request: Request
    context: ApiContext
    principal: Principal
    user: User
    t: Texts
    zone: tzinfo

    def _count_alerts(self) -> int:
        """For the bell, which those see who run the archive."""
        if Right.VIEW not in self.principal.rights:
            return 0

        def count() -> int:
            with self.context.reading() as connection:
                return count_open(connection)

        return int(self.context.count_cache.get("alerts", count))

    def page(self, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
        token = session_cookie(self.request)
        shared = {
            "me": self.user,
            "principal": self.principal,
            "may": {right.value: right in self.principal.rights for right in Right},
            "csrf": logins.csrf_token(token) if token else "",
            "theme": self.user.settings.get("theme"),
            "path": self.request.url.path,
            "is_sample": self.context.settings.sample_sources,
            "open_alerts": self._count_alerts(),
        }
        return render(self.request, self.t, template, status, self.zone, **{**shared, **values})


def view(request: Request) -> View:
    principal = signed_in(request)
    if principal.user_id is None or principal.session_id is None:
        raise UsageError("API keys work only under /api/v1: sign in to open pages")
    context = context_of(request)
    with context.reading() as connection:
        user = users.load(connection, principal.user_id)
    return View(request, context, principal, user, texts_of(request, user), zone_of(request, user))


async def form(request: Request) -> dict[str, str]:
    """The fields of a form. Its CSRF token is equivalent to the header that scripts send."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        fields = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise UsageError(f"a form has at most {_MAX_FIELDS} fields") from None
    request.state.csrf = fields.pop("csrf", "")
    return {name: value.replace("\0", "") for name, value in fields.items()}


def posted(fields: Annotated[dict[str, str], Depends(form)], request: Request) -> View:
    return view(request)


Viewed = Annotated[View, Depends(view)]
Posted = Annotated[View, Depends(posted)]
Form = Annotated[dict[str, str], Depends(form)]


def parse_id(value: str) -> UUID:
    """The ID in a form field."""
    try:
        return UUID(value)
    except ValueError:
        raise UsageError(f"{value[:50]!r} is not a valid ID") from None


def redirect(path: str) -> Response:
    """Post/Redirect/Get: shows the result of a change."""
    return RedirectResponse(path, 303)


def local_path(path: str | None, otherwise: str = "/") -> str:
    """A path on this server to continue to. Anything that could lead elsewhere becomes `otherwise`."""
    if not path or not path.startswith("/") or path.startswith(("//", "/\\")) or any(ord(char) < 32 for char in path):
        return otherwise
    parts = urlsplit(path)
    return otherwise if parts.scheme or parts.netloc or "\\" in path else path


def sign_in_url(request: Request) -> str:
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/sign-in" if path == "/" or request.method != "GET" else f"/sign-in?next={quote(path, safe='')}"
