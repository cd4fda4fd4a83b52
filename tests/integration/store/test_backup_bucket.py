"""Backups to and from a bucket, on real S3 servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from archiver.config import Settings
from archiver.errors import ConfigError
from archiver.maintenance.backups.backup import backup
from archiver.maintenance.backups.manifest import MANIFEST, kept_backups
from archiver.maintenance.backups.restore import Backup
from archiver.maintenance.backups.target import BucketTarget, FolderTarget, open_target
from archiver.store.errors import StoreUnavailable
from archiver.store.s3 import Bucket
from connectors.base import Batch
from tests.integration.store.conftest import World
from tests.integration.store.filled import fill, messages_of, read_all
from tests.integration.store.test_backup import bring_back_from, compact_all, url_of
from tests.integration.store.test_s3 import ACCESS, SECRET, bucket  # noqa: F401  (a fixture)


def settings_for(bucket: Bucket, data: Path) -> Settings:  # noqa: F811
    return Settings.model_validate(
        {
            "archiver_data": data,
            "backup_s3_endpoint": bucket.endpoint,
            "backup_s3_access_key_id": ACCESS,
            "backup_s3_secret_access_key": SECRET,
            "backup_s3_force_path_style": True,
        }
    )


def test_a_bucket_holds_what_a_folder_does(
    world: World,
    new_world: Callable[..., World],
    bucket: Bucket,  # noqa: F811
    tmp_path: Path,
) -> None:
    world.limit_bytes = 40_000
    fill(world)
    target = open_target(settings_for(bucket, tmp_path / "data"), f"s3://{bucket.name}/copies/mail")
    first = backup(world.engine, world.archive, url_of(world), target, keep=2)
    assert first.copied == first.packs > 1
    world.open().store_batch(world.origin(), Batch(messages_of(200, 201)))
    compact_all(world)
    second = backup(world.engine, world.archive, url_of(world), target, keep=2)
    third = backup(world.engine, world.archive, url_of(world), target, keep=2)
    assert third.copied <= 1, "sealed packs are copied once"
    assert [one.name for one in kept_backups(target)] == [third.name, second.name]
    live = {row.name for row in world.rows("SELECT name FROM packs WHERE state <> 'retired'")}
    assert set(target.sizes("packs")) == live
    scratch = tmp_path / "scratch"
    restored = bring_back_from(Backup.open(target, scratch), new_world(empty=True))
    assert restored.content() == world.content()
    assert read_all(restored) == len(world.content()["messages"])
    assert list(scratch.iterdir()) == []
    backup(restored.engine, restored.archive, url_of(restored), FolderTarget(tmp_path / "folder"))
    copies = {path.name: path.read_bytes() for path in (tmp_path / "folder" / "packs").iterdir()}
    assert copies == {name: b"".join(target.read(f"packs/{name}")) for name in copies}


def test_an_upload_that_fails_leaves_the_backup_before(world: World, bucket: Bucket, tmp_path: Path) -> None:  # noqa: F811
    fill(world)
    target = open_target(settings_for(bucket, tmp_path / "data"), f"s3://{bucket.name}/broken")
    backup(world.engine, world.archive, url_of(world), target)
    before = b"".join(target.read(MANIFEST))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(world.engine, world.archive, url_of(world), target, stop)
    assert b"".join(target.read(MANIFEST)) == before
    assert len([name for name in target.sizes() if name.endswith(".dump")]) == 1
    wrong = settings_for(bucket, tmp_path).model_copy(update={"backup_s3_endpoint": None})
    with pytest.raises(ConfigError, match="BACKUP_S3_ACCESS_KEY_ID"):
        open_target(wrong.model_copy(update={"backup_s3_access_key_id": None}), "s3://mail/x")
    lost = Bucket("missing", bucket.region, ACCESS, bucket.secret_access_key, bucket.endpoint, force_path_style=True)
    with pytest.raises((StoreUnavailable, FileNotFoundError), match="missing"):
        BucketTarget(lost, "x").write("a", [b"a"])
