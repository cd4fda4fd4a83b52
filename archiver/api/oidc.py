"""Sign-in with OpenID Connect: the way to the provider, and back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse

from archiver.api.auth import Anybody, Context, is_https, set_session_cookie
from archiver.errors import NotSignedIn
from archiver.services import oidc

router = APIRouter(prefix="/oidc", tags=["sign-in"])

_COOKIE = "archiver-oidc"
_PATH = "/api/v1/oidc"
_SECONDS = 600


@router.get("/start", status_code=302, response_class=RedirectResponse)
def start_oidc(
    who: Anybody,
    context: Context,
    request: Request,
    return_to: Annotated[str | None, Query(max_length=1000, description="A path on this server.")] = None,
) -> RedirectResponse:
    """To the provider."""
    started = context.oidc.start(context.keyring, return_to)
    answer = RedirectResponse(started.url, 302)
    answer.set_cookie(
        _COOKIE, started.cookie, max_age=_SECONDS, path=_PATH, httponly=True, samesite="lax", secure=is_https(request)
    )
    return answer


@router.get("/callback", status_code=302, response_class=RedirectResponse)
def finish_oidc(
    who: Anybody,
    context: Context,
    request: Request,
    state: Annotated[str, Query(max_length=500)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
) -> RedirectResponse:
    """Back from the provider: signs in, and goes on to where the browser wanted to go."""
    provider = context.oidc
    if not state or not code:
        raise NotSignedIn("the provider did not let you in")

    def first_use(value: str) -> bool:
        return bool(context.redis.set(f"archiver:oidc:{value}", "1", nx=True, ex=_SECONDS))

    claims, to = provider.finish(context.keyring, request.cookies.get(_COOKIE), state, code, first_use)
    _, session, changed = oidc.sign_in(context.engine, context.settings, who, claims, request.headers.get("User-Agent"))
    if changed:
        context.keep_config()
    answer = RedirectResponse(to, 302)
    answer.delete_cookie(_COOKIE, path=_PATH)
    set_session_cookie(request, answer, session.token)
    return answer
