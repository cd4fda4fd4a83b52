"""Damage in a pack that is still written to: nothing is cut, nothing behind it is thrown away."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.maintenance.recovery.catch_up import catch_up
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.store.errors import StoreUnavailable
from archiver.store.files import OsFiles
from archiver.store.frames import HEADER_BYTES, FrameKind
from archiver.store.pack import FrameHeader, walk
from connectors.base import Batch
from tests.integration.store.conftest import World
from tests.integration.store.filled import NOW, fill, messages_of, read_all
from tests.support.store_world import PackWorld, mail


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.chmod(0o600)
    path.write_bytes(data)


def frames(world: World, path: Path) -> list[FrameHeader]:
    pack = world.archive.backend.open(UUID(path.stem))
    return [item for item in walk(pack.read_at, pack.size, pack.name) if isinstance(item, FrameHeader)]


@pytest.mark.parametrize("place", ["header", "payload"])
def test_one_flipped_bit_costs_one_message_after_a_rebuild_and_the_next_batch(
    world: World, new_world: Callable[..., World], place: str
) -> None:
    fill(world)
    (path,) = world.folder.iterdir()
    hit = [found for found in frames(world, path) if found.header.kind == FrameKind.MESSAGE][5]
    whole = world.value("SELECT count(*) FROM messages")
    world.archive.close()
    flip(path, hit.offset + (20 if place == "header" else HEADER_BYTES + 10))
    size = path.stat().st_size
    rebuilt = new_world(empty=True, folder=world.folder)
    ingest = rebuilt.open()
    result = rebuild(rebuilt.engine, rebuilt.archive)
    assert result.messages >= whole - 1
    assert [row.state for row in rebuilt.rows("SELECT state FROM packs")] == ["left"]
    ingest.store_batch(rebuilt.origin(), Batch(messages_of(300)))
    assert path.stat().st_size == size
    assert read_all(rebuilt) >= whole
    assert len(list(world.folder.iterdir())) == 2


def test_a_torn_end_is_no_damage_after_a_rebuild(world: World, new_world: Callable[..., World]) -> None:
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    end = path.stat().st_size
    last = frames(world, path)[-1]
    with path.open("ab") as file:
        file.write(path.read_bytes()[last.offset : last.end - 10])
    rebuilt = new_world(empty=True, folder=world.folder)
    ingest = rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    assert [(row.state, row.size_bytes) for row in rebuilt.rows("SELECT * FROM packs")] == [("open", end)]
    ingest.store_batch(rebuilt.origin(), Batch(messages_of(300)))
    assert [path] == list(world.folder.iterdir())
    assert read_all(rebuilt) == world.value("SELECT count(*) FROM messages") + 1


def test_the_writer_cuts_nothing_that_objects_know(world: World) -> None:
    """Also if the row of the pack says that it ends before."""
    world.open().store_batch(world.origin(), Batch(messages_of(*range(10))))
    world.archive.close()
    (path,) = world.folder.iterdir()
    third = [found for found in frames(world, path) if found.header.kind == FrameKind.MESSAGE][3]
    flip(path, third.offset + HEADER_BYTES + 10)
    size = path.stat().st_size
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE packs SET size_bytes = :end"), {"end": third.offset})
    world.open().store_batch(world.origin(), Batch(messages_of(20)))
    assert path.stat().st_size >= size
    for number in range(10):
        sha256 = hashlib.sha256(messages_of(number)[0].data or b"").digest()
        place = world.archive.objects.find(sha256, FrameKind.MESSAGE)
        assert place is not None
        if place.offset != third.offset:
            assert world.archive.read(sha256) == messages_of(number)[0].data


def test_a_pack_that_cannot_be_sealed_for_damage_is_left_and_stops_no_batch(world: World) -> None:
    world.limit_bytes = 30_000
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2, 3)))
    (path,) = world.folder.iterdir()
    flip(path, [found for found in frames(world, path) if found.header.kind == FrameKind.MESSAGE][1].offset + 20)
    for number in range(100, 200, 5):
        ingest.store_batch(world.origin(), Batch(messages_of(number, number + 1)))
    states = {row.id: row.state for row in world.rows("SELECT id, state FROM packs")}
    assert states.pop(UUID(path.stem)) == "left"
    assert set(states.values()) <= {"sealed", "open"}
    world.archive.close()
    assert world.open().store_batch(world.origin(), Batch(messages_of(900))).archived == 1


def test_a_pack_that_the_database_does_not_know_is_cut_only_where_a_frame_is_unfinished(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.store(mail(2))
    world.archive.close()
    world.places.ends.clear()
    (path,) = tmp_path.glob("*.pack")
    flip(path, path.stat().st_size - 10)
    size = path.stat().st_size
    world.open()
    world.store(mail(3))
    assert path.stat().st_size == size
    assert len(list(tmp_path.glob("*.pack"))) == 2


class CompactsBetween(OsFiles):
    """Compaction replaces the pack after the writer has chosen it and before it has the lock."""

    def __init__(self, compact_now: Callable[[], object]) -> None:
        self.compact_now: Callable[[], object] | None = compact_now

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        if self.compact_now and not flags & os.O_CREAT:
            run, self.compact_now = self.compact_now, None
            run()
        return descriptor


def test_a_writer_does_not_adopt_a_pack_that_compaction_retires_meanwhile(
    world: World, new_world: Callable[..., World]
) -> None:
    fill(world)
    world.archive.close()
    compacting = World(world.engine, world.folder)
    compacting.open()

    def compact_now() -> None:
        done = compact(
            world.engine, compacting.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0
        )
        assert done.packs_before == 1

    ingest = world.open(CompactsBetween(compact_now))
    for number in (301, 302):  # without a part that the batch would hold against compaction
        assert ingest.store_batch(world.origin(), Batch(messages_of(number))).archived == 1
    compacting.archive.close()


def test_a_writer_whose_batch_was_refused_is_not_used_again(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1)))
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE packs SET state = 'retired', retired_at = now()"))
    with pytest.raises(StoreUnavailable, match="replaced by a compaction"):
        ingest.store_batch(world.origin(), Batch(messages_of(2)))
    assert ingest.store_batch(world.origin(), Batch(messages_of(2))).archived == 1


def test_a_database_that_does_not_answer_lets_the_lock_of_the_pack_go(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.archive.close()
    known_end = world.places.known_end

    def fail(pack_id: UUID) -> int | None:
        raise LookupError("no database")

    world.places.known_end = fail  # type: ignore[method-assign]
    world.open()
    with pytest.raises(LookupError):
        world.store(mail(2))
    world.places.known_end = known_end  # type: ignore[method-assign]
    other = PackWorld(tmp_path, world.keyring)
    other.places = world.places
    other.open()
    other.store(mail(3))
    assert len(list(tmp_path.glob("*.pack"))) == 1


def test_a_system_without_fadvise_goes_on_with_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.archive.close()
    monkeypatch.delattr(os, "posix_fadvise")  # macOS
    world.open()
    world.store(mail(2))
    assert len(list(tmp_path.glob("*.pack"))) == 1


def test_compaction_keeps_what_stands_behind_damage_in_an_unsealed_pack(world: World, new_world: Callable[..., World]) -> None:
    """And does the other packs all the same."""
    world.limit_bytes = 40_000
    fill(world)
    world.archive.close()
    world.open().store_batch(world.origin(), Batch(messages_of(*range(100, 120))))
    world.archive.close()
    path = world.folder / world.value("SELECT name FROM packs WHERE state = 'open' ORDER BY id DESC LIMIT 1")
    world.open()
    hit = [found for found in frames(world, path) if found.header.kind == FrameKind.MESSAGE][1]
    flip(path, hit.offset + 20)
    before = path.read_bytes()
    for _ in range(2):
        done = compact(world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0)
    assert path.read_bytes() == before
    assert world.value("SELECT state FROM packs WHERE name = :name", name=path.name) == "left"
    assert world.value("SELECT count(*) FROM packs WHERE state <> 'retired'") == 2
    assert done.damage == ()  # it is no candidate any more
    world.archive.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    result = rebuild(rebuilt.engine, rebuilt.archive)
    assert result.messages >= world.value("SELECT count(*) FROM messages") - 1


def test_a_damaged_sealed_pack_does_not_keep_others_from_being_compacted(world: World) -> None:
    world.limit_bytes = 40_000
    fill(world)
    path = world.folder / world.value("SELECT name FROM packs WHERE state = 'sealed' ORDER BY id LIMIT 1")
    flip(path, [found for found in frames(world, path) if found.header.kind == FrameKind.MESSAGE][1].offset + HEADER_BYTES + 5)
    done = compact(world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0)
    assert [path.name in damage for damage in done.damage] == [True]
    assert (done.packs_after, world.value("SELECT count(*) FROM packs WHERE state <> 'retired'")) == (1, 2)


def test_two_compactions_of_the_same_packs_replace_them_once(world: World) -> None:
    """In a bucket nothing keeps them apart but the database."""
    world.limit_bytes = 40_000
    fill(world)
    expected = world.content()
    world.archive.close()
    second = World(world.engine, world.folder)
    second.open()
    world.open(CompactsMeanwhile(second))
    world.archive.backend.hold = lambda pack_id, rest_seconds: lambda: None  # type: ignore[method-assign]
    done = compact(world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0)
    assert done.packs_after == 0
    assert world.value("SELECT count(*) FROM packs WHERE state <> 'retired'") == 1
    assert world.content() == expected
    assert read_all(world) == len(expected["messages"])
    second.archive.close()


class CompactsMeanwhile(OsFiles):
    def __init__(self, other: World) -> None:
        self.other: World | None = other

    def rename(self, path: Path, target: Path) -> None:
        super().rename(path, target)
        if self.other:
            other, self.other = self.other, None
            compact(other.engine, other.archive, other.folder / "other", everything=True, keep_retired=NOW, rest_seconds=0)


def test_what_killed_compactions_left_unfinished_is_removed(world: World) -> None:
    fill(world)
    old, new = world.folder / ".old.pack.new", world.folder / ".new.pack.new"
    scratch = world.folder / "scratch" / "compact-old"
    scratch.mkdir(parents=True)
    for path in (old, new, scratch / "x.pack"):
        path.write_bytes(b"x")
    for path in (old, scratch):
        os.utime(path, (0, 0))
    compact(world.engine, world.archive, world.folder / "scratch", rest_seconds=0)
    assert [path.exists() for path in (old, new, scratch)] == [False, True, False]


@pytest.mark.parametrize("full", [False, True])
def test_a_pack_that_was_left_is_damaged_until_it_is_brought_back(
    world: World, new_world: Callable[..., World], full: bool
) -> None:
    """Also where the damage is in the last frame, which could be that of a batch that was never finished."""
    fill(world)
    (path,) = world.folder.iterdir()
    last = frames(world, path)[-1]
    world.archive.close()
    whole = path.read_bytes()
    flip(path, last.offset + HEADER_BYTES + 3)
    rebuilt = new_world(empty=True, folder=world.folder)
    ingest = rebuilt.open()
    assert rebuild(rebuilt.engine, rebuilt.archive).damage
    for _ in range(2):
        assert not verify(rebuilt.engine, rebuilt.archive, full=full).is_healthy
        assert rebuilt.value("SELECT state FROM packs") == "left"
    path.write_bytes(whole)
    catch_up(rebuilt.engine, rebuilt.archive, lambda _: None)
    assert verify(rebuilt.engine, rebuilt.archive, full=full).is_healthy
    assert rebuilt.value("SELECT state FROM packs") == "open"
    ingest.store_batch(rebuilt.origin(), Batch(messages_of(300)))
    assert [path] == list(world.folder.iterdir())
