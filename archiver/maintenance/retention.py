"""One pass of retention: holds are brought up to date, policies are carried out, and the receipt is signed and stored."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import structlog
from sqlalchemy import Engine

from archiver.config import Settings
from archiver.errors import NotReady
from archiver.evidence.signing import load_key
from archiver.maintenance.erasure.eraser import Eraser
from archiver.maintenance.object_locks import extend_locks
from archiver.maintenance.snapshot import ensure_signing_key, save_config
from archiver.retention import erasures, holds
from archiver.retention.runs import SYSTEM, Executor, RetentionRun, Sign
from archiver.search.service import open_search
from archiver.secrets import Keyring
from archiver.store.archive import Archive

_log = structlog.get_logger(__name__)


def apply(
    settings: Settings,
    engine: Engine,
    archive: Archive,
    keyring: Keyring,
    stopping: Callable[[], bool] = lambda: False,
) -> RetentionRun | None:
    """None if there was nothing to do, or another process does it."""
    try:
        holds.refresh_all(engine, archive, open_search(settings, engine))
    except NotReady as error:  # only lists and counts depend on it
        _log.warning("holds_not_refreshed", reason=str(error))
    run = executor(engine, archive, keyring).run(settings.retention_max_deletions, stopping)
    extend_locks(engine, archive)
    if run is not None and run.finished_at is not None:
        save_config(engine, archive)  # with the receipt
    return run


def erase(
    settings: Settings,
    engine: Engine,
    archive: Archive,
    keyring: Keyring,
    stopping: Callable[[], bool] = lambda: False,
) -> list[UUID]:
    """Goes on with the erasures that were requested. Returns those that it finished."""
    with engine.connect() as connection:
        if all(one.state in ("review", "finished", "rejected") for one in erasures.list_erasures(connection)):
            return []
    finished = Eraser(settings, engine, archive, signer(engine, archive, keyring), stopping).advance()
    save_config(engine, archive)  # with the receipts
    return finished


def executor(engine: Engine, archive: Archive, keyring: Keyring) -> Executor:
    return Executor(engine, archive, signer(engine, archive, keyring), principal=SYSTEM)


def signer(engine: Engine, archive: Archive, keyring: Keyring) -> Sign:
    ensure_signing_key(engine, archive, keyring)
    with engine.connect() as connection:
        key = load_key(connection, keyring)
    assert key is not None

    def sign(subject: str, digest: bytes) -> tuple[str, bytes]:
        return key.id, key.sign(subject, digest)

    return sign
