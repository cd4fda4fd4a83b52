"""Health, version, statistics, keys, and features that this server does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archiver.search_server.errors import ApiError, not_supported
from archiver.search_server.human_size import human
from archiver.search_server.index.catalog import CatalogEntry
from archiver.search_server.request import Call, ServerResponse, paged

VERSION = "1.50.0"
_SIZE_FORMATS: dict[str, Callable[[int], int | str]] = {"raw": int, "human": human}
_FEATURES = (
    "metrics", "logsRoute", "editDocumentsByFunction", "containsFilter", "network", "getTaskDocumentsRoute",
    "compositeEmbedders", "chatCompletions", "multimodal", "vectorStoreSetting", "dynamicSearchRules", "renderRoute",
    "foreignKeys",
)  # fmt: skip


def health(call: Call) -> ServerResponse:
    return ServerResponse({"status": "available"})


def version(call: Call) -> ServerResponse:
    return ServerResponse({"commitSha": "embedded", "commitDate": "unknown", "pkgVersion": VERSION})


def stats(call: Call) -> ServerResponse:
    shown = _size_format(call)
    entries = [entry for entry in call.service.catalog.all() if call.permit.allows(entry.uid)]
    size = shown(sum(entry.engine.size_bytes() for entry in entries))
    updates = [entry.updated_at for entry in entries]
    answer = {
        "databaseSize": size,
        "usedDatabaseSize": size,
        "lastUpdate": max(updates) if updates else None,
        "indexes": {entry.uid: _index_stats(call, entry) for entry in entries},
    }
    damaged = call.service.state.note("damaged")
    return ServerResponse({**answer, "damaged": damaged} if damaged else answer)


def index_stats(call: Call) -> ServerResponse:
    return ServerResponse(_index_stats(call, call.service.catalog.get(call.uid)))


def _index_stats(call: Call, entry: CatalogEntry) -> dict[str, Any]:
    shown = _size_format(call)
    snapshot = entry.engine.snapshot()
    count = snapshot.searcher.num_docs
    sizes = entry.engine.sizes()
    size = sum(sizes.values())
    stats: dict[str, Any] = {
        "numberOfDocuments": count,
        "rawDocumentDbSize": shown(size),
        "avgDocumentSize": shown(size // count if count else 0),
        "isIndexing": call.service.queue.is_busy(entry.uid),
        "numberOfEmbeddings": 0,
        "numberOfEmbeddedDocuments": 0,
        "fieldDistribution": snapshot.field_distribution(),
    }
    if call.flag("showInternalDatabaseSizes", "invalid_index_stats_show_internal_database_sizes"):
        stats["internalDatabaseSizes"] = {kind: shown(bytes_) for kind, bytes_ in sorted(sizes.items())}
    return stats


def _size_format(call: Call) -> Callable[[int], int | str]:
    wanted = call.query.get("sizeFormat", "raw")
    if wanted not in _SIZE_FORMATS:
        raise ApiError(
            "invalid_index_stats_size_format",
            f"Unknown value `{wanted}` in parameter `sizeFormat`: expected one of `human`, `raw`",
        )
    return _SIZE_FORMATS[wanted]


def list_keys(call: Call) -> ServerResponse:
    call.service.keys.require_master_key()
    keys = [call.service.keys.shown(key) for key in call.service.keys.all()]
    return ServerResponse(paged(keys, call, "api_key"))


def get_key(call: Call) -> ServerResponse:
    call.service.keys.require_master_key()
    return ServerResponse(call.service.keys.shown(call.service.keys.find(call.path["key"])))


def create_key(call: Call) -> ServerResponse:
    call.service.keys.require_master_key()
    return ServerResponse(call.service.keys.create(call.json()), 201)


def update_key(call: Call) -> ServerResponse:
    call.service.keys.require_master_key()
    return ServerResponse(call.service.keys.update(call.path["key"], call.json()))


def delete_key(call: Call) -> ServerResponse:
    call.service.keys.require_master_key()
    call.service.keys.delete(call.path["key"])
    return ServerResponse(None, 204)


def experimental_features(call: Call) -> ServerResponse:
    return ServerResponse({**dict.fromkeys(_FEATURES, False), "containsFilter": True})


def update_experimental_features(call: Call) -> ServerResponse:
    body = call.json()
    if not isinstance(body, dict):
        raise ApiError("bad_request", "Invalid value type: expected an object")
    for name, wanted in body.items():
        if name not in (*_FEATURES, "vectorStore"):
            raise ApiError(
                "bad_request", f"Unknown field `{name}`: expected one of {', '.join(f'`{one}`' for one in _FEATURES)}"
            )
        if wanted and name != "containsFilter":
            raise not_supported(f"The experimental feature `{name}`")
    return experimental_features(call)


def empty_list(call: Call) -> ServerResponse:
    return ServerResponse({"results": [], "offset": 0, "limit": 20, "total": 0})


def refused(what: str) -> Any:
    """A handler for a feature of Meilisearch that this server does not have."""

    def handler(call: Call) -> ServerResponse:
        raise not_supported(what)

    return handler
