"""Authentication by session cookie or API key. Every route except sign-in and first start depends on `require(right)`."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response

from archiver.access import api_keys, rate_limit
from archiver.access.login import devices, logins
from archiver.access.principal import NOBODY, Principal, Right
from archiver.errors import NotAllowed, NotReady, NotSignedIn, TooMany
from archiver.http.context import ApiContext
from archiver.http.problems import request_id

CSRF_HEADER = "X-CSRF-Token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Csrf(NotAllowed):
    code = "csrf"


class RateLimited(TooMany):
    code = "rate_limited"


def context_of(request: Request) -> ApiContext:
    context: ApiContext = request.app.state.context
    return context


async def _context(request: Request) -> ApiContext:
    return context_of(request)  # async: FastAPI would run a plain function in another thread


def client_address(request: Request) -> str | None:
    """Uvicorn has already applied X-Forwarded-For, but only from TRUSTED_PROXIES."""
    return request.client.host if request.client else None


def is_https(request: Request) -> bool:
    return context_of(request).secure or request.url.scheme == "https"


def cookie_name(request: Request) -> str:
    """Over https, the `__Host-` prefix keeps other hosts and plain http from setting the cookie."""
    return "__Host-archiver" if is_https(request) else "archiver"


def session_cookie(request: Request) -> str | None:
    return request.cookies.get(cookie_name(request))


def set_session_cookie(request: Request, response: Response, token: str) -> None:
    seconds = context_of(request).settings.session_days * 86400
    response.set_cookie(
        cookie_name(request), token, max_age=seconds, path="/", httponly=True, samesite="lax", secure=is_https(request)
    )


def drop_session_cookie(request: Request, response: Response) -> None:
    response.delete_cookie(cookie_name(request), path="/", httponly=True, samesite="lax", secure=is_https(request))


def device_cookie(request: Request) -> str | None:
    return request.cookies.get(f"{cookie_name(request)}-device")


def set_device_cookie(request: Request, response: Response, account: str) -> None:
    """Marks a known device: its next sign-in does not wait for failed attempts from elsewhere."""
    value = devices.issue(context_of(request).keyring, account)
    seconds, name = devices.DAYS * 86400, f"{cookie_name(request)}-device"
    response.set_cookie(name, value, max_age=seconds, path="/", httponly=True, samesite="lax", secure=is_https(request))


def refuse_other_sites(request: Request) -> None:
    """Browsers report the origin of a request. No other site may cause changes here, not even a sign-in."""
    if request.method in _SAFE:
        return
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise Csrf("the request comes from another site: open Archiver itself, and try again")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        raise Csrf("the request comes from another site: open Archiver itself, and try again")


def allow_anonymous(request: Request) -> Principal:
    """For sign-in and first start, which need no account."""
    refuse_other_sites(request)
    address = client_address(request)
    device = devices.known_device(context_of(request).keyring, device_cookie(request))
    _limit(request, f"device:{device}" if device else f"address:{address}")  # clients behind one proxy share its address
    return NOBODY.at(address, request_id(request))


def _authenticate(request: Request, *, seen: bool = True) -> tuple[Principal | None, str | None]:
    """The principal of the request, and the session token if it came with a session."""
    context = context_of(request)
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme:
        return api_keys.resolve(context.engine, key.strip()) if scheme.lower() == "bearer" else None, None
    token = session_cookie(request)
    return logins.resolve(context.engine, context.settings, token, touch=seen) if token else None, token


def is_still_allowed(request: Request, right: Right) -> bool:
    """For responses that stream for hours: the caller is still signed in, and still has the right."""
    principal, _ = _authenticate(request, seen=False)
    return principal is not None and right in principal.rights


def signed_in(request: Request) -> Principal:
    principal, token = _authenticate(request)
    if principal is None:
        _limit(request, f"address:{client_address(request)}")
        raise NotSignedIn("sign in, or send a valid API key")
    request.state.user_id = principal.user_id
    if token is not None and request.method not in _SAFE:
        refuse_other_sites(request)
        # `form` puts the hidden field of a form into the state
        csrf = str(request.headers.get(CSRF_HEADER) or getattr(request.state, "csrf", ""))
        if not hmac.compare_digest(csrf.encode(), logins.csrf_token(token).encode()):
            raise Csrf(f"send the header {CSRF_HEADER} with the value of csrf_token from /api/v1/me")
    _limit(request, f"key:{principal.key_id}" if principal.key_id else f"session:{principal.session_id}")
    return principal.at(client_address(request), request_id(request))


def require(right: Right) -> Callable[[Request], Principal]:
    def check(request: Request) -> Principal:
        principal = signed_in(request)
        principal.require(right)
        return principal

    return check


def _limit(request: Request, client: str) -> None:
    context = context_of(request)
    try:
        allowance = rate_limit.take(context.redis, client, context.settings.api_requests_per_minute)
    except NotReady:
        return
    if allowance is not None:
        request.state.headers = allowance.headers()
        if allowance.exceeded:
            raise RateLimited(
                f"more than {allowance.limit} requests per minute: wait {allowance.reset_seconds} s", allowance.reset_seconds
            )


Context = Annotated[ApiContext, Depends(_context)]
Anonymous = Annotated[Principal, Depends(allow_anonymous)]
Reader = Annotated[Principal, Depends(require(Right.READ))]
Searcher = Annotated[Principal, Depends(require(Right.SEARCH))]
Exporter = Annotated[Principal, Depends(require(Right.EXPORT))]
Restorer = Annotated[Principal, Depends(require(Right.RESTORE))]
Ingester = Annotated[Principal, Depends(require(Right.INGEST))]
Marker = Annotated[Principal, Depends(require(Right.MARK))]
Labeller = Annotated[Principal, Depends(require(Right.LABEL))]
Viewer = Annotated[Principal, Depends(require(Right.VIEW))]
Administrator = Annotated[Principal, Depends(require(Right.ADMIN))]
Auditor = Annotated[Principal, Depends(require(Right.AUDIT))]
Account = Annotated[Principal, Depends(require(Right.ACCOUNT))]
