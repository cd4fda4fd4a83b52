"""Executes each kind of task, in the writer thread, one batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from archiver.search_server.errors import ApiError, index_not_found
from archiver.search_server.human_size import human
from archiver.search_server.index.catalog import Catalog, CatalogEntry
from archiver.search_server.index.engine import Transaction
from archiver.search_server.index.identity import checked_id, document_id, infer_primary_key
from archiver.search_server.index.plan import FieldPlan
from archiver.search_server.index.settings import apply_change, full_settings
from archiver.search_server.payload import read_documents
from archiver.search_server.query.filters import compile_filter
from archiver.search_server.state import Row, ServerState
from archiver.search_server.tasks.task_queue import MAX_BATCH_BYTES, Finish, TaskQueue

BUSY_BYTES = MAX_BATCH_BYTES * 3 // 4
"""A batch above this size is nearly full, so more tasks are probably waiting."""


class Processor:
    """Executes batches. Everything that a task changes is durable before the task counts as finished."""

    def __init__(self, state: ServerState, queue: TaskQueue, catalog: Catalog) -> None:
        self._state = state
        self._queue = queue
        self._catalog = catalog
        self._single: dict[str, Callable[[Row], None]] = {
            "documentDeletion": self._delete_documents,
            "settingsUpdate": self._update_settings,
            "indexCreation": self._create_index,
            "indexUpdate": self._update_index,
            "indexDeletion": self._delete_index,
            "indexCompaction": self._compact_index,
            "indexSwap": self._swap_indexes,
            "taskCancelation": self._cancel_tasks,
            "taskDeletion": self._delete_tasks,
        }

    def run(self, batch: list[Row]) -> None:
        if batch[0]["type"] == "documentAdditionOrUpdate":
            self._add_documents(batch)
        else:
            self._single[batch[0]["type"]](batch[0])

    def fail(self, batch: list[Row], error: ApiError) -> None:
        """Ends a batch that failed; its index drops what was not committed."""
        entry = self._catalog.find(batch[0]["index_uid"]) if batch[0]["index_uid"] else None
        if entry is not None:
            entry.engine.abandon_writer()
        self._catalog.resync()
        ends = [Finish(task["uid"], "failed", _nothing_done(task), error.body()) for task in batch]
        self._queue.finish(ends)

    # documents

    def _add_documents(self, batch: list[Row]) -> None:
        uid = batch[0]["index_uid"]
        entry = self._catalog.find(uid)
        if entry is None:
            with self._state.transaction():
                entry = self._catalog.create(uid, None)
        transaction = entry.engine.begin(is_busy=sum(task["payload_bytes"] for task in batch) > BUSY_BYTES)
        primary_key = entry.primary_key
        ends: list[Finish] = []
        for task in self._and_those_behind(batch):
            try:
                primary_key, count = self._add_one(task, primary_key, transaction)
            except ApiError as error:
                ends.append(Finish(task["uid"], "failed", _nothing_done(task), error.body()))
            else:
                ends.append(Finish(task["uid"], "succeeded", {**task["details"], "indexedDocuments": count}))
        self._catalog.save_attributes(entry)
        transaction.commit()
        self._queue.finish(ends, lambda: self._catalog.update(uid, primary_key=primary_key))

    def _and_those_behind(self, batch: list[Row]) -> Iterator[Row]:
        """The batch and, once, the tasks that arrived while it was read: fewer commits mean fewer segments to merge later."""
        yield from list(batch)
        yield from self._queue.join(batch)

    def _add_one(self, task: Row, primary_key: str | None, transaction: Transaction) -> tuple[str | None, int]:
        request = task["request"]
        documents = read_documents(self._queue.payload(task), request["format"], request["delimiter"])
        wanted = request.get("primaryKey")
        if primary_key is None:
            if not documents and wanted is None:
                return None, 0
            primary_key = wanted or infer_primary_key(task["index_uid"], documents[0])
        elif wanted is not None and wanted != primary_key:
            raise ApiError(
                "index_primary_key_already_exists",
                f"Index `{task['index_uid']}`: Index already has a primary key: `{primary_key}`.",
            )
        ids = [document_id(document, primary_key) for document in documents]  # all of them before the first change
        count = 0
        for one, document in zip(ids, documents, strict=True):
            if request.get("skipCreation") and not transaction.has(one):
                continue
            if request["partial"]:
                document = {**(transaction.get(one) or {}), **document}
            transaction.put(one, document)
            count += 1
        return primary_key, count

    def _delete_documents(self, task: Row) -> None:
        entry = self._existing(task)
        request = task["request"]
        transaction = entry.engine.begin()
        if request.get("all"):
            deleted = transaction.delete_all()
        elif "filter" in request:
            query = compile_filter(entry, entry.engine.snapshot(), request["filter"], "invalid_document_filter")
            deleted = transaction.delete_matching(query) if query is not None else 0
        else:
            deleted = sum(transaction.delete(checked_id(one)) for one in dict.fromkeys(request["ids"]))
        transaction.commit()
        end = Finish(task["uid"], "succeeded", {**task["details"], "deletedDocuments": deleted})
        self._queue.finish([end], lambda: self._catalog.update(entry.uid))

    # settings and indexes

    def _update_settings(self, task: Row) -> None:
        uid = task["index_uid"]
        entry = self._existing(task) if task["request"].get("mustExist") else self._catalog.find(uid)
        if entry is None:
            with self._state.transaction():
                entry = self._catalog.create(uid, None)
        explicit = {} if task["request"].get("reset") else apply_change(entry.explicit, task["request"]["change"])
        plan = FieldPlan.of(full_settings(explicit))
        engine = entry.engine if plan == entry.engine.plan else self._catalog.rebuilt(entry, plan)
        folder = engine.folder.name
        self._catalog.save_attributes(entry)
        self._queue.finish(
            [Finish(task["uid"], "succeeded")], lambda: self._catalog.update(uid, settings=explicit, folder=folder)
        )
        if engine is not entry.engine:
            self._catalog.discard(entry.engine)

    def _create_index(self, task: Row) -> None:
        uid = task["index_uid"]
        if self._catalog.find(uid) is not None:
            raise ApiError("index_already_exists", f"Index `{uid}` already exists.")
        self._queue.finish([Finish(task["uid"], "succeeded")], lambda: self._create(uid, task["request"].get("primaryKey")))

    def _create(self, uid: str, primary_key: str | None) -> None:
        self._catalog.create(uid, primary_key)

    def _update_index(self, task: Row) -> None:
        entry = self._existing(task)
        request = task["request"]
        primary_key, new_uid = request.get("primaryKey"), request.get("uid")
        if primary_key and entry.primary_key not in (None, primary_key) and entry.engine.snapshot().searcher.num_docs:
            raise ApiError(
                "index_primary_key_already_exists",
                f"Index `{entry.uid}`: Index already has a primary key: `{entry.primary_key}`.",
            )
        if new_uid and new_uid != entry.uid and self._catalog.find(new_uid) is not None:
            raise ApiError("index_already_exists", f"Index `{new_uid}` already exists.")

        def change() -> None:
            self._catalog.update(entry.uid, primary_key=primary_key or entry.primary_key)
            if new_uid and new_uid != entry.uid:
                self._catalog.rename([(entry.uid, new_uid)])

        self._queue.finish([Finish(task["uid"], "succeeded")], change)

    def _delete_index(self, task: Row) -> None:
        entry = self._existing(task)
        end = Finish(task["uid"], "succeeded", {"deletedDocuments": entry.engine.snapshot().searcher.num_docs})
        self._queue.finish([end], lambda: self._catalog.delete(entry.uid))
        self._catalog.discard(entry.engine)

    def _compact_index(self, task: Row) -> None:
        """Tantivy merges only now and then; a rebuilt index contains nothing that was deleted."""
        entry = self._existing(task)
        engine = self._catalog.rebuilt(entry, entry.engine.plan)
        engine.rest()
        self._state.vacuum()
        details = {
            "preCompactionSize": human(entry.engine.size_bytes()),
            "postCompactionSize": human(engine.size_bytes()),
        }
        self._queue.finish(
            [Finish(task["uid"], "succeeded", details)], lambda: self._catalog.update(entry.uid, folder=engine.folder.name)
        )
        self._catalog.discard(entry.engine)

    def _swap_indexes(self, task: Row) -> None:
        pairs = [(swap["indexes"][0], swap["indexes"][1], bool(swap.get("rename"))) for swap in task["request"]["swaps"]]
        missing = [
            uid
            for left, right, rename in pairs
            for uid in ((left,) if rename else (left, right))
            if self._catalog.find(uid) is None
        ]
        if len(missing) == 1:
            raise index_not_found(missing[0])
        if missing:
            raise ApiError("index_not_found", f"Indexes {', '.join(f'`{uid}`' for uid in missing)} not found.")
        taken = [right for _, right, rename in pairs if rename and self._catalog.find(right) is not None]
        if taken:
            raise ApiError("index_already_exists", f"Index `{taken[0]}` already exists.")

        moves = [move for left, right, _ in pairs for move in ((left, right), (right, left))]
        self._queue.finish([Finish(task["uid"], "succeeded")], lambda: self._catalog.rename(moves))

    # tasks

    def _cancel_tasks(self, task: Row) -> None:
        uids = task["request"]["tasks"]
        with self._state.transaction():
            canceled = self._queue.cancel(uids, task["uid"])
            self._queue.finish([Finish(task["uid"], "succeeded", {**task["details"], "canceledTasks": canceled})])

    def _delete_tasks(self, task: Row) -> None:
        with self._state.transaction():
            deleted = self._queue.delete(task["request"]["tasks"])
            self._queue.finish([Finish(task["uid"], "succeeded", {**task["details"], "deletedTasks": deleted})])

    def _existing(self, task: Row) -> CatalogEntry:
        return self._catalog.get(task["index_uid"])


def _nothing_done(task: Row) -> dict[str, Any] | None:
    details = dict(task["details"] or {})
    for name in ("indexedDocuments", "deletedDocuments", "canceledTasks", "deletedTasks"):
        if name in details:
            details[name] = 0
    return details or None
