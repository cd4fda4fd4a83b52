"""A worker on a database that is older than the packs: it says so, and takes in what they hold before it takes jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.secrets import create_missing_keys, storage_keyring
from connectors.base import Batch
from tests.integration.conftest import valkey  # noqa: F401  (a fixture)
from tests.integration.store.conftest import World, new_world, set_up  # noqa: F401  (a fixture)
from tests.integration.store.filled import messages_of, read_all
from tests.integration.test_workers import Process


def test_a_worker_notices_that_its_database_was_rolled_back(
    engine: Engine,
    database_url: str,
    new_world: Callable[..., World],  # noqa: F811
    valkey: object,  # noqa: F811
    tmp_path: Path,
) -> None:
    settings = load_settings({"ARCHIVER_DATA": str(tmp_path / "data")}, Path("none"))
    create_missing_keys(settings)
    before = new_world(folder=tmp_path / "data" / "packs")
    before.keyring = storage_keyring(settings)
    before.open().store_batch(before.origin(), Batch(messages_of(*range(10))))
    before.close()
    set_up(engine)
    worker = Process("ingestion", database_url, valkey.url(), tmp_path / "data")  # type: ignore[attr-defined]
    try:
        worker.wait_for("the database is older than the packs")
        worker.wait_for("added 10 messages, 10 copies")
        worker.wait_for("worker_ready")
    finally:
        worker.process.kill()
        worker.process.communicate()
    after = World(engine, before.folder, keyring=before.keyring)
    after.open()
    assert read_all(after) == 10
    after.close()
