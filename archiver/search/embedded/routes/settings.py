"""/indexes/{uid}/settings and the route of each setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archiver.search.embedded.call import Answer, Call
from archiver.search.embedded.routes.indexes import check_uid
from archiver.search.embedded.settings import SUB_ROUTES, check_change
from archiver.search.embedded.tasks import summary

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
    task = call.service.queue.enqueue("settingsUpdate", uid, {"change": dict.fromkeys(names), "reset": True}, {})
    return Answer(summary(task), 202)


def sub_handlers(name: str) -> tuple[Handler, Handler, Handler]:
    """Get, change and reset one setting."""

    def get(call: Call) -> Answer:
        return Answer(call.service.catalog.get(call.uid).settings[name])

    def change(call: Call) -> Answer:
        return _enqueue(call, check_change({name: call.json()}))

    def reset(call: Call) -> Answer:
        return _enqueue(call, {name: None})

    return get, change, reset


def _enqueue(call: Call, change: dict[str, Any]) -> Answer:
    uid = check_uid(call.uid)
    return Answer(summary(call.service.queue.enqueue("settingsUpdate", uid, {"change": change}, change)), 202)
