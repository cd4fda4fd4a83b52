"""/indexes/{uid}/settings and the route of each setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archiver.search_server.index.settings import SUB_ROUTES, check_change
from archiver.search_server.request import Call, ServerResponse
from archiver.search_server.routes.indexes import check_uid

Handler = Callable[[Call], ServerResponse]
_HIDDEN = ("foreignKeys",)  # shown by its own route only


def get_settings(call: Call) -> ServerResponse:
    settings = call.service.catalog.get(call.uid).settings
    return ServerResponse({name: value for name, value in settings.items() if name not in _HIDDEN})


def update_settings(call: Call) -> ServerResponse:
    return _enqueue(call, check_change(call.json()))


def reset_settings(call: Call) -> ServerResponse:
    uid = check_uid(call.uid)
    names = [name for name, _ in SUB_ROUTES.values()]
    return call.accept("settingsUpdate", uid, {"change": dict.fromkeys(names), "reset": True, "mustExist": True}, {})


def sub_handlers(name: str) -> tuple[Handler, Handler, Handler]:
    """Get, change and reset one setting."""

    def get(call: Call) -> ServerResponse:
        return ServerResponse(call.service.catalog.get(call.uid).settings[name])

    def change(call: Call) -> ServerResponse:
        return _enqueue(call, check_change({name: call.json()}))

    def reset(call: Call) -> ServerResponse:
        change = {name: None}
        return call.accept("settingsUpdate", check_uid(call.uid), {"change": change, "mustExist": True}, change)

    return get, change, reset


def _enqueue(call: Call, change: dict[str, Any]) -> ServerResponse:
    return call.accept("settingsUpdate", check_uid(call.uid), {"change": change}, change)
