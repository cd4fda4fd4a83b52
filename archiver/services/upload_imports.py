"""Files that were uploaded, imported: each under the name that its owner knows it by, in a folder of the import's own.

The folder stays until everything in it is archived, and a week at most: what could not be read can be tried again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.config import Settings
from archiver.errors import Conflict, UsageError
from archiver.mail.attachments import clean_name
from archiver.models.ids import uuid7
from archiver.models.states import RunOutcome, UploadState
from archiver.secrets import Keyring
from archiver.services import imports, runs, sources, uploads, users
from archiver.services.principal import Principal
from archiver.services.sources import Source

_PREFIX = "import-"
_KEPT_SECONDS = 7 * 86_400
_MOST_FILES = 200


def begin(
    engine: Engine, settings: Settings, keyring: Keyring, who: Principal, upload_ids: Sequence[UUID], mailbox: str
) -> Source:
    """The source that takes them in; it is under way. The uploads are used up."""
    if not 0 < len(upload_ids) <= _MOST_FILES:
        raise UsageError(f"an import takes between 1 and {_MOST_FILES} files")
    mailbox = users.clean_email(mailbox)
    tidy(engine, settings)
    with engine.connect() as connection:
        found = [uploads.load(connection, who, upload_id) for upload_id in dict.fromkeys(upload_ids)]
    for upload in found:
        if upload.state is not UploadState.COMPLETE:
            raise Conflict(f"{upload.name} has not arrived yet")
    place = uploads.folder(settings).absolute() / f"{_PREFIX}{uuid7()}"
    try:
        paths = [_linked(settings, place / str(number), upload) for number, upload in enumerate(found)]
        source, _ = imports.begin(engine, keyring, paths, mailbox, {}, who)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    with engine.begin() as connection:
        sources.sync_now(connection, source, who)
        for upload in found:
            uploads.remove(connection, settings, who, upload.id)
    return source


def tidy(engine: Engine, settings: Settings) -> None:
    """Folders of imports that are over."""
    with engine.connect() as connection:
        wanted = {path.parent.parent: source for source in sources.all_sources(connection) for path in _paths(source)}
        for place in uploads.folder(settings).absolute().glob(f"{_PREFIX}*"):
            source = wanted.get(place)
            if source is None or _is_over(connection, source, place):
                shutil.rmtree(place, ignore_errors=True)


def _is_over(connection: Connection, source: Source, place: Path) -> bool:
    if imports.is_live(connection, source.id):
        return False
    last = next(iter(runs.last_runs(connection, source.id, 1)), None)
    waits = connection.execute(text("SELECT 1 FROM outbox WHERE source_id = :id"), {"id": source.id}).first()
    is_old = time.time() - place.stat().st_mtime > _KEPT_SECONDS
    return waits is None and last is not None and (last.outcome == RunOutcome.SUCCESS or is_old)


def _paths(source: Source) -> list[Path]:
    return [Path(path) for path in source.settings.get("paths", ())] if source.kind == imports.KIND else []


def _linked(settings: Settings, folder: Path, upload: uploads.Upload) -> Path:
    """The name is for people: it becomes that of a folder. Nothing in it leads anywhere else."""
    folder.mkdir(mode=0o700, parents=True)
    path = folder / (clean_name(upload.name).lstrip(".") or "mail")
    os.link(uploads.path_of(settings, upload.id), path)
    return path
