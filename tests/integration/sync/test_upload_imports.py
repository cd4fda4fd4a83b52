"""Uploads that are imported: kept until they are in, whatever happens, or until somebody discards them."""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine

from archiver.errors import Conflict
from archiver.sources import upload_imports, uploads
from archiver.sources.imports import Import
from tests.integration.sync.import_world import ANN, ImportWorld
from tests.support import mailfiles


@pytest.fixture
def world(tmp_path: Path, engine: Engine, database_url: str) -> ImportWorld:
    return ImportWorld(tmp_path, engine, database_url)


def test_an_upload_stays_after_a_failure_until_somebody_discards_it(world: ImportWorld) -> None:
    for data, outcome in ((os.urandom(3000), "incomplete"), (mailfiles.mbox([mailfiles.message(1)]), "success")):
        item = world.begin_upload(world.uploaded("mail.mbox", data))
        world.drain()
        assert world.load(item).outcome == outcome
    (failed,) = world.listed(only_kept=True)
    assert failed.outcome == "incomplete"
    assert len(world.kept_files()) == 2, "the upload, and its name in the import's folder"
    for path in uploads.folder(world.settings).rglob("*"):
        os.utime(path, (0, 0))  # years later
    upload_imports.tidy(world.engine, world.settings)
    uploads.tidy(world.engine, world.settings)
    assert len(world.kept_files()) == 2, "time alone removes nothing"
    world.discard(failed)
    assert world.kept_files() == []
    assert world.rows("SELECT 1 FROM uploads") == []
    with pytest.raises(Conflict, match="has no stored files"):
        world.discard(failed)


def test_an_upload_whose_import_failed_is_imported_again(world: ImportWorld) -> None:
    upload = world.uploaded("mail.mbox", mailfiles.mbox([mailfiles.message(1)]))
    item = world.begin_upload(upload)
    hidden = uploads.folder(world.settings) / "hidden"
    shutil.move(uploads.folder(world.settings) / f"import-{item.id}", hidden)
    world.drain()
    assert world.load(item).outcome == "failed"
    again = world.begin_upload(upload)
    assert again.id != item.id
    with pytest.raises(Conflict, match="another import is already reading these files"):
        world.begin_upload(upload, mailbox="bob@example.org")
    with pytest.raises(Conflict, match="is removed when the import succeeds"):
        upload_imports.remove(world.engine, world.settings, world.admin, upload.id)
    world.drain()
    shutil.rmtree(hidden)
    assert world.load(again).outcome == "success"
    assert (world.copies, world.kept_files()) == (1, [])
    assert [one.keeps_upload for one in world.listed()] == [False, False]


def test_an_upload_that_two_people_begin_to_import_is_read_once(world: ImportWorld) -> None:
    upload = world.uploaded("mail.mbox", mailfiles.mbox([mailfiles.message(1)]))
    barrier = threading.Barrier(2)

    def begin(mailbox: str) -> object:
        barrier.wait()
        try:
            return world.begin_upload(upload, mailbox=mailbox)
        except Conflict as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(begin, (ANN, "bob@example.org")))
    assert sum(isinstance(one, Import) for one in said) == 1, said
    world.drain()
    assert (world.copies, world.kept_files()) == (1, [])


def test_a_folder_that_is_the_only_copy_of_something_is_left_alone(world: ImportWorld) -> None:
    """As an earlier release left it, whose import was dropped."""
    lost = uploads.folder(world.settings) / "import-01890000-0000-7000-8000-000000000000" / "0" / "mail.mbox"
    mailfiles.put(lost, b"x")
    begun = uploads.folder(world.settings) / "import-01890000-0000-7000-8000-000000000001" / "0" / "mail.mbox"
    begun.parent.mkdir(parents=True)
    begun.hardlink_to(lost)
    other = mailfiles.put(uploads.folder(world.settings) / "import-01890000-0000-7000-8000-000000000002" / "0" / "a", b"y")
    for place in (lost, begun, other):
        os.utime(place.parents[1], (0, 0))
    upload_imports.tidy(world.engine, world.settings)
    assert other.exists()
    assert lost.exists() or begun.exists()
