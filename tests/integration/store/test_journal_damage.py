"""Damage in the journal: one damaged frame costs nothing, two cost no message, and all of it is told."""

from collections.abc import Callable
from pathlib import Path

import pytest

from archiver.maintenance.checks.verify import verify
from archiver.maintenance.recovery.found_mail import FOUND_MAILBOX
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.recovery.replay import Replayed
from archiver.store.frames import HEADER_BYTES, FrameKind
from archiver.store.pack import FrameHeader, walk
from tests.integration.store.conftest import World
from tests.integration.store.filled import fill, read_all

MakeWorld = Callable[..., World]


def frames_of(world: World, kind: FrameKind) -> list[tuple[Path, FrameHeader]]:
    found = []
    for pack_id in world.archive.backend.packs():
        pack = world.archive.backend.open(pack_id)
        items = walk(pack.read_at, pack.size, pack.name)
        found += [
            (world.folder / pack.name, item) for item in items if isinstance(item, FrameHeader) and item.header.kind == kind
        ]
    return found


def flip(path: Path, offset: int) -> None:
    mode = path.stat().st_mode
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    path.chmod(mode)


def rebuilt_from(world: World, new_world: MakeWorld) -> tuple[World, Replayed]:
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    return rebuilt, rebuild(rebuilt.engine, rebuilt.archive, processes=1)


@pytest.mark.parametrize(("limit", "inside"), [(40_000, HEADER_BYTES + 20), (256 << 20, 20)])
def test_any_one_damaged_journal_frame_costs_no_copy(world: World, new_world: MakeWorld, limit: int, inside: int) -> None:
    """In the payload or in the header, sealed or not."""
    world.limit_bytes = limit
    fill(world)
    expected = world.content()
    world.close()
    world.open()
    spots = [
        item
        for kind in (FrameKind.OCCURRENCE, FrameKind.COPY_CHANGE, FrameKind.TOMBSTONE_CONFIRMED)
        for item in frames_of(world, kind)
    ]
    assert len(spots) >= 10 + 4
    for path, frame in spots:
        flip(path, frame.offset + inside)
        rebuilt, result = rebuilt_from(world, new_world)
        assert len(result.damage) >= 1
        assert str(frame.offset) in result.damage[0]
        assert (result.lost_copies, result.found, result.unconfirmed) == (0, 0, [])
        assert rebuilt.content() == expected
        rebuilt.close()
        flip(path, frame.offset + inside)


def test_messages_whose_journal_is_lost_are_kept_as_found(world: World, new_world: MakeWorld) -> None:
    fill(world)
    messages = world.value("SELECT count(*) FROM messages")
    world.close()
    world.open()
    first, second = frames_of(world, FrameKind.OCCURRENCE)[:2]
    for path, frame in (first, second):
        flip(path, frame.offset + HEADER_BYTES + 20)
    report = verify(world.engine, world.archive)
    told = [problem.what for problem in report.problems if "journal" in problem.what]
    rebuilt, result = rebuilt_from(world, new_world)
    assert len(result.damage) == 2
    assert result.messages == messages
    assert read_all(rebuilt) == messages
    in_found = rebuilt.value("SELECT count(*) FROM message_copies WHERE mailbox_id = :m", m=FOUND_MAILBOX)
    assert in_found == result.found > 10
    lost = world.value("SELECT count(*) FROM message_copies WHERE deleted_at IS NULL") - rebuilt.value(
        "SELECT count(*) FROM message_copies WHERE deleted_at IS NULL AND mailbox_id <> :m", m=FOUND_MAILBOX
    )
    assert told == [f"{lost} copies in no readable journal frame: a rebuild would not know in which mailbox they were"]


def test_one_damaged_frame_is_a_problem_that_costs_no_copy(world: World) -> None:
    fill(world)
    world.close()
    world.open()
    path, frame = frames_of(world, FrameKind.OCCURRENCE)[0]
    flip(path, frame.offset + HEADER_BYTES + 20)
    (problem,) = verify(world.engine, world.archive).problems
    assert (problem.offset, problem.what) == (frame.offset, "the payload's checksum is wrong")


def test_the_torn_end_of_a_pack_is_no_damage(world: World, new_world: MakeWorld) -> None:
    fill(world)
    expected = world.content()
    world.close()
    world.open()
    path, last = frames_of(world, FrameKind.TOMBSTONE_CONFIRMED)[-1]
    with path.open("ab") as file:  # a batch whose first frames were written, and the last one in part
        whole = path.read_bytes()
        file.write(whole[last.offset : last.end - 5])
    rebuilt, result = rebuilt_from(world, new_world)
    assert (result.damage, result.lost_copies) == ([], 0)
    assert rebuilt.content() == expected


def test_a_batch_that_was_written_in_part_is_not_called_lost(world: World, new_world: MakeWorld) -> None:
    fill(world)
    world.close()
    world.open()
    (path, first), (_, second) = frames_of(world, FrameKind.OCCURRENCE)[-2:]
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(second.offset - 10)
    assert size > second.offset > first.offset
    _, result = rebuilt_from(world, new_world)
    assert result.damage == []
    assert result.lost_copies == 0
    assert result.unfinished_copies >= 1
