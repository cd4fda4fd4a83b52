"""Archiver as an app on a phone or desktop: manifest, service worker, offline page, and files that other apps share."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from archiver.http.assets import FOLDER, static_path
from archiver.http.pages.base import Viewed, render, texts_of

router = APIRouter(include_in_schema=False)

_ICONS = ((192, "any"), (512, "any"), (512, "maskable"))


@router.get("/manifest.webmanifest")
def manifest(request: Request) -> Response:
    """Public: browsers ask for it without the session."""
    t, static = texts_of(request), static_path()
    icons = [
        {"src": f"{static}/icon-{size}.png", "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
        for size, purpose in _ICONS
    ]
    values = {
        "id": "/",
        "name": "Archiver",
        "short_name": "Archiver",
        "description": t("offline.description"),
        "lang": t.language,
        "dir": t.direction,
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": "#f9fafc",
        "theme_color": "#2f6fb8",
        "icons": [{"src": f"{static}/icon.svg", "sizes": "any", "type": "image/svg+xml"}, *icons],
        "shortcuts": [{"name": t("nav.search"), "url": "/"}, {"name": t("nav.dashboard"), "url": "/dashboard"}],
        "share_target": {
            "action": "/share",
            "method": "POST",
            "enctype": "multipart/form-data",
            "params": {"files": [{"name": "mail", "accept": ["message/rfc822", ".eml"]}]},
        },
    }
    return JSONResponse(values, media_type="application/manifest+json", headers={"Cache-Control": "no-cache"})


@router.get("/service-worker.js")
def service_worker() -> Response:
    """At the root, because its folder is its scope."""
    static = static_path()
    text = (FOLDER / "service_worker.js").read_text("utf-8")
    text = text.replace("VERSION", static.rpartition("/")[2]).replace("STATIC", static)
    return Response(text, media_type="text/javascript", headers={"Cache-Control": "no-cache"})


@router.get("/offline")
def offline(request: Request) -> Response:
    """What the service worker shows when this server can't be reached. Public, and the same for everyone."""
    return render(request, texts_of(request), "offline.html")


@router.get("/share")
def share_page(view: Viewed) -> Response:
    """The files that another app shared, which the service worker holds back until they are sent."""
    return view.page("share.html")
