"""Imports of mail files: one source for each mailbox address, so that what was imported once is known for ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.errors import InUse
from archiver.models.states import SourceStatus
from archiver.secrets import Keyring
from archiver.services import source_rows, sources
from archiver.services.principal import LOCAL_OPERATOR, Principal
from archiver.services.quiet_context import QuietContext
from archiver.services.runs import Run
from archiver.services.source_rows import Source

KIND = "import"
_MOST_LISTED = 1000
_SEPARATOR = "\u241f"

_LIVE = text("""
    SELECT EXISTS (SELECT 1 FROM sync_sessions WHERE ingestion_source_id = :id)
        OR EXISTS (SELECT 1 FROM outbox WHERE source_id = :id AND job IN ('continuous-sync', 'initial-import'))""")

_TALLIES = text("""
    SELECT sync_state->('files:' || lower(address)) AS tally FROM mailboxes WHERE source_id = :id""")

# Dead letters of an import wait for the file, not for a time; and the next import may be one of other files.
_PUT_OFF = text("""
    UPDATE dead_letters SET next_try_at = now() + interval '100 years'
    WHERE source_id = :id AND kind = 'message' AND discarded_at IS NULL""")

_SKIPPED = text("""
    SELECT s.provider_key, s.rule FROM skipped_messages s JOIN mailboxes b ON b.id = s.mailbox_id
    WHERE b.source_id = :id AND s.skipped_at >= :since AND strpos(s.provider_key, :separator) = 0
        AND s.rule NOT LIKE 'could not be read before%'
    ORDER BY s.provider_key LIMIT :most""")

_LEFT_OUT = text("""
    SELECT s.rule, count(*) FROM skipped_messages s JOIN mailboxes b ON b.id = s.mailbox_id
    WHERE b.source_id = :id AND s.skipped_at >= :since AND strpos(s.provider_key, :separator) > 0
    GROUP BY 1 ORDER BY 2 DESC, 1""")


def source_name(mailbox: str) -> str:
    return f"import:{mailbox.lower()}"


def is_live(connection: Connection, source_id: UUID) -> bool:
    return bool(connection.execute(_LIVE, {"id": source_id}).scalar())


def begin(
    engine: Engine,
    keyring: Keyring,
    paths: Sequence[Path],
    mailbox: str,
    settings: Mapping[str, Any],
    who: Principal = LOCAL_OPERATOR,
) -> tuple[Source, bool]:
    """The source, ready to be synced; and whether this very import is under way already."""
    name = source_name(mailbox)
    values = {**settings, "mailbox": mailbox, "paths": [str(path) for path in paths]}
    with engine.begin() as connection:
        source = next((one for one in source_rows.all_sources(connection) if one.name.lower() == name), None)
        under_way = source is not None and is_live(connection, source.id)
        if source is not None and under_way:
            if source.settings.get("paths") != values["paths"]:
                raise InUse(
                    f"an import into {mailbox} is under way ({', '.join(source.settings.get('paths', []))});"
                    f" `archiver source sync {name} --wait` follows it to its end"
                )
            return source, True
        if source is not None:
            connection.execute(_PUT_OFF, {"id": source.id})
            if source.status is SourceStatus.PAUSED:
                sources.resume(connection, source, who)
    if source is None:
        return sources.add(engine, keyring, QuietContext(), KIND, name, values, {}, who), False
    forgotten = dict.fromkeys(source.settings)  # what was said about the import before does not hold for this one
    number = int(source.settings.get("number", 0)) + 1
    changed = sources.edit(engine, keyring, QuietContext(), source, {**forgotten, **values, "number": number}, {}, who)
    with engine.connect() as connection:
        return source_rows.load(connection, changed.id) or changed, False


@dataclass(frozen=True, slots=True)
class Tally:
    """How far an import is, or how far it came."""

    total_bytes: int = 0
    read_bytes: int = 0
    found: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """By file: unreadable, truncated, damaged, changed while it was read."""


def tally(connection: Connection, source: Source) -> Tally:
    """Added up from the mailboxes, as their last batches left it."""
    total = read = found = 0
    kinds: dict[str, int] = {}
    failures: dict[str, str] = {}
    for (one,) in connection.execute(_TALLIES, {"id": source.id}):
        if isinstance(one, dict) and str(one.get("turn", "")).endswith(f":{source.settings.get('number', 0)}"):
            total += one["total_bytes"] + sum(one["unpacked"].values())
            read += one["read_bytes"]
            found += one["found"]
            failures |= one["failures"]
            for kind, number in one["kinds"].items():
                kinds[kind] = kinds.get(kind, 0) + number
    return Tally(total, read, found, dict(sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))), failures)


@dataclass(frozen=True, slots=True)
class Report:
    """What an import did not take in, and why."""

    not_mail: tuple[tuple[str, str], ...]
    """File, and what it is."""
    left_out: tuple[tuple[str, int], ...]
    """Messages, by the rule that says so."""
    known: int
    """Messages that were in the archive before."""
    tally: Tally

    def figures(self) -> dict[str, Any]:
        return {
            "found": self.tally.found,
            "kinds": dict(self.tally.kinds),
            "unreadable": [{"path": path, "reason": reason} for path, reason in sorted(self.tally.failures.items())],
            "not_mail": [{"path": path, "what": what} for path, what in self.not_mail],
            "left_out": dict(self.left_out),
        }


def report(connection: Connection, source: Source, run: Run) -> Report:
    values = {"id": source.id, "since": run.started_at, "most": _MOST_LISTED, "separator": _SEPARATOR}
    others = [(row[0], row[1].removeprefix("not mail: ")) for row in connection.execute(_SKIPPED, values)]
    left_out = [(row[0], int(row[1])) for row in connection.execute(_LEFT_OUT, values)]
    if run.deleted_here:
        left_out.append(("deleted here", run.deleted_here))
    counted = tally(connection, source)
    known = max(0, counted.found - run.archived - sum(number for _, number in left_out))
    return Report(tuple(others), tuple(left_out), known, counted)
