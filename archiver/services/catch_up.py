"""At the start, before anything is written: the database is brought up to what the packs know.

After a crash that is a batch that was never committed; after an older dump, or with a replica that lagged, all that came later.
A database that was rolled back is noticed by numbers in the journal which it has not given out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Engine, text

from archiver.models.states import PackState
from archiver.services import tombstones
from archiver.services.adopt import Adopted, adopt
from archiver.services.archive_state import last_stamp
from archiver.store.archive import Archive
from archiver.store.errors import LostPack

_log = structlog.get_logger(__name__)
_PACKS = text("SELECT id, state, size_bytes FROM packs")
_KNOWS_DELETIONS = text("SELECT knows_deletions FROM archive_state")

Say = Callable[[str], None]


def catch_up(engine: Engine, archive: Archive, say: Say, *, rest_seconds: float = 0) -> Adopted:
    """Confirms deletions and takes in what the database does not know. `say` gets a sentence before work that may take long,
    and one about what was found. Several processes may start at once: one does the work, the others wait for it.

    `rest_seconds`: in a bucket, how long a batch of another machine may be on its way into the database.
    """
    tombstones.confirm(engine, archive)
    if not _is_behind(engine, archive):
        return Adopted()
    before = _generation(engine)
    say("the packs hold more than the database knows: taking it in before anything is written")
    done = adopt(engine, archive, rest_seconds=rest_seconds)
    is_rolled_back = _generation(engine) > before
    if is_rolled_back or not done.is_empty:
        _log.warning("caught_up", rolled_back=is_rolled_back, packs=done.packs, messages=done.messages, copies=done.copies)
        say(_sentence(done, is_rolled_back=is_rolled_back))
    for damage in done.damage:
        say(f"{damage}; run `archiver verify`")
    return done


def _is_behind(engine: Engine, archive: Archive) -> bool:
    with engine.connect() as connection:
        known = {row.id: row for row in connection.execute(_PACKS)}
        if not connection.execute(_KNOWS_DELETIONS).scalar_one():
            return True
    return any(pack_id not in known or _is_longer(archive, pack_id, known[pack_id]) for pack_id in archive.backend.packs())


def _is_longer(archive: Archive, pack_id: UUID, row: Any) -> bool:
    if row.state in (PackState.SEALED, PackState.RETIRED):
        return False
    try:
        return bool(archive.backend.open(pack_id).size > row.size_bytes)
    except LostPack:
        return False


def _generation(engine: Engine) -> int:
    with engine.connect() as connection:
        return last_stamp(connection).generation


def _sentence(done: Adopted, *, is_rolled_back: bool) -> str:
    taken = f"{done.messages:,} message(s), {done.copies:,} copies and {done.deleted_copies:,} deletion(s)"
    if is_rolled_back:
        return (
            f"the database was older than the packs, as after restoring an older copy of it: {taken} were taken in from the "
            "packs; check the users, grants and settings that changed since"
        )
    return f"{taken} of batches that were interrupted were taken in from the packs"
