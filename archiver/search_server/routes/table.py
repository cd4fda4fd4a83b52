"""All routes: method, path, the action that a key must allow, and the handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from archiver.search_server.index.settings import SUB_ROUTES
from archiver.search_server.request import Call, ServerResponse
from archiver.search_server.routes import documents, fields, indexes, searches, settings, system, tasks


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`action` is None for public endpoints. Searches have a time limit and a thread pool of their own."""

    method: str
    path: str
    action: str | None
    handler: Callable[[Call], ServerResponse]
    is_search: bool = False


_INDEX = "/indexes/{uid}"
_DOCUMENTS = f"{_INDEX}/documents"
_SETTINGS = f"{_INDEX}/settings"

ENDPOINTS: list[Endpoint] = [
    Endpoint("GET", "/health", None, system.health),
    Endpoint("GET", "/version", "version", system.version),
    Endpoint("GET", "/stats", "stats.get", system.stats),
    Endpoint("GET", f"{_INDEX}/stats", "stats.get", system.index_stats),
    Endpoint("GET", "/indexes", "indexes.get", indexes.list_indexes),
    Endpoint("POST", "/indexes", "indexes.create", indexes.create_index),
    Endpoint("GET", _INDEX, "indexes.get", indexes.get_index),
    Endpoint("PATCH", _INDEX, "indexes.update", indexes.update_index),
    Endpoint("DELETE", _INDEX, "indexes.delete", indexes.delete_index),
    Endpoint("POST", f"{_INDEX}/fields", "fields.post", fields.list_fields),
    Endpoint("POST", f"{_INDEX}/compact", "indexes.compact", indexes.compact_index),
    Endpoint("POST", "/swap-indexes", "indexes.swap", indexes.swap_indexes),
    Endpoint("GET", _DOCUMENTS, "documents.get", documents.list_documents),
    Endpoint("POST", _DOCUMENTS, "documents.add", documents.add_or_replace),
    Endpoint("PUT", _DOCUMENTS, "documents.add", documents.add_or_update),
    Endpoint("DELETE", _DOCUMENTS, "documents.delete", documents.delete_all),
    Endpoint("POST", f"{_DOCUMENTS}/fetch", "documents.get", documents.fetch_documents),
    Endpoint("POST", f"{_DOCUMENTS}/delete", "documents.delete", documents.delete_by_filter),
    Endpoint("POST", f"{_DOCUMENTS}/delete-batch", "documents.delete", documents.delete_batch),
    Endpoint("POST", f"{_DOCUMENTS}/edit", "documents.add", documents.edit_documents),
    Endpoint("GET", f"{_DOCUMENTS}/{{document_id}}", "documents.get", documents.get_document),
    Endpoint("DELETE", f"{_DOCUMENTS}/{{document_id}}", "documents.delete", documents.delete_document),
    Endpoint("GET", _SETTINGS, "settings.get", settings.get_settings),
    Endpoint("PATCH", _SETTINGS, "settings.update", settings.update_settings),
    Endpoint("DELETE", _SETTINGS, "settings.update", settings.reset_settings),
    Endpoint("GET", f"{_INDEX}/search", "search", searches.search_by_get, is_search=True),
    Endpoint("POST", f"{_INDEX}/search", "search", searches.search, is_search=True),
    Endpoint("POST", f"{_INDEX}/facet-search", "search", searches.facet_search, is_search=True),
    Endpoint("GET", f"{_INDEX}/similar", "search", searches.similar),
    Endpoint("POST", f"{_INDEX}/similar", "search", searches.similar),
    Endpoint("POST", "/multi-search", "search", searches.multi_search, is_search=True),
    Endpoint("GET", "/tasks", "tasks.get", tasks.list_tasks),
    Endpoint("DELETE", "/tasks", "tasks.delete", tasks.delete_tasks),
    Endpoint("POST", "/tasks/cancel", "tasks.cancel", tasks.cancel_tasks),
    Endpoint("GET", "/tasks/{task_uid}", "tasks.get", tasks.get_task),
    Endpoint("GET", "/batches", "tasks.get", tasks.list_batches),
    Endpoint("GET", "/batches/{batch_uid}", "tasks.get", tasks.get_batch),
    Endpoint("GET", "/keys", "keys.get", system.list_keys),
    Endpoint("POST", "/keys", "keys.create", system.create_key),
    Endpoint("GET", "/keys/{key}", "keys.get", system.get_key),
    Endpoint("PATCH", "/keys/{key}", "keys.update", system.update_key),
    Endpoint("DELETE", "/keys/{key}", "keys.delete", system.delete_key),
    Endpoint("GET", "/experimental-features", "experimental.get", system.experimental_features),
    Endpoint("PATCH", "/experimental-features", "experimental.update", system.update_experimental_features),
    Endpoint("GET", "/webhooks", "webhooks.get", system.empty_list),
    Endpoint("POST", "/webhooks", "webhooks.create", system.refused("Webhooks")),
    Endpoint("GET", "/webhooks/{name}", "webhooks.get", system.refused("Webhooks")),
    Endpoint("PATCH", "/webhooks/{name}", "webhooks.update", system.refused("Webhooks")),
    Endpoint("DELETE", "/webhooks/{name}", "webhooks.delete", system.refused("Webhooks")),
    Endpoint("POST", "/dumps", "dumps.create", system.refused("Making dumps")),
    Endpoint("POST", "/snapshots", "snapshots.create", system.refused("Making snapshots")),
    Endpoint("POST", "/export", "export", system.refused("Exporting")),
    Endpoint("GET", "/network", "network.get", system.refused("The network of instances")),
    Endpoint("PATCH", "/network", "network.update", system.refused("The network of instances")),
    Endpoint("GET", "/metrics", "metrics.get", system.refused("Metrics")),
    Endpoint("GET", "/chats", "chats.get", system.empty_list),
    Endpoint("POST", "/chats/{name}/chat/completions", "chatCompletions", system.refused("Chat completion")),
    Endpoint("GET", "/dynamic-search-rules", "settings.get", system.empty_list),
    Endpoint("POST", "/dynamic-search-rules", "settings.get", system.empty_list),
]
for _part, (_name, _method) in SUB_ROUTES.items():
    _get, _change, _reset = settings.sub_handlers(_name)
    ENDPOINTS += [
        Endpoint("GET", f"{_SETTINGS}/{_part}", "settings.get", _get),
        Endpoint(_method, f"{_SETTINGS}/{_part}", "settings.update", _change),
        Endpoint("DELETE", f"{_SETTINGS}/{_part}", "settings.update", _reset),
    ]
