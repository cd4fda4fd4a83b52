"""At the start, before anything is written: the database is brought up to what the packs know.

After a crash that is a batch that was never committed; after an older dump, or with a replica that lagged, all that came later.
A database that was rolled back is noticed by numbers in the journal which it has not given out.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from sqlalchemy import Engine, text

from archiver.services import tombstones
from archiver.services.adopt import Adopted, adopt, find_unknown
from archiver.store.archive import Archive

_log = structlog.get_logger(__name__)
_KNOWS_DELETIONS = text("SELECT knows_deletions FROM archive_state")

Say = Callable[[str], None]


def catch_up(engine: Engine, archive: Archive, say: Say, *, rest_seconds: float = 0) -> Adopted:
    """Confirms deletions and takes in what the database does not know. `say` gets a sentence before work that may take long,
    and one about what was found. Several processes may start at once: one does the work, the others wait for it.

    `rest_seconds`: in a bucket, how long a batch of another machine may be on its way into the database.
    """
    tombstones.confirm(engine, archive)
    unknown = find_unknown(engine, archive, rest_seconds=rest_seconds)
    if not unknown.packs and _knows_deletions(engine):
        return Adopted()
    if unknown.is_rolled_back:
        say(
            f"the database is older than the packs, as after restoring an older copy of it: what {len(unknown.packs)} pack(s) "
            "hold beyond it is taken in now; afterwards check the users, grants and settings that changed since"
        )
    else:
        say("the packs hold more than the database knows: it is taken in before anything is written")
    done = adopt(engine, archive, rest_seconds=rest_seconds)
    if not done.is_empty:
        _log.warning("caught_up", rolled_back=unknown.is_rolled_back, packs=done.packs, messages=done.messages)
        say(f"taken in: {done.messages:,} message(s), {done.copies:,} copies, {done.deleted_copies:,} deletion(s)")
    for damage in done.damage:
        say(f"{damage}; run `archiver verify`")
    return done


def _knows_deletions(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.execute(_KNOWS_DELETIONS).scalar_one())
