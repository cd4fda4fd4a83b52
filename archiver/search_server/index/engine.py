"""One Tantivy index on disk: opening, snapshots for readers, and transactions for the single writer."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import tantivy
from tantivy import FieldType, Order, Query

from archiver.search_server.index.document_fields import Attributes, RowBuilder, schema_for
from archiver.search_server.index.plan import FieldPlan
from archiver.search_server.index.text import analyzer

WRITER_BYTES = 80_000_000
# Each thread writes a segment of its own at each commit, and small segments are merged again and again. So one thread works as
# long as it keeps up with the senders, which need the other cores; if it falls behind, all threads work. With few cores, the
# merging costs more than a second thread gives.
_CORES_PER_THREAD = 4
WRITER_THREADS = max(1, min(4, (os.cpu_count() or 1) // _CORES_PER_THREAD))
_STRETCH = 2_000


class IndexDamaged(Exception):
    """The files of an index can't be read."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent view for one search, independent of concurrent writes."""

    index: tantivy.Index
    searcher: tantivy.Searcher
    schema: tantivy.Schema
    plan: FieldPlan
    attributes: Attributes

    def document(self, address: tantivy.DocAddress) -> dict[str, Any]:
        return orjson.loads(self.searcher.doc(address)["raw"][0])  # type: ignore[no-any-return]

    def address_of(self, document_id: str) -> tantivy.DocAddress | None:
        query = Query.term_query(self.schema, "id", document_id, "basic")
        hits = self.searcher.search(query, 1, count=False).hits
        return hits[0][1] if hits else None

    def get(self, document_id: str) -> dict[str, Any] | None:
        address = self.address_of(document_id)
        return None if address is None else self.document(address)

    def count(self, query: Query) -> int:
        found = self.searcher.search(Query.const_score_query(query, 0.0), 1)  # (computing scores would cost as much again)
        return int(found.count)  # type: ignore[attr-defined]

    def field_distribution(self) -> dict[str, int]:
        counts = {
            name: self.count(Query.term_query(self.schema, "m", f"t:{short}", "basic"))
            for name, short in self.attributes.ids.items()
        }
        return {name: count for name, count in sorted(counts.items()) if count}


class Engine:
    """Owns the folder of one index. Writing is for one thread; `snapshot` is for all."""

    def __init__(self, folder: Path, plan: FieldPlan, attributes: Attributes, index: tantivy.Index) -> None:
        self.folder = folder
        self.plan = plan
        self.attributes = attributes
        self._index = index
        self._index.register_tokenizer("words", analyzer())
        self._index.config_reader("manual")
        self._index.reload()
        self._schema = index.schema
        self._searcher = index.searcher()
        self._writer: tantivy.IndexWriter | None = None
        self._threads = 0
        self._next_sequence = self._greatest_sequence() + 1

    @classmethod
    def create(cls, folder: Path, plan: FieldPlan, attributes: Attributes) -> Engine:
        files = folder / "index"
        files.mkdir(parents=True)
        _write_durably(folder / "plan.json", orjson.dumps(plan.to_json()))
        engine = cls(folder, plan, attributes, tantivy.Index(schema_for(plan), path=str(files)))
        _sync_folder(folder.parent)
        return engine

    @classmethod
    def open(cls, folder: Path, attributes: Attributes) -> Engine:
        try:
            plan = FieldPlan.from_json(orjson.loads((folder / "plan.json").read_bytes()))
            engine = cls(folder, plan, attributes, tantivy.Index.open(str(folder / "index")))
            engine.snapshot().searcher.search(Query.all_query(), 1)
        except (ValueError, OSError, TypeError) as error:
            raise IndexDamaged(str(error)) from error
        return engine

    def snapshot(self) -> Snapshot:
        return Snapshot(self._index, self._searcher, self._schema, self.plan, self.attributes)

    def begin(self, *, is_busy: bool = False) -> Transaction:
        """`is_busy`: more is waiting than one thread can process. Then all threads work, until `rest`."""
        threads = WRITER_THREADS if is_busy else 1
        if threads > self._threads:
            self.rest()
        if self._writer is None:
            self._writer = self._new_writer(threads)
            self._threads = threads
        return Transaction(self, self._writer)

    def _new_writer(self, threads: int) -> tantivy.IndexWriter:
        writer = self._index.writer(WRITER_BYTES, threads)
        # A killed process may have left files with the next names, and Tantivy never overwrites a file.
        writer.garbage_collect_files()
        # Tantivy counts operations on from the last commit, whose own number the first one gets again; a merge that begins with
        # the writer then takes segments which that commit has changed to know it already. So the first one removes nothing.
        writer.delete_documents_by_term("id", "")
        return writer

    def next_sequence(self) -> int:
        self._next_sequence += 1
        return self._next_sequence - 1

    def skip_to(self, other: Engine) -> None:
        self._next_sequence = max(self._next_sequence, other._next_sequence)

    def stored(self) -> Iterator[tuple[int, bytes]]:
        """All documents in the order of arrival, a limited number of them in memory at a time."""
        snapshot = self.snapshot()
        for start in range(0, self._next_sequence, _STRETCH):
            stretch = Query.range_query(
                self._schema, "seq", FieldType.Unsigned, start, start + _STRETCH, include_lower=True, include_upper=False
            )
            hits = snapshot.searcher.search(stretch, _STRETCH, count=False, order_by_field="seq", order=Order.Asc).hits
            for sequence, address in hits:
                yield sequence, snapshot.searcher.doc(address)["raw"][0]

    def published(self) -> None:
        """After a commit: new searches see it."""
        self._index.reload()
        self._searcher = self._index.searcher()

    def rest(self) -> None:
        """Waits for merges, then frees the memory of the writer."""
        writer, self._writer = self._writer, None
        self._threads = 0
        if writer is not None:
            writer.wait_merging_threads()
            self.published()

    def let_go(self) -> None:
        """Stops at once; unfinished merges are repeated later."""
        self._writer = None

    def abandon_writer(self) -> None:
        """After a failure, the state of the writer is unknown; it is dropped with everything that was not committed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(ValueError, OSError):
                writer.rollback()

    def remove(self) -> None:
        self.let_go()
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_there(self) -> bool:
        """False if the files have been removed from outside."""
        return (self.folder / "index" / "meta.json").exists()

    def size_bytes(self) -> int:
        return sum(self.sizes().values())

    def sizes(self) -> dict[str, int]:
        """The bytes of each kind of file, by file name extension."""
        found: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.folder / "index"):
                with contextlib.suppress(FileNotFoundError):  # a merge has just removed it
                    kind = entry.name.rpartition(".")[2]
                    found[kind] = found.get(kind, 0) + entry.stat().st_size
        return found

    def _greatest_sequence(self) -> int:
        hits = self._searcher.search(Query.all_query(), 1, count=False, order_by_field="seq", order=Order.Desc).hits
        return int(hits[0][0]) if hits and hits[0][0] is not None else -1


class Transaction:
    """Changes that become visible and durable together."""

    def __init__(self, engine: Engine, writer: tantivy.IndexWriter) -> None:
        self._engine = engine
        self._writer = writer
        self._before = engine.snapshot()
        self._is_empty = self._before.searcher.num_docs == 0
        self._rows = RowBuilder(engine.plan, engine.attributes)
        # the changes by id: (sequence, document), or None if it was removed
        self._pending: dict[str, tuple[int, bytes] | None] = {}

    def put(self, document_id: str, document: dict[str, Any]) -> None:
        known, sequence = self._sequence_of(document_id)
        if known:
            self._writer.delete_documents_by_term("id", document_id)
        else:
            sequence = self._engine.next_sequence()
        raw = orjson.dumps(document)
        self._writer.add_document(self._rows.build(document_id, sequence, document, raw))
        self._pending[document_id] = (sequence, raw)

    def has(self, document_id: str) -> bool:
        return self._sequence_of(document_id)[0]

    def get(self, document_id: str) -> dict[str, Any] | None:
        if document_id in self._pending:
            entry = self._pending[document_id]
            return None if entry is None else orjson.loads(entry[1])
        return None if self._is_empty else self._before.get(document_id)

    def replay(self, primary_key: str, sequence: int, raw: bytes) -> None:
        """Copies a document of another index unchanged."""
        document = orjson.loads(raw)
        self._writer.add_document(self._rows.build(str(document[primary_key]), sequence, document, raw))

    def delete(self, document_id: str) -> bool:
        known, _ = self._sequence_of(document_id)
        if known:
            self._writer.delete_documents_by_term("id", document_id)
            self._pending[document_id] = None
        return known

    def delete_matching(self, query: Query) -> int:
        """Removes what the query matches in the committed index."""
        count = self._before.count(query)
        self._writer.delete_documents_by_query(query)
        return count

    def delete_all(self) -> int:
        count = self._before.searcher.num_docs
        self._writer.delete_all_documents()
        return count

    def commit(self) -> None:
        self._writer.commit()
        self._engine.published()

    def _sequence_of(self, document_id: str) -> tuple[bool, int]:
        if document_id in self._pending:
            entry = self._pending[document_id]
            return (False, 0) if entry is None else (True, entry[0])
        if self._is_empty or not self._before.searcher.doc_freq("id", document_id):
            return False, 0
        address = self._before.address_of(document_id)
        if address is None:
            return False, 0
        return True, int(self._before.searcher.fast_field_values("seq", [address])[0] or 0)


def rebuild(source: Engine, folder: Path, plan: FieldPlan, primary_key: str) -> Engine:
    """Builds a new index by another plan from the stored documents. Durable when it returns."""
    target = Engine.create(folder, plan, source.attributes)
    transaction = target.begin(is_busy=True)
    for sequence, raw in source.stored():
        transaction.replay(primary_key, sequence, raw)
    transaction.commit()
    target.skip_to(source)
    return target


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
