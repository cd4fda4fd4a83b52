"""/indexes/{uid}/settings and the route of each setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archiver.search.embedded.call import Answer, Call
from archiver.search.embedded.routes.indexes import check_uid
from archiver.search.embedded.settings import SUB_ROUTES, check_change

Handler = Callable[[Call], Answer]
_HIDDEN = ("foreignKeys",)  # shown by its own route only


def get_settings(call: Call) -> Answer:
    settings = call.service.catalog.get(call.uid).settings
    return Answer({name: value for name, value in settings.items() if name not in _HIDDEN})


def update_settings(call: Call) -> Answer:
    return _enqueue(call, check_change(call.json()))


def reset_settings(call: Call) -> Answer:
    uid = check_uid(call.uid)
    names = [name for name, _ in SUB_ROUTES.values()]
    return call.accept("settingsUpdate", uid, {"change": dict.fromkeys(names), "reset": True, "mustExist": True}, {})


def sub_handlers(name: str) -> tuple[Handler, Handler, Handler]:
    """Get, change and reset one setting."""

    def get(call: Call) -> Answer:
        return Answer(call.service.catalog.get(call.uid).settings[name])

    def change(call: Call) -> Answer:
        return _enqueue(call, check_change({name: call.json()}))

    def reset(call: Call) -> Answer:
        change = {name: None}
        return call.accept("settingsUpdate", check_uid(call.uid), {"change": change, "mustExist": True}, change)

    return get, change, reset


def _enqueue(call: Call, change: dict[str, Any]) -> Answer:
    return call.accept("settingsUpdate", check_uid(call.uid), {"change": change}, change)
