"""Files that were uploaded, imported: each under the name that its owner knows it by, in a folder of the import's own.

The folder stays until everything in it is archived, and a week at most: what could not be read can be tried again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.config import Settings
from archiver.errors import Conflict, NotFound, UsageError
from archiver.mail.attachments import clean_name
from archiver.models.states import Role, RunOutcome, UploadState
from archiver.secrets import Keyring
from archiver.services import imports, runs, source_rows, sources, uploads, users
from archiver.services.principal import Principal
from archiver.services.room import check_room
from archiver.services.source_rows import Source

_PREFIX = "import-"
_KEPT_SECONDS = 7 * 86_400
_BEGINNING_SECONDS = 3_600
"""The folder is there before its source is."""
_MOST_FILES = 200


def begin(
    engine: Engine,
    settings: Settings,
    keyring: Keyring,
    who: Principal,
    upload_ids: Sequence[UUID],
    mailbox: str,
    *,
    keep: bool = False,
) -> Source:
    """The source that takes them in, as `archiver import` does; it is under way. The uploads are used up, unless they are to be
    kept. Into one's own mailbox; as an administrator into any."""
    if not 0 < len(upload_ids) <= _MOST_FILES:
        raise UsageError(f"an import takes between 1 and {_MOST_FILES} files")
    mailbox = users.clean_email(mailbox)
    tidy(engine, settings)
    with engine.connect() as connection:
        found = [uploads.load(connection, who, upload_id) for upload_id in dict.fromkeys(upload_ids)]
        if who.role is not Role.ADMINISTRATOR and not users.owns_address(connection, who, mailbox):
            raise NotFound(f"there is no mailbox {mailbox!r} of yours")
        check_room(settings, connection, more_bytes=sum(upload.size_bytes for upload in found))
    for upload in found:
        if upload.state is not UploadState.COMPLETE:
            raise Conflict(f"{upload.name} has not arrived yet")
    place = uploads.folder(settings).absolute() / f"{_PREFIX}{found[0].id}"
    paths = [_linked(settings, place / str(number), upload) for number, upload in enumerate(found)]
    source, is_live = imports.begin(engine, keyring, paths, mailbox, {}, who)
    with engine.begin() as connection:
        if not is_live:
            sources.sync_now(connection, source, who)
        for upload in () if keep else found:
            uploads.remove(connection, settings, who, upload.id)
    return source


def tidy(engine: Engine, settings: Settings) -> None:
    """Folders of imports that are over."""
    with engine.connect() as connection:
        wanted = {path.parent.parent: source for source in source_rows.all_sources(connection) for path in _paths(source)}
        for place in uploads.folder(settings).absolute().glob(f"{_PREFIX}*"):
            if _is_over(connection, wanted.get(place), time.time() - place.stat().st_mtime):
                shutil.rmtree(place, ignore_errors=True)


def _is_over(connection: Connection, source: Source | None, age_seconds: float) -> bool:
    if source is None:
        return age_seconds > _BEGINNING_SECONDS
    if imports.is_live(connection, source.id):
        return False
    last = next(iter(runs.last_runs(connection, source.id, 1)), None)
    waits = connection.execute(text("SELECT 1 FROM outbox WHERE source_id = :id"), {"id": source.id}).first()
    return waits is None and last is not None and (last.outcome == RunOutcome.SUCCESS or age_seconds > _KEPT_SECONDS)


def _paths(source: Source) -> list[Path]:
    return [Path(path) for path in source.settings.get("paths", ())] if source.kind == imports.KIND else []


def _linked(settings: Settings, folder: Path, upload: uploads.Upload) -> Path:
    """The name is for people: folders of the archive are called after it. Nothing in it leads anywhere else."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / (clean_name(upload.name).lstrip(".") or "mail")
    if not path.exists():
        path.hardlink_to(uploads.path_of(settings, upload.id))
    return path
