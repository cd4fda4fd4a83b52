"""Verify finds whatever is broken in the archive, and nothing else."""

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from archiver.db.tables import message_uuid
from archiver.errors import WrongKey
from archiver.maintenance.checks.verify import verify
from archiver.secrets import Keyring
from archiver.store.errors import StoreUnavailable
from archiver.store.keys import PackKeys
from archiver.store.pack import SEAL_BYTES, Seal
from tests.integration.store.conftest import World
from tests.integration.store.filled import fill
from tests.support.waiting import eventually


@pytest.mark.parametrize("full", [False, True])
def test_a_whole_archive_is_healthy(world: World, full: bool) -> None:
    world.limit_bytes = 60_000
    fill(world)
    seen: list[tuple[int, int]] = []
    report = verify(world.engine, world.archive, full=full, progress=lambda done, total: seen.append((done, total)))
    assert report.problems == []
    assert report.packs == len(list(world.folder.iterdir())) > 1
    assert seen[-1][0] == seen[-1][1]
    if full:
        live = world.value("SELECT sum(size_bytes) FROM messages")
        assert report.raw_bytes >= live
    again = verify(world.engine, world.archive, full=full, since=datetime(2020, 1, 1, tzinfo=UTC))
    assert (again.packs, again.packs_skipped) == (0, report.packs)


@pytest.mark.parametrize("full", [False, True])
def test_flipped_bits_in_every_region_of_a_sealed_pack_are_found(world: World, full: bool) -> None:
    world.limit_bytes = 90_000
    fill(world)
    world.archive.close()
    path = next(path for path in sorted(world.folder.iterdir()) if not path.stat().st_mode & 0o200)
    path.chmod(0o600)
    whole = path.read_bytes()
    positions = {row.position: row for row in world.rows("SELECT * FROM objects WHERE pack_id = :p", p=UUID(path.stem))}
    places = [3, 9, 20, 40, 78, *range(100, len(whole), len(whole) // 40), len(whole) - 50, len(whole) - 20, len(whole) - 2]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        world.open()
        try:
            report = verify(world.engine, world.archive, full=full)
            assert not report.is_healthy, place
            hit = [row for at, row in positions.items() if at <= place < at + row.stored_bytes and row.kind == "message"]
            told = {message_id for problem in report.problems for message_id in problem.messages}
            live = {row.id for row in world.rows("SELECT id FROM messages")}
            assert {message_uuid(bytes(row.sha256)) for row in hit} & live <= told
        except WrongKey:
            assert place < 80  # the key's fingerprint in the header of the pack
        world.archive.close()


@pytest.mark.parametrize("full", [False, True])
def test_several_processes_find_what_one_finds(world: World, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With segments of a few frames, whole and damaged, also where one segment ends and the next begins."""
    monkeypatch.setattr("archiver.maintenance.checks.verify_segment.SEGMENT_BYTES", 3_000)
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    path.chmod(0o600)
    whole = path.read_bytes()
    frames = [row.position for row in world.rows("SELECT position FROM objects ORDER BY position")]
    damaged = [[], [frames[3]], [frames[4] + 100], frames[5:40:5], [frames[-1] + 10]]
    for places in damaged:
        content = bytearray(whole)
        for place in places:
            content[place] ^= 0x10
        path.write_bytes(content)
        world.open()
        one, several = (verify(world.engine, world.archive, full=full, processes=processes) for processes in (1, 3))
        assert one == several
        assert len(one.problems) >= len(places)
        world.archive.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process verifies")
@pytest.mark.parametrize(("segment_bytes", "verified"), [(1, 0), (4 << 20, 1)])
def test_a_verification_that_loses_a_process_has_verified_only_what_was_read(
    world: World, segment_bytes: int, verified: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two packs: killed when one of many segments of the first was read, and when all of it was."""
    monkeypatch.setattr("archiver.maintenance.checks.verify_segment.SEGMENT_BYTES", segment_bytes)
    world.limit_bytes = 40_000
    fill(world)
    whole, started = verify(world.engine, world.archive, full=True, processes=1), world.value("SELECT now()")

    def kill_one(done: int, total: int) -> None:
        """And waits until that was noticed: the others are ended, too."""
        children = multiprocessing.active_children()
        if children:
            children[0].kill()
        eventually(lambda: not any(child.is_alive() for child in children), what="the end of the others", pause=0.01)

    with pytest.raises(StoreUnavailable, match=r"a process that read the packs was killed: run the command again"):
        verify(world.engine, world.archive, full=True, progress=kill_one, processes=2)
    assert world.value("SELECT count(*) FROM packs WHERE verified_at > :started", started=started) == verified
    rest = verify(world.engine, world.archive, full=True, since=started, processes=2)
    assert (rest.packs, rest.packs_skipped, rest.problems) == (2 - verified, verified, [])
    assert (rest.frames == whole.frames) is (verified == 0)


def test_lost_packs_dictionaries_and_objects_are_named(world: World) -> None:
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    moved = path.rename(path.with_suffix(".away"))
    world.open()
    report = verify(world.engine, world.archive)
    assert report.problems[0].what == "the pack is missing"
    assert len(report.problems[0].messages) == world.value("SELECT count(*) FROM messages")
    moved.rename(path)
    os.truncate(path, path.stat().st_size - 3000)
    report = verify(world.engine, world.archive)
    assert any("too short" in problem.what for problem in report.problems)
    with world.engine.begin() as connection:
        connection.execute(text("DELETE FROM objects WHERE sha256 = (SELECT sha256 FROM messages LIMIT 1)"))
    report = verify(world.engine, world.archive)
    assert any("1 message in no pack" in problem.what for problem in report.problems)


def test_the_tail_of_an_unfinished_batch_is_no_damage(world: World) -> None:
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    with path.open("ab") as file:
        file.write(b"\xf6AF\x1e half a frame")
    world.open()
    report = verify(world.engine, world.archive, full=True)
    assert report.is_healthy
    assert any("unfinished batch" in note for note in report.notes)


def resealed(path: Path, seal: Callable[[Seal, bytes], Seal]) -> Seal:
    whole = path.read_bytes()
    old = Seal.decode(whole[-SEAL_BYTES:])
    assert old is not None
    new = seal(old, hashlib.sha256(whole[:-SEAL_BYTES]).digest())
    path.chmod(0o600)
    path.write_bytes(whole[:-SEAL_BYTES] + new.encode())
    return new


def test_a_pack_that_an_older_version_sealed_is_valid(world: World) -> None:
    world.limit_bytes = 40_000
    fill(world)
    name = world.value("SELECT name FROM packs WHERE state = 'sealed' ORDER BY id LIMIT 1")
    plain = resealed(world.folder / name, lambda old, digest: Seal(old.index_offset, old.frames, digest, is_keyed=False))
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE packs SET sha256 = :digest WHERE name = :name"), {"digest": plain.digest, "name": name})
    assert verify(world.engine, world.archive, full=True).problems == []
    path = world.folder / name
    path.write_bytes(path.read_bytes()[:-70] + b"x" + path.read_bytes()[-69:])
    assert not verify(world.engine, world.archive).is_healthy


@pytest.mark.parametrize("keyed", [False, True])
def test_a_pack_that_was_sealed_again_without_the_key_is_found(world: World, keyed: bool) -> None:
    world.limit_bytes = 40_000
    fill(world)
    path = world.folder / world.value("SELECT name FROM packs WHERE state = 'sealed' ORDER BY id LIMIT 1")
    stranger = PackKeys(Keyring({"test": b"x" * 32})).active
    resealed(
        path,
        lambda old, digest: (
            Seal.keyed(stranger, old.index_offset, old.frames, digest)
            if keyed
            else Seal(old.index_offset, old.frames, digest, is_keyed=False)
        ),
    )
    report = verify(world.engine, world.archive)
    assert [problem.what for problem in report.problems] == ["the digest of the whole pack is wrong"]


def test_a_lost_key_is_one_clear_error(world: World) -> None:
    fill(world)
    world.archive.close()
    world.keyring = Keyring({"other": b"o" * 32})
    world.open()
    with pytest.raises(WrongKey, match="'test'"):
        verify(world.engine, world.archive)
