"""The bucket, on real S3 servers: moto (conditions, Object Lock) and rclone (which checks signatures and keeps files)."""

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from pydantic import SecretStr
from sqlalchemy import text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.access.scope import EVERYTHING
from archiver.db.ids import message_uuid
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.maintenance.object_locks import extend_locks
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.retention import policies
from archiver.retention.labels import Labelling, LabelRequest
from archiver.retention.policies import NewPolicy
from archiver.store.archive import Archive
from archiver.store.cache import BlockCache
from archiver.store.dictionaries import Trainer
from archiver.store.errors import LostPack, PackLocked, StoreUnavailable
from archiver.store.keys import PackKeys
from archiver.store.open import DatabasePlaces
from archiver.store.s3 import Bucket, S3Packs
from archiver.sync.ingest.store_batch import Ingest
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import SECOND, World
from tests.support.ports import free_port
from tests.support.store_world import mail
from tests.support.tcp_proxy import proxy
from tests.support.waiting import DEADLINE_SECONDS, eventually

ACCESS, SECRET = "AKIAARCHIVE00001", "secretsecretsecret1234"


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    def listens() -> bool:
        assert process.poll() is None, "the server ended"
        with socket.socket() as client:
            client.settimeout(1)
            return client.connect_ex(("127.0.0.1", port)) == 0

    eventually(listens, what="a server")


@pytest.fixture(scope="module", params=["moto", "rclone"])
def bucket(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    port, folder = free_port(), tmp_path_factory.mktemp("bucket")
    programs = Path(sys.executable).parent
    if request.param == "moto":
        command = [str(programs / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    else:
        (folder / "mail").mkdir()
        address, key = f"127.0.0.1:{port}", f"{ACCESS},{SECRET}"
        command = [str(programs / "rclone"), "serve", "s3", "--addr", address, "--auth-key", key, str(folder)]
    environment = {**os.environ, "RCLONE_CONFIG": str(folder / "rclone.conf")}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        _wait(port, process)
        made = Bucket("mail", "us-east-1", ACCESS, SecretStr(SECRET), f"http://127.0.0.1:{port}", force_path_style=True)
        if request.param == "moto":
            client = _client(made)
            client.create_bucket(Bucket="mail")
            client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
            client.close()
        yield made
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)


def _client(bucket: Bucket) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=bucket.endpoint,
        region_name=bucket.region,
        aws_access_key_id=ACCESS,
        aws_secret_access_key=SECRET,
    )


def open_s3(world: World, bucket: Bucket, folder: Path, cache_bytes: int = 64 << 20) -> Ingest:
    keys, trainer, places = PackKeys(world.keyring), Trainer(), DatabasePlaces(world.engine)
    backend = S3Packs(bucket, keys, trainer, folder / "scratch", BlockCache(folder / "cache", cache_bytes))
    for pack_id in list(backend.packs()):  # the server is shared by the tests, the bucket is not
        if not world.rows("SELECT 1 FROM packs WHERE id = :i", i=pack_id) and not world.opened:
            with suppress(PackLocked):
                backend.remove(pack_id)
    world.archive = Archive(backend, keys, trainer, places)
    world.opened.append(world.archive)
    world.archive.use_newest_dictionary()
    return Ingest(world.engine, world.archive)


def test_each_batch_is_one_object_and_everything_comes_back(
    world: World, new_world: Callable[..., World], bucket: Bucket, tmp_path: Path
) -> None:
    ingest = open_s3(world, bucket, tmp_path / "a")
    attachment = os.urandom(300_000)
    messages = [mail(number, attachment=attachment if number % 100 == 0 else None) for number in range(700)]
    for start in range(0, 700, 100):
        portion = messages[start : start + 100]
        ingest.store_batch(world.origin(), Batch(tuple(RawMessage(f"{start}-{at}", data) for at, data in enumerate(portion))))
    ingest.store_batch(world.origin(SECOND), Batch((RawMessage("1", messages[0]),)))
    assert len(list(world.archive.backend.packs())) == 8
    assert world.value("SELECT count(*) FROM packs WHERE state = 'sealed'") == 8
    assert world.value("SELECT count(*) FROM objects WHERE kind = 'dictionary'") == 1
    assert not any((tmp_path / "a" / "scratch").iterdir())
    open_s3(world, bucket, tmp_path / "b")  # another machine, with nothing in its cache
    for message in messages[::7]:
        assert world.archive.read(hashlib.sha256(message).digest()) == message
    assert verify(world.engine, world.archive, full=True).problems == []
    expected = world.content()
    done = compact(world.engine, world.archive, tmp_path / "scratch", keep_retired=timedelta(0), rest_seconds=0)
    assert (done.packs_before, done.packs_after) == (8, 1)
    compact(world.engine, world.archive, tmp_path / "scratch", keep_retired=timedelta(0), rest_seconds=0)
    assert len(list(world.archive.backend.packs())) == 1
    assert world.content() == expected
    assert world.archive.read(hashlib.sha256(messages[300]).digest()) == messages[300]
    rebuilt = new_world(empty=True)
    rebuilt.opened.append(world.archive)
    open_s3(rebuilt, bucket, tmp_path / "c")
    assert rebuild(rebuilt.engine, rebuilt.archive).damage == []
    assert rebuilt.content() == expected


def test_a_bucket_that_does_not_answer_fails_the_batch_as_a_whole(world: World, tmp_path: Path) -> None:
    nobody = Bucket("mail", "us-east-1", ACCESS, SecretStr(SECRET), f"http://127.0.0.1:{free_port()}", force_path_style=True)
    keys, trainer = PackKeys(world.keyring), Trainer()
    backend = S3Packs(nobody, keys, trainer, tmp_path / "scratch", BlockCache(tmp_path / "cache", 1 << 20), retry_seconds=1)
    ingest = Ingest(world.engine, Archive(backend, keys, trainer, DatabasePlaces(world.engine)))
    with pytest.raises(StoreUnavailable, match="can't store"):
        ingest.store_batch(world.origin(), Batch((RawMessage("1", mail(1)),)))
    assert world.rows("SELECT 1 FROM messages") == []
    assert not any((tmp_path / "scratch").iterdir())


def test_a_lost_object_is_named(world: World, bucket: Bucket, tmp_path: Path) -> None:
    ingest = open_s3(world, bucket, tmp_path)
    ingest.store_batch(world.origin(), Batch((RawMessage("1", mail(1)),)))
    (pack_id,) = world.archive.backend.packs()
    world.archive.backend.remove(pack_id)
    with pytest.raises(LostPack, match=str(pack_id)):
        world.archive.read(hashlib.sha256(mail(1)).digest())


def test_wrong_credentials_are_an_error_not_an_empty_bucket(bucket: Bucket, world: World, tmp_path: Path) -> None:
    if "rclone" not in str(bucket) and _checks_no_signature(bucket):
        pytest.skip("this server checks no signatures")
    wrong = Bucket("mail", "us-east-1", ACCESS, SecretStr("wrong" * 8), bucket.endpoint, force_path_style=True)
    with pytest.raises(StoreUnavailable):
        open_s3(world, wrong, tmp_path)


def _checks_no_signature(bucket: Bucket) -> bool:
    wrong = Bucket("mail", "us-east-1", ACCESS, SecretStr("wrong" * 8), bucket.endpoint, force_path_style=True)
    import obstore

    try:
        list(obstore.list(wrong.store()))
    except Exception:
        return False
    return True


def test_object_lock_keeps_the_packs(world: World, bucket: Bucket, tmp_path: Path) -> None:
    client = _client(bucket)
    if "locked" not in [item["Name"] for item in client.list_buckets()["Buckets"]]:
        client.close()
        pytest.skip("this server has no Object Lock")
    locked = Bucket("locked", "us-east-1", ACCESS, SecretStr(SECRET), bucket.endpoint, True, object_lock_days=30)
    open_s3(world, locked, tmp_path).store_batch(world.origin(), Batch((RawMessage("1", mail(1)),)))
    (listed,) = client.list_object_versions(Bucket="locked")["Versions"]
    kept = client.head_object(Bucket="locked", Key=listed["Key"])
    assert kept["ObjectLockMode"] == "COMPLIANCE"
    with pytest.raises(ClientError, match="AccessDenied"):
        client.delete_object(Bucket="locked", Key=listed["Key"], VersionId=listed["VersionId"])
    client.close()


def test_an_object_is_locked_with_its_upload_not_after_it(world: World, bucket: Bucket, tmp_path: Path) -> None:
    """A process that dies right after the upload leaves nothing that could be removed."""
    client = _client(bucket)
    if "locked" not in [item["Name"] for item in client.list_buckets()["Buckets"]]:
        client.close()
        pytest.skip("this server has no Object Lock")
    with proxy(int(str(bucket.endpoint).rsplit(":", 1)[1])) as line:
        endpoint = f"http://127.0.0.1:{line.port}"
        locked = Bucket("locked", "us-east-1", ACCESS, SecretStr(SECRET), endpoint, True, object_lock_days=30)
        open_s3(world, locked, tmp_path).store_batch(world.origin(), Batch((RawMessage("1", mail(1)),)))
    client.close()
    uploads = [said.split(b"\r\n\r\n", 1)[0] for said in line.sent.split(b"PUT /locked/packs/")[1:]]
    assert len(uploads) == 1
    assert b"x-amz-object-lock-mode: compliance" in uploads[0].lower()


def test_the_cache_keeps_to_its_limit(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 3 << 20)
    data, fetched = os.urandom(8 << 20), []

    def fetch(offset: int, length: int) -> bytes:
        fetched.append((offset, length))
        return data[offset : offset + length]

    for offset, length in ((0, 10), (5, 100), ((1 << 20) - 5, 10), (7 << 20, 1 << 20), ((8 << 20) - 3, 100)):
        assert cache.read("p", len(data), offset, length, fetch) == data[offset : offset + length]
    assert len(fetched) == 3
    for number in range(8):
        cache.read("p", len(data), number << 20, 50, fetch)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 << 20
    again = BlockCache(tmp_path, 3 << 20)
    before = len(fetched)
    assert again.read("p", len(data), 7 << 20, 50, fetch) == data[7 << 20 : (7 << 20) + 50]
    assert len(fetched) == before
    again.forget("p")
    assert list(tmp_path.iterdir()) == []


def test_locks_follow_the_policies_and_are_never_shortened(world: World, bucket: Bucket, tmp_path: Path) -> None:
    client = _client(bucket)
    if "locked" not in [item["Name"] for item in client.list_buckets()["Buckets"]]:
        pytest.skip("this server has no Object Lock")
    client.create_bucket(Bucket="followed", ObjectLockEnabledForBucket=True)
    followed = Bucket("followed", "us-east-1", ACCESS, SecretStr(SECRET), bucket.endpoint, True, object_lock_days=30)
    ingest = open_s3(world, followed, tmp_path)
    received_at = datetime.now(UTC) - timedelta(days=100)
    first, second = (RawMessage(f"{number}", mail(number), received_at=received_at) for number in (1, 2))
    ingest.store_batch(world.origin(), Batch((first,)))
    ingest.store_batch(world.origin(SECOND), Batch((second,)))
    backend = world.archive.backend

    def ends() -> list[int]:
        """In days from now, of each pack with mail."""
        ids = [row[0] for row in world.rows("SELECT DISTINCT pack_id FROM objects WHERE kind = 'message' ORDER BY 1")]
        found = [backend.locked_until(one) for one in ids]
        return [round((one - datetime.now(UTC)).total_seconds() / 86400) for one in found if one is not None]

    assert ends() == [30, 30]
    assert extend_locks(world.engine, world.archive) == 0
    new = NewPolicy("Keep", "law", "mailbox:alice@example.org", keep_for="400d")
    version = policies.propose(world.engine, LOCAL_OPERATOR, new)
    assert extend_locks(world.engine, world.archive) == 1
    assert ends() == [300, 30]
    assert extend_locks(world.engine, world.archive) == 0
    policies.retire(world.engine, LOCAL_OPERATOR, version.policy_id, "the law has changed")
    message_id = message_uuid(hashlib.sha256(second.data or b"").digest())
    until = datetime.now(UTC) + timedelta(days=500)
    labelling = Labelling(world.engine, world.archive, LOCAL_OPERATOR, EVERYTHING)
    labelling.put(LabelRequest("keep-until", [message_id], until))
    assert extend_locks(world.engine, world.archive) == 1
    assert ends() == [300, 500]
    assert verify(world.engine, world.archive).problems == []
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE packs SET locked_until = locked_until + interval '1 day' WHERE locked_until > now()"))
    found = [one.what for one in verify(world.engine, world.archive).problems]
    assert found
    assert all("the bucket locks this pack only until" in one for one in found)


def test_a_locked_pack_that_was_replaced_stays_until_its_lock_ends(world: World, bucket: Bucket, tmp_path: Path) -> None:
    client = _client(bucket)
    if "locked" not in [item["Name"] for item in client.list_buckets()["Buckets"]]:
        pytest.skip("this server has no Object Lock")
    client.create_bucket(Bucket="replaced", ObjectLockEnabledForBucket=True)
    locked = Bucket("replaced", "us-east-1", ACCESS, SecretStr(SECRET), bucket.endpoint, True, object_lock_days=30)
    ingest = open_s3(world, locked, tmp_path)
    for number in (1, 2):
        ingest.store_batch(world.origin(), Batch((RawMessage(f"{number}", mail(number)),)))
    for _ in range(2):
        compact(world.engine, world.archive, tmp_path / "scratch", keep_retired=timedelta(0), rest_seconds=0)
    assert world.value("SELECT count(*) FROM packs WHERE state = 'retired' AND removed_at IS NULL") == 2
    assert len(list(world.archive.backend.packs())) == 3
    with pytest.raises(PackLocked):
        world.archive.backend.remove(next(world.archive.backend.packs()))
    assert verify(world.engine, world.archive, full=True).problems == []
