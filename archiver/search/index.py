"""The search server for writers: indexes, documents, and the tasks that process them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import meilisearch
import orjson
import requests
from meilisearch.errors import MeilisearchApiError, MeilisearchError

from archiver.config import Settings
from archiver.errors import ArchiverError, NotReady
from archiver.search.client import make_client
from connectors.errors import first_line

REQUEST_BYTES = 16 << 20
"""Documents are sent in requests of about this size; a larger document is sent alone."""

_FIRST_LOOK_SECONDS = 0.01
_LONGEST_LOOK_SECONDS = 0.25
_SETTING_SECONDS = 3600.0
_REQUEST_SECONDS = 120
_UNORDERED = frozenset({"filterableAttributes", "sortableAttributes", "stopWords", "separatorTokens", "nonSeparatorTokens"})
_TRY_AGAIN = frozenset({"internal", "system"})
_NOT_OURS = frozenset({401, 403, 408, 429})


class SearchUnavailable(NotReady):
    """The search server is down, or failed for internal reasons: the same request may succeed later."""


class SearchRefused(ArchiverError):
    """The search server rejects this request, and would reject it later too."""


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index as reported by the server. `created_at` identifies it, whatever its name."""

    uid: str
    created_at: str
    updated_at: str


class SearchServer:
    """Thread-safe: each thread has its own client."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._local = threading.local()

    def version(self) -> str:
        with _translate_errors("report its version"):
            return str(self._client.get_version()["pkgVersion"])

    # indexes

    def ensure_index(self, uid: str, settings: Mapping[str, Any]) -> IndexInfo:
        """The index with these settings, created if it does not exist."""
        if self.info(uid) is None:
            with _translate_errors("create the index"):
                task = self._client.create_index(uid, {"primaryKey": "id"})
            try:
                self.wait(task.task_uid)
            except SearchRefused:  # another process was faster
                if self.info(uid) is None:
                    raise
        if not self.has_settings(uid, settings):
            with _translate_errors("set up the index"):
                task = self._client.index(uid).update_settings(dict(settings))
            self.wait(task.task_uid)
        info = self.info(uid)
        if info is None:
            raise SearchUnavailable(f"the index {uid} disappeared right after it was created")
        return info

    def info(self, uid: str) -> IndexInfo | None:
        try:
            with _translate_errors("inspect the index"):
                found = self._client.get_raw_index(uid)
        except SearchRefused as error:
            if "not found" in str(error):
                return None
            raise
        return IndexInfo(found["uid"], found["createdAt"], found["updatedAt"])

    def has_settings(self, uid: str, settings: Mapping[str, Any]) -> bool:
        with _translate_errors("read the settings of the index"):
            found = self._client.index(uid).get_settings()
        return all(_same(name, wanted, found.get(name)) for name, wanted in settings.items())

    def count(self, uid: str) -> int:
        with _translate_errors("count the documents"):
            return int(self._client.index(uid).get_stats().number_of_documents)

    def swap(self, first: str, second: str) -> None:
        with _translate_errors("swap the indexes"):
            task = self._client.swap_indexes([{"indexes": [first, second]}])
        self.wait(task.task_uid)

    def finish_swaps(self) -> None:
        """Returns when no swap is pending: a swap requested before a crash is done by then."""
        parameters = {"types": ["indexSwap"], "statuses": ["enqueued", "processing"]}
        while True:
            with _translate_errors("list swaps"):
                waiting = self._client.get_tasks(parameters).results
            if not waiting:
                return
            self.wait(waiting[0].uid)

    def drop(self, uid: str) -> None:
        if self.info(uid) is not None:
            with _translate_errors("drop the index"):
                task = self._client.delete_index(uid)
            self.wait(task.task_uid)

    def compact(self, uid: str) -> None:
        """Has the server write its files again, without what was deleted."""
        with _translate_errors("compact the index"):
            task = self._client.index(uid).compact()
        self.wait(task.task_uid)

    # documents

    def add(self, uid: str, documents: Sequence[bytes]) -> int:
        """Adds or replaces documents, given as JSON. Returns the task's number."""
        body = b"[" + b",".join(documents) + b"]"
        with _translate_errors("store documents"):
            return int(self._client.index(uid).add_documents_raw(body, "id", "application/json").task_uid)

    def delete(self, uid: str, ids: Sequence[str]) -> int:
        with _translate_errors("delete documents"):
            answer = self._client.http.post(f"indexes/{uid}/documents/delete-batch", list(ids))
            return int(answer["taskUid"])

    def wait(self, task_uid: int) -> None:
        """Waits until the task has succeeded. Raises SearchRefused if it failed because of its content."""
        pause, deadline = _FIRST_LOOK_SECONDS, time.monotonic() + _SETTING_SECONDS
        while True:
            try:
                with _translate_errors("inspect the task"):
                    task = self._client.get_task(task_uid)
            except SearchRefused as error:
                raise SearchUnavailable(f"the search server no longer knows a task: {error}") from error
            if task.status == "succeeded":
                return
            if task.status in ("failed", "canceled"):
                raise _failure(task.error or {"message": f"the task was {task.status}", "type": "internal"})
            if time.monotonic() > deadline:
                raise SearchUnavailable(f"the search server has not finished task {task_uid} within {_SETTING_SECONDS:.0f} s")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)

    def fields(self, uid: str, fields: Sequence[str], page: int = 5_000) -> Iterator[list[dict[str, Any]]]:
        """These fields of all documents, page by page."""
        offset = 0
        while True:
            found = self._fetch(uid, {"fields": list(fields), "offset": offset, "limit": page})
            if not found:
                return
            yield found
            offset += len(found)

    def find(self, uid: str, ids: Sequence[str], fields: Sequence[str]) -> list[dict[str, Any]]:
        return self._fetch(uid, {"fields": list(fields), "ids": list(ids), "limit": len(ids)}) if ids else []

    def _fetch(self, uid: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        with _translate_errors("read documents"):
            return [dict(document) for document in self._client.index(uid).get_documents(parameters).results]

    @property
    def _client(self) -> meilisearch.Client:
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = make_client(self._settings, _REQUEST_SECONDS)
        return client


def _same(name: str, wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        found = orjson.loads(found.model_dump_json(by_alias=True)) if hasattr(found, "model_dump_json") else found
        return isinstance(found, Mapping) and all(_same("", value, found.get(key)) for key, value in wanted.items())
    if name in _UNORDERED and isinstance(found, list):
        return sorted(map(str, wanted)) == sorted(map(str, found))
    return bool(wanted == found)


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Translates the client's errors into ours, by whether a retry can succeed."""
    try:
        yield
    except MeilisearchApiError as error:
        problem = f"the search server can't {what}: {error.message}"
        if error.status_code >= 500 or error.status_code in _NOT_OURS:
            raise SearchUnavailable(problem) from error
        raise SearchRefused(problem) from error
    except (MeilisearchError, requests.RequestException) as error:  # the library does not translate truncated responses
        raise SearchUnavailable(f"the search server does not answer: {first_line(error)}") from error


def _failure(error: Mapping[str, Any]) -> ArchiverError:
    problem = str(error.get("message", "no reason was given"))
    return SearchUnavailable(problem) if error.get("type") in _TRY_AGAIN else SearchRefused(problem)
