"""`archiver restore` as a person types it: into a bucket, and from a backup whose dump is of no use."""

from __future__ import annotations

import os
from pathlib import Path

import boto3
import pytest
from sqlalchemy import Engine

from archiver.store.s3 import Bucket
from archiver.supervisor.postgres import EmbeddedPostgres
from connectors.base import Batch, RawMessage
from tests.acceptance.store.test_commands import Commands, data  # noqa: F401  (a fixture)
from tests.conftest import _create_database
from tests.integration.store.conftest import World
from tests.integration.store.test_s3 import ACCESS, SECRET, bucket  # noqa: F401  (a fixture)
from tests.support.store_world import mail


@pytest.mark.parametrize("bucket", ["moto"], indirect=True)
def test_restore_puts_the_packs_into_the_bucket(
    data: Path,  # noqa: F811
    bucket: Bucket,  # noqa: F811
    database_url: str,
    postgres: EmbeddedPostgres,
    tmp_path: Path,
) -> None:
    Commands(data, database_url).json("backup", str(tmp_path / "backup"))
    name = f"bucket_{os.getpid()}"
    _create_database(postgres, name, "template")
    elsewhere = Commands(tmp_path / "elsewhere", postgres.url(name))
    elsewhere.environment |= {
        "STORAGE_TYPE": "s3",
        "STORAGE_S3_ENDPOINT": str(bucket.endpoint),
        "STORAGE_S3_BUCKET": bucket.name,
        "STORAGE_S3_REGION": bucket.region,
        "STORAGE_S3_ACCESS_KEY_ID": ACCESS,
        "STORAGE_S3_SECRET_ACCESS_KEY": SECRET,
        "STORAGE_S3_FORCE_PATH_STYLE": "true",
    }
    done = elsewhere.json("restore", str(tmp_path / "backup"))
    assert (done["packs"], done["database"]) == (1, "restored")
    assert not (tmp_path / "elsewhere" / "packs").exists()
    assert elsewhere.json("verify", "--full")["messages"] == 30
    client = boto3.client(
        "s3", endpoint_url=bucket.endpoint, aws_access_key_id=ACCESS, aws_secret_access_key=SECRET, region_name=bucket.region
    )
    packs = client.list_objects_v2(Bucket=bucket.name)["Contents"]
    assert len(packs) == 2, "the pack, and the anchor of the audit log that says what was restored"
    client.close()


def test_a_backup_whose_dump_names_packs_that_it_lacks_is_rebuilt(
    data: Path,  # noqa: F811
    engine: Engine,
    database_url: str,
    postgres: EmbeddedPostgres,
    tmp_path: Path,
) -> None:
    world = World(engine, data / "packs", limit_bytes=1)
    for number in (100, 101):
        world.open().store_batch(world.origin(), Batch((RawMessage(f"k{number}", mail(number)),)))
    world.archive.close()
    archiver = Commands(data, database_url)
    assert archiver.json("backup", str(tmp_path / "backup"))["packs"] == 3
    sorted((tmp_path / "backup" / "packs").iterdir())[-1].unlink()
    name = f"lacking_{os.getpid()}"
    _create_database(postgres, name, "template")
    elsewhere = Commands(tmp_path / "elsewhere", postgres.url(name))
    done = elsewhere.json("restore", str(tmp_path / "backup"))
    assert (done["packs"], done["database"]) == (2, "rebuilt")
    assert "lacks 1 pack " in done["reason"]
    assert elsewhere.json("verify", "--full")["messages"] == 31
