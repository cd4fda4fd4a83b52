"""At the start, before anything is written: brings the database up to date with the packs.

After a crash that is a batch that was never committed; after restoring an older dump, or a lagging replica, everything later.
A database that was rolled back is detected by numbers in the journal that it has not assigned.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine, text

from archiver.logs import get_logger
from archiver.maintenance.recovery.adopt import Adopted, adopt, find_unknown
from archiver.quantity import quantity
from archiver.retention import tombstones
from archiver.store.archive import Archive

_log = get_logger(__name__)
_KNOWS_DELETIONS = text("SELECT knows_deletions FROM archive_state")

Notify = Callable[[str], None]


def catch_up(engine: Engine, archive: Archive, notify: Notify, *, rest_seconds: float = 0) -> Adopted:
    """Confirms deletions and adds what the database does not know. `notify` receives a sentence before work that may take long,
    and one about the result. If several processes start at once, one does the work and the others wait for it.

    `rest_seconds`: in a bucket, how long a batch of another machine may take to be committed.
    """
    tombstones.confirm(engine, archive)
    unknown = find_unknown(engine, archive, rest_seconds=rest_seconds)
    if not unknown.packs and _knows_deletions(engine):
        return Adopted()
    if unknown.is_rolled_back:
        notify(
            "the database is older than the packs, as after restoring an older copy of it: adding what "
            f"{quantity(len(unknown.packs), 'pack')} hold beyond it; afterwards, check users, grants and settings changed since"
        )
    else:
        notify("the packs hold more than the database knows: adding it before anything is written")
    done = adopt(engine, archive, rest_seconds=rest_seconds)
    if not done.is_empty:
        _log.warning("caught_up", rolled_back=unknown.is_rolled_back, packs=done.packs, messages=done.messages)
        copies, deletions = quantity(done.copies, "copy"), quantity(done.deleted_copies, "deletion")
        notify(f"added {quantity(done.messages, 'message')}, {copies} and {deletions} from the packs")
    for damage in done.damage:
        notify(f"{damage}; run `archiver verify`")
    return done


def _knows_deletions(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.execute(_KNOWS_DELETIONS).scalar_one())
