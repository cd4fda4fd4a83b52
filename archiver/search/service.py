"""Searches as a reader who may see certain mailboxes: the filter limits the index, and the rows are checked again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from itertools import islice
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Engine

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import EVERYTHING, MailScope, scope_of
from archiver.adaptive_cache import Remembered
from archiver.config import Settings
from archiver.db import sql
from archiver.db.engine import autocommit
from archiver.errors import UsageError
from archiver.search import conversations
from archiver.search.client import make_client
from archiver.search.conversations import ConversationSummary
from archiver.search.facets import FACETS, SHOWN, Facets, FacetValue
from archiver.search.names import DatabaseNames, FindExpiring
from archiver.search.query.compiler import Search, compile_query
from archiver.search.query.parser import parse
from archiver.search.query.syntax import has_bare_words
from archiver.search.rows import HitRow, MailboxAddress, UnsearchableCount
from archiver.search.searcher import FoundHits, IndexSearcher, narrow
from archiver.search.snippets import (
    BEGINNING,
    FIRST_LOOK,
    SECOND_LOOK,
    MatchedText,
    Snippet,
    beginning_of,
    first_snippet,
    second_snippet,
)

Reading = tuple[list[Search], bool]
"""The searches that a query means, and whether they may miss messages."""

SORTS: Final = {"newest": "order:desc", "oldest": "order:asc", "best": None}
MAX_LIMIT: Final = 1_000
_REMEMBERED_SECONDS: Final = 5.0
_ID_BATCH: Final = 1_000

# Each limited to what the scope sees (MailScope.messages, MailScope.copies). A message without a visible copy is not visible.
_ROWS = """
    SELECT m.id, encode(m.sha256, 'hex') AS sha256, m.sort_at, m.sender, m.sender_name, m.subject, m.size_bytes,
        m.has_attachments, m.thread_id, {state} AS search_state, m.canonical_sha256, k.copies
    FROM messages m, LATERAL (
        SELECT json_agg(json_build_object('mailbox', b.address, 'folder', c.folder, 'labels', c.labels)
                        ORDER BY b.address, c.folder, c.id) AS copies
        FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id WHERE c.message_id = m.id AND {seen}) AS k
    WHERE m.id = ANY(CAST(:ids AS uuid[])) AND k.copies IS NOT NULL"""
_VISIBLE_IDS = "SELECT m.id FROM messages m WHERE m.id = ANY(:ids) AND {seen}"
_NOT_SEARCHABLE = """
    WITH behind AS (
        SELECT {state} AS search_state, m.search_state AS others, m.search_reasons FROM messages m
        WHERE (m.search_state <> 'full' OR {behind}) AND {seen}),
    unsearched AS (
        SELECT search_state, CASE WHEN search_state = others THEN search_reasons ELSE '[]' END AS search_reasons FROM behind
        WHERE search_state <> 'full')
    SELECT search_state AS state, NULL::text AS reason, count(*) AS messages FROM unsearched GROUP BY search_state
    UNION ALL
    SELECT search_state, coalesce(r ->> 'state', r #>> '{{}}'), count(*)
    FROM unsearched, jsonb_array_elements(search_reasons) AS r GROUP BY 1, 2"""
_ADDRESSES = "SELECT id, address FROM mailboxes WHERE id = ANY(:ids)"


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A message that was found, limited to what this user may see. Variants of one mail on one page are one hit."""

    id: UUID
    sha256: str
    date: datetime
    sender: str | None
    sender_name: str | None
    subject: MatchedText
    passage: MatchedText
    found_in: str | None
    """The attachment and page that the passage is from; None for the mail itself."""
    size_bytes: int
    has_attachments: bool
    thread_id: UUID | None
    search_state: str
    copies: tuple[Mapping[str, Any], ...]
    """Of the message and its variants, each once."""
    variants: tuple[UUID, ...]
    """Other messages on this page with the same mail, but other line endings or client markers."""
    conversation: ConversationSummary | None = None
    """The conversation that this hit stands for, if hits are grouped."""
    also: tuple[UUID, ...] = ()
    """The other hits of that conversation on this page."""


@dataclass(frozen=True, slots=True)
class NotSearchable:
    """Messages of this scope that are not in the index, or not with all of their text: counts by state and by reason."""

    states: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Results:
    hits: tuple[MessageHit, ...]
    total: int
    total_is_lower_bound: bool
    facets: Mapping[str, list[FacetValue]]
    not_searchable: NotSearchable
    next_offset: int | None
    """Where the next page begins, even if this page has few visible hits; None on the last page."""
    similar: int = 0
    """Messages beyond these that contain the words only with typos or as the beginning of longer ones."""
    has_similar: bool = False
    """Whether such messages are among the hits."""


class MailSearch:
    """One per process; thread-safe."""

    def __init__(self, engine: Engine, searcher: IndexSearcher, expiring: FindExpiring | None = None) -> None:
        self._engine = engine
        self._searcher = searcher
        self._names = DatabaseNames(engine, expiring)
        self._not_searchable: Remembered[NotSearchable] = Remembered(_REMEMBERED_SECONDS)
        self._addresses_known: dict[UUID, str] = {}

    def search_as(
        self,
        principal: Principal,
        query: str,
        *,
        sort: str = "newest",
        offset: int = 0,
        limit: int = 20,
        facets: Sequence[str] = (),
        zone: tzinfo = UTC,
        similar: bool = False,
        grouped: bool = False,
        values: int = SHOWN,
    ) -> Results:
        """One page of what the principal may read, for every front end. The audit log has it before it is returned."""
        principal.require(Right.SEARCH)
        with autocommit(self._engine) as connection:
            scope = scope_of(connection, principal)
        found = self.search(
            query,
            scope,
            sort=sort,
            offset=offset,
            limit=limit,
            facets=facets,
            zone=zone,
            similar=similar,
            grouped=grouped,
            values=values,
        )
        shown = sum(1 + len(hit.also) for hit in found.hits)
        detail = {"query": query, "offset": offset, "shown": shown, "total": found.total, "facets": list(facets)}
        audit.record_look(self._engine, principal, "search.done", "search", None, **detail)
        return found

    def search(
        self,
        query: str,
        scope: MailScope = EVERYTHING,
        *,
        sort: str = "newest",
        offset: int = 0,
        limit: int = 20,
        facets: Sequence[str] = (),
        zone: tzinfo = UTC,
        now: datetime | None = None,
        similar: bool = False,
        grouped: bool = False,
        values: int = SHOWN,
    ) -> Results:
        """One page. Raises QueryError, with the position, for a query that can't be parsed or answered.

        `grouped`: the hits of a page that belong to one conversation are one, the first of them. `values`: of each facet.
        By date, words match exactly as long as anything does, and `similar` asks for the others as well: thousands of similar
        words would hide the exact ones. By relevance the exact ones come first anyway.
        """
        if sort not in SORTS or offset < 0 or not 0 <= limit <= MAX_LIMIT or not set(facets) <= set(FACETS):
            raise UsageError(
                f"expected sort {' | '.join(SORTS)}, an offset, a limit up to {MAX_LIMIT}, and facets among {FACETS}"
            )
        reader = Facets(self._searcher, self._names, scope.mailboxes, zone, self._addresses, values)

        def page(searches: list[Search]) -> FoundHits:
            return self._searcher.page(searches, SORTS[sort], offset, limit, FIRST_LOOK, reader.attributes(facets))

        exact, loose = self._readings(query, scope, zone, now)
        chosen, found, others = self._choose(page, loose if similar or sort == "best" else exact, loose)
        searches, is_cut = chosen
        # The index may lag behind a deletion or a revoked grant: Postgres decides what is shown.
        hits, visible = self._hits(found.hits, scope, grouped=grouped)
        end = offset + len(found.hits)
        has_more = bool(found.hits) and end < found.counted.total
        total = max(0, found.counted.total - (len(found.hits) - visible))
        return Results(
            hits,
            max(total, end + 1) if has_more else total,  # so that a client that pages up to the total reaches the last page
            is_cut or found.counted.is_lower_bound,
            reader.read(facets, found.counted, searches),
            self.not_searchable(scope),
            end if has_more else None,
            others,
            chosen == loose != exact,
        )

    def _choose(
        self, page: Callable[[list[Search]], FoundHits], wanted: Reading, loose: Reading
    ) -> tuple[Reading, FoundHits, int]:
        """The loose reading if the wanted one finds nothing; and how many more messages the loose one would find."""
        found = page(wanted[0])
        if wanted != loose and not found.counted.total:
            wanted, found = loose, page(loose[0])
        others = 0 if wanted == loose else self._searcher.count(loose[0], []).total - found.counted.total
        return wanted, found, max(0, others)

    def message_ids(
        self, query: str, scope: MailScope = EVERYTHING, *, zone: tzinfo = UTC, now: datetime | None = None
    ) -> Iterator[UUID]:
        """All messages that a query finds, each once, without a limit. Raises before the first one.

        Words match exactly here: what only looks similar must not be exported, restored or deleted.
        """
        (searches, is_cut), _ = self._readings(query, scope, zone, now, exact=True)
        if is_cut:
            raise UsageError(f"{query}: matches too many messages to list all of them reliably; narrow it, or use single words")
        return self._visible(self._searcher.ids(searches), scope)

    def count_among(self, query: str, scope: MailScope, ids: Sequence[UUID], zone: tzinfo = UTC) -> int:
        """How many of these messages a query finds, with exactly its words."""
        (searches, _), _ = self._readings(query, scope, zone, None, exact=True)
        among = f"id IN [{', '.join(map(str, ids))}]"
        return self._searcher.count([narrow(search, among) for search in searches], []).total

    def beginnings(self, ids: Sequence[UUID]) -> dict[UUID, str]:
        """The first new words of messages, without what they quote. The caller has checked that they are visible."""
        if not ids:
            return {}
        search = Search("", f"id IN [{', '.join(map(str, ids))}]", ())
        return {UUID(hit["id"]): beginning_of(hit) for hit in self._searcher.fetch([search], BEGINNING)}

    def not_searchable(self, scope: MailScope) -> NotSearchable:
        """Counted at most every few seconds per scope."""
        return self._not_searchable.get(scope, lambda: self._count_not_searchable(scope))

    def _count_not_searchable(self, scope: MailScope) -> NotSearchable:
        with autocommit(self._engine) as connection:
            parts = {"seen": "true", "behind": "false", "state": scope.search_state()}
            if scope.mailboxes is not None:
                parts |= {"seen": scope.messages(), "behind": "m.indexed_version < m.index_version"}
            rows = sql.query(connection, _NOT_SEARCHABLE.format(**parts), UnsearchableCount, **scope.values())
        reasons: dict[str, int] = {}
        for row in rows:
            if row.reason is not None:
                reasons[row.reason] = reasons.get(row.reason, 0) + row.messages
        return NotSearchable({row.state: row.messages for row in rows if row.reason is None}, reasons)

    def _readings(
        self, query: str, scope: MailScope, zone: tzinfo, now: datetime | None, *, exact: bool = False
    ) -> tuple[Reading, Reading]:
        """The searches for the exact words, and for similar ones too: the same if `exact`, or if no word is bare."""
        tree = parse(query, (now or datetime.now(UTC)).replace(microsecond=0), zone)

        def read(*, exact: bool) -> Reading:
            seen = partial(compile_query, reader=scope.reader, hidden_labels=scope.hidden_labels)
            return self._searcher.resolve_joins(seen(tree, query, self._names, scope.mailboxes, exact=exact))

        found = read(exact=True)
        return found, found if exact or not has_bare_words(tree) else read(exact=False)

    def _hits(
        self, found: Sequence[tuple[Search, Mapping[str, Any]]], scope: MailScope, *, grouped: bool
    ) -> tuple[tuple[MessageHit, ...], int]:
        """What is shown, and how many mails that is, however they are grouped."""
        snippets = self._snippets(found)
        if not snippets:
            return (), 0
        found_rows, threads, summed = self._load(list(snippets), scope, grouped=grouped)
        rows = {str(row.id): row for row in found_rows}
        hits: dict[bytes, MessageHit] = {}
        for one, snippet in snippets.items():
            if row := rows.get(one):
                first = hits.get(row.canonical_sha256)
                hits[row.canonical_sha256] = _hit(row, snippet, threads[row.id]) if first is None else _with_variant(first, row)
        return (_grouped(hits.values(), summed) if grouped else tuple(hits.values())), len(hits)

    def _load(
        self, ids: Sequence[str], scope: MailScope, *, grouped: bool
    ) -> tuple[list[HitRow], dict[UUID, UUID | None], dict[UUID, ConversationSummary]]:
        """What the scope sees of these messages, and the thread of each as this reader sees it, with its size if `grouped`."""
        statement = _ROWS.format(seen=scope.copies(), state=scope.search_state())
        with autocommit(self._engine) as connection:
            rows = sql.query(connection, statement, HitRow, ids=f"{{{','.join(ids)}}}", **scope.values())
            known = [(row.id, row.thread_id) for row in rows]
            if not grouped:
                return rows, conversations.names(connection, scope, known), {}
            summed = conversations.summaries(connection, scope, known)
        return rows, {one: summed[one].id if one in summed else None for one, _ in known}, summed

    def _snippets(self, found: Sequence[tuple[Search, Mapping[str, Any]]]) -> dict[str, Snippet]:
        snippets = {hit["id"]: first_snippet(hit, has_text=search.finds_text) for search, hit in found}
        unsure: dict[Search, list[str]] = {}
        for search, hit in found:
            if not snippets[hit["id"]].is_sure and not search.attributes:
                unsure.setdefault(search, []).append(hit["id"])
        looks = [narrow(search, f"id IN [{', '.join(ids)}]") for search, ids in unsure.items()]
        for hit in self._searcher.fetch(looks, SECOND_LOOK):
            snippets[hit["id"]] = second_snippet(snippets[hit["id"]], hit)
        return snippets

    def _visible(self, ids: Iterator[str], scope: MailScope) -> Iterator[UUID]:
        while wanted := [UUID(one) for one in islice(ids, _ID_BATCH)]:
            with self._engine.connect() as connection:
                statement = _VISIBLE_IDS.format(seen=scope.messages())
                seen = set(sql.query(connection, statement, UUID, ids=wanted, **scope.values()))
            yield from (one for one in wanted if one in seen)

    def _addresses(self, ids: Sequence[UUID]) -> dict[UUID, str]:
        """Addresses of mailboxes never change."""
        known = self._addresses_known
        if unknown := [one for one in ids if one not in known]:
            with autocommit(self._engine) as connection:
                known.update(sql.query(connection, _ADDRESSES, MailboxAddress, ids=unknown))
        return {one: known[one] for one in ids if one in known}


def open_search(settings: Settings, engine: Engine, expiring: FindExpiring | None = None) -> MailSearch:
    return MailSearch(engine, IndexSearcher(lambda: make_client(settings)), expiring)


def _hit(row: HitRow, snippet: Snippet, thread_id: UUID | None) -> MessageHit:
    return MessageHit(
        id=row.id,
        sha256=row.sha256,
        date=row.sort_at,
        sender=row.sender,
        sender_name=row.sender_name,
        subject=snippet.subject if snippet.subject.text == row.subject else MatchedText(row.subject or ""),
        passage=snippet.passage,
        found_in=snippet.found_in,
        size_bytes=row.size_bytes,
        has_attachments=row.has_attachments,
        thread_id=thread_id,
        search_state=row.search_state,
        copies=tuple(row.copies),
        variants=(),
    )


def _grouped(hits: Iterable[MessageHit], summed: Mapping[UUID, ConversationSummary]) -> tuple[MessageHit, ...]:
    """The first hit of each conversation, which names the others."""
    first: dict[UUID, MessageHit] = {}
    for hit in hits:
        name = hit.thread_id or hit.id
        if name in first:
            first[name] = replace(first[name], also=(*first[name].also, hit.id))
        else:
            first[name] = replace(hit, conversation=summed.get(hit.id))
    return tuple(first.values())


def _with_variant(hit: MessageHit, row: HitRow) -> MessageHit:
    copies = (*hit.copies, *(copy for copy in row.copies if copy not in hit.copies))
    return replace(hit, copies=copies, variants=(*hit.variants, row.id))
