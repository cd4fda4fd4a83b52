"""Sign-in with OpenID Connect: the redirect to the provider, and the callback."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse

from archiver.access.login import oidc
from archiver.errors import NotSignedIn
from archiver.http.auth import Anonymous, Context, is_https, set_session_cookie

router = APIRouter(prefix="/oidc", tags=["sign-in"])

_COOKIE = "archiver-oidc"
_PATH = "/api/v1/oidc"
_SECONDS = 600


@router.get("/start", status_code=302, response_class=RedirectResponse)
def start_oidc(
    principal: Anonymous,
    context: Context,
    request: Request,
    return_to: Annotated[str | None, Query(max_length=1000, description="A path on this server.")] = None,
) -> RedirectResponse:
    """Redirect to the provider."""
    started = context.oidc.start(context.keyring, return_to)
    response = RedirectResponse(started.url, 302)
    response.set_cookie(
        _COOKIE, started.cookie, max_age=_SECONDS, path=_PATH, httponly=True, samesite="lax", secure=is_https(request)
    )
    return response


@router.get("/callback", status_code=302, response_class=RedirectResponse)
def finish_oidc(
    principal: Anonymous,
    context: Context,
    request: Request,
    state: Annotated[str, Query(max_length=500)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
) -> RedirectResponse:
    """Sign in with the provider's response, and redirect to `return_to`."""
    provider = context.oidc
    if not state or not code:
        raise NotSignedIn("the OpenID provider did not sign you in: start again from the sign-in page")

    def first_use(value: str) -> bool:
        return bool(context.redis.set(f"archiver:oidc:{value}", "1", nx=True, ex=_SECONDS))

    claims, to = provider.finish(context.keyring, request.cookies.get(_COOKIE), state, code, first_use)
    _, session, changed = oidc.sign_in(context.engine, context.settings, principal, claims, request.headers.get("User-Agent"))
    if changed:
        context.save_config()
    response = RedirectResponse(to, 302)
    response.delete_cookie(_COOKIE, path=_PATH)
    set_session_cookie(request, response, session.token)
    return response
