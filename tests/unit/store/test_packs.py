"""Packs on a real disk: appending, sealing, torn tails, damage, locks, and every operation failing once."""

import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from google_crc32c import value as crc32c

from archiver.errors import WrongKey
from archiver.secrets import Keyring
from archiver.store.archive import entries
from archiver.store.content import MemoryContent, Spooled
from archiver.store.dictionaries import Trainer
from archiver.store.encoder import Record
from archiver.store.errors import Damage, LostDictionary, LostPack, StoreUnavailable, UnknownVersion
from archiver.store.files import OsFiles
from archiver.store.frames import HEADER_BYTES, FrameKind
from archiver.store.keys import PackKeys
from archiver.store.listing import list_pack
from archiver.store.pack import PACK_HEADER_BYTES, SEAL_BYTES, read_seal, survey, walk
from archiver.store.writer import PackWriter
from tests.support.store_world import Failing, PackWorld, mail


def pack_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pack"))


def test_messages_come_back_also_from_a_new_process(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    messages = [mail(number) for number in range(50)] + [mail(51, attachment=os.urandom(50_000)), b"", b"\0" * 70_000]
    world.store(*messages)
    world.archive.close()
    world.open()
    assert [world.read(message) for message in messages] == messages


def test_no_two_frames_have_one_salt(tmp_path: Path) -> None:
    """Key and nonce of a frame are made from it."""
    world = PackWorld(tmp_path)
    world.store(*map(mail, range(60)))
    world.store(*map(mail, range(60, 120)), mail(120, attachment=os.urandom(6 << 20)))
    (path,) = pack_paths(tmp_path)
    data = path.read_bytes()
    found = list(walk(lambda offset, length: data[offset : offset + length], len(data), path.name))
    salts = [item.header.salt for item in found if not isinstance(item, Damage)]
    assert len(salts) == len(found) == len(set(salts)) > 120


def test_small_mail_gets_a_dictionary_that_every_pack_carries(tmp_path: Path) -> None:
    world = PackWorld(tmp_path, limit_bytes=200_000)
    for start in range(0, 1200, 100):
        world.store(
            *(
                mail(number, body=f"Text {number} " + "and the same words in every mail " * 20)
                for number in range(start, start + 100)
            )
        )
    assert world.trainer.current is not None
    world.store(*(mail(number, body=os.urandom(3000).hex()) for number in range(2000, 2100)))
    world.archive.close()
    reopened = PackWorld(tmp_path, world.keyring)
    with_dictionary = 0
    for pack_id in reopened.archive.backend.packs():
        pack = reopened.archive.backend.open(pack_id)
        found = [item for item in walk(pack.read_at, pack.size, pack.name) if not isinstance(item, Damage)]
        used = {item.header.dictionary_id for item in found} - {0}
        carried = {
            int.from_bytes(reopened.archive.frames.open_in(pack, item.offset, 0).sha256[:4], "big")
            for item in found
            if item.header.kind == FrameKind.DICTIONARY
        }
        assert used <= carried
        with_dictionary += bool(used)
    assert with_dictionary >= 2


def test_a_full_pack_is_sealed_with_index_and_digest(tmp_path: Path) -> None:
    world = PackWorld(tmp_path, limit_bytes=100_000)
    messages = [mail(number, body=os.urandom(8000).hex()) for number in range(20)]
    for message in messages:
        world.store(message)
    paths = pack_paths(tmp_path)
    assert len(paths) > 1
    sealed = world.archive.backend.open(UUID(paths[0].stem))
    seal = read_seal(sealed.read_at, sealed.size)
    assert seal is not None
    digest = hashlib.sha256(paths[0].read_bytes()[:-60]).digest()
    assert seal.is_keyed
    assert seal.is_of(digest, world.archive.keys.active)
    assert not seal.is_of(hashlib.sha256(paths[0].read_bytes()[:-61]).digest(), world.archive.keys.active)
    assert not seal.is_of(digest, PackKeys(Keyring.generate()).active)
    assert paths[0].stat().st_mode & 0o222 == 0
    listed = list(entries(sealed, world.archive.frames))
    walked = [item for item in walk(sealed.read_at, sealed.size, sealed.name) if not isinstance(item, Damage)]
    assert [(entry.kind, entry.offset) for entry in listed] == [(item.header.kind, item.offset) for item in walked[:-1]]
    assert [world.read(message) for message in messages] == messages


@pytest.mark.parametrize("lost", [1, 10, 71, 72, 200, 1000])
def test_a_torn_tail_is_cut_and_writing_goes_on(tmp_path: Path, lost: int) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.archive.close()
    (path,) = pack_paths(tmp_path)
    known = path.stat().st_size
    world.open()
    ends = dict(world.places.ends)
    world.store(mail(2, body=os.urandom(1500).hex()))
    world.places.ends = ends  # the second batch was never committed
    world.archive.close()
    path.chmod(0o600)
    os.truncate(path, path.stat().st_size - lost)
    world.open()
    world.store(mail(3))
    assert pack_paths(tmp_path) == [path]
    assert path.read_bytes()[:known] != b""
    assert world.read(mail(1)) == mail(1)
    assert world.read(mail(3)) == mail(3)
    pack = world.archive.backend.open(UUID(path.stem))
    assert not [item for item in walk(pack.read_at, pack.size, pack.name) if isinstance(item, Damage)]


def test_a_listing_and_a_survey_agree_on_what_an_interrupted_seal_leaves(tmp_path: Path) -> None:
    """Whatever is there of the index and the seal: nothing is damaged, and the pack ends behind the last message."""
    world = PackWorld(tmp_path, limit_bytes=1000)
    world.store(mail(1), mail(2))
    world.store(mail(3))
    path = pack_paths(tmp_path)[0]
    whole, pack = path.read_bytes(), world.archive.backend.open(UUID(path.stem))
    seal = read_seal(pack.read_at, pack.size)
    assert seal is not None
    spoilt = bytearray(whole[: seal.index_offset + HEADER_BYTES + 8])
    spoilt[-1] ^= 1
    left = [bytes(spoilt) + whole[len(spoilt) : -SEAL_BYTES], *(whole[:end] for end in range(seal.index_offset, len(whole)))]
    path.chmod(0o600)
    for data in left:
        path.write_bytes(data)
        pack = world.archive.backend.open(UUID(path.stem))
        listed, found = list_pack(pack, world.archive.frames), survey(pack.read_at, pack.size, pack.name)
        assert (listed.end, listed.damage) == (found.end, ()) == (seal.index_offset, ())
        assert not found.is_damaged
        assert len(listed.entries) == seal.frames


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"garbage" * 100, b"\xf6AF\x1e" * 200])
def test_rubbish_at_the_end_is_cut(tmp_path: Path, tail: bytes) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.archive.close()
    (path,) = pack_paths(tmp_path)
    with path.open("ab") as file:
        file.write(tail)
    world.open()
    world.store(mail(2))
    assert pack_paths(tmp_path) == [path]
    assert [world.read(mail(1)), world.read(mail(2))] == [mail(1), mail(2)]


def test_what_the_database_knows_is_never_cut(tmp_path: Path) -> None:
    """A file that became shorter than it was known to be is damaged: it is left for reading, and a new pack begun."""
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.store(mail(2))
    world.archive.close()
    (path,) = pack_paths(tmp_path)
    os.truncate(path, path.stat().st_size - 100)
    size = path.stat().st_size
    world.open()
    world.store(mail(3))
    assert path.stat().st_size == size
    assert len(pack_paths(tmp_path)) == 2
    assert world.read(mail(1)) == mail(1)
    with pytest.raises(Damage):
        world.read(mail(2))


def test_only_the_holder_of_the_lock_appends(tmp_path: Path) -> None:
    first = PackWorld(tmp_path)
    first.store(mail(1))
    second = PackWorld(tmp_path, first.keyring)
    second.store(mail(2))
    assert len(pack_paths(tmp_path)) == 2
    first.archive.close()
    third = PackWorld(tmp_path, first.keyring)
    third.places.ends = first.places.ends
    third.store(mail(3))
    assert len(pack_paths(tmp_path)) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("torn", [False, True])
def test_whatever_operation_fails_the_batch_fails_as_a_whole_and_the_next_one_works(
    tmp_path: Path, number: int, torn: bool
) -> None:
    calm = Failing()
    PackWorld(tmp_path / "calm", files=calm).store(mail(1), mail(2))
    assert calm.count >= 4  # open, write, fsync, fsync of the folder at least
    for fail_at in range(calm.count):
        folder = tmp_path / f"{number}-{torn}-{fail_at}"
        world = PackWorld(folder, files=Failing(fail_at, number, torn))
        with pytest.raises(StoreUnavailable, match="nothing of this batch was stored"):
            world.store(mail(1), mail(2))
        assert world.places.known == {}
        world.store(mail(1), mail(2))
        assert [world.read(mail(1)), world.read(mail(2))] == [mail(1), mail(2)]


def test_an_error_in_a_later_batch_leaves_the_earlier_ones_alone(tmp_path: Path) -> None:
    for fail_at in range(6):
        files = Failing()
        world = PackWorld(tmp_path / str(fail_at), files=files)
        world.store(mail(1))
        before = files.count
        files.fail_at = before + fail_at
        try:
            world.store(mail(2))
        except StoreUnavailable:
            assert (hashlib.sha256(mail(2)).digest(), FrameKind.MESSAGE) not in world.places.known
        files.fail_at = -1
        world.store(mail(3))
        assert [world.read(mail(1)), world.read(mail(3))] == [mail(1), mail(3)]


def test_a_full_disk_is_told_plainly(tmp_path: Path) -> None:
    world = PackWorld(tmp_path, files=Failing(1, errno.ENOSPC))
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        world.store(mail(1))
    assert pack_paths(tmp_path) == []


def test_a_flipped_byte_anywhere_is_found_and_the_rest_is_read(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    messages = [mail(number) for number in range(5)]
    for message in messages:
        world.store(message)
    (path,) = pack_paths(tmp_path)
    whole = path.read_bytes()
    step = 7
    for place in range(PACK_HEADER_BYTES, len(whole), step):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
        world.archive.close()
        world.open()
        hit = [key for key, spot in world.places.known.items() if spot.offset <= place < spot.offset + spot.length]
        for message in messages:
            sha256 = hashlib.sha256(message).digest()
            if (sha256, FrameKind.MESSAGE) in hit:
                with pytest.raises((Damage, WrongKey, UnknownVersion)):
                    world.archive.read(sha256)
            else:
                assert world.archive.read(sha256) == message
        pack = world.archive.backend.open(UUID(path.stem))
        found = list(walk(pack.read_at, pack.size, pack.name)) if hit else []
        assert sum(not isinstance(item, Damage) for item in found) >= 4 if hit else True


def test_a_lost_pack_is_named(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.archive.close()
    (path,) = pack_paths(tmp_path)
    path.unlink()
    world.open()
    with pytest.raises(LostPack, match=path.stem):
        world.read(mail(1))


def test_a_lost_dictionary_is_named_and_found_in_another_pack(tmp_path: Path) -> None:
    world = PackWorld(tmp_path / "one")
    for start in range(0, 900, 100):
        world.store(
            *(mail(number, body="the same words in every mail " * 30 + str(number)) for number in range(start, start + 100))
        )
    assert world.trainer.current is not None
    late = mail(5000)
    world.store(late)
    world.archive.close()
    (path,) = pack_paths(tmp_path / "one")
    frame = next(place for (_, kind), place in world.places.known.items() if kind is FrameKind.DICTIONARY)
    data = bytearray(path.read_bytes())
    data[frame.offset + 100] ^= 1
    path.write_bytes(data)
    world.open()
    with pytest.raises(LostDictionary, match=f"dictionary {world_dictionary(world, late):08x}"):
        world.read(late)


def world_dictionary(world: PackWorld, message: bytes) -> int:
    place = world.places.known[hashlib.sha256(message).digest(), FrameKind.MESSAGE]
    pack = world.archive.backend.open(place.pack_id)
    item = next(walk(pack.read_at, pack.size, pack.name, place.offset))
    assert not isinstance(item, Damage)
    return item.header.dictionary_id


def test_the_wrong_key_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.archive.close()
    stranger = PackWorld(tmp_path, Keyring.generate())
    with pytest.raises(WrongKey, match=world.keyring.active):
        stranger.archive.check_key()


def test_old_keys_read_and_the_new_one_writes(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.archive.close()
    world.keyring = world.keyring.with_new_active()
    world.open()
    world.store(mail(2))
    assert len(pack_paths(tmp_path)) == 2
    assert [world.read(mail(1)), world.read(mail(2))] == [mail(1), mail(2)]


def test_a_pack_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    world = PackWorld(tmp_path)
    world.store(mail(1))
    world.archive.close()
    (path,) = pack_paths(tmp_path)
    data = bytearray(path.read_bytes())
    data[8] = 2
    data[76:80] = crc32c(bytes(data[:76])).to_bytes(4, "little")
    path.write_bytes(data)
    world.open()
    with pytest.raises(UnknownVersion, match="version 2; this program reads version 1"):
        world.archive.check_key()


@dataclass(frozen=True)
class KnownEnd:
    """What the database says about any pack."""

    end: int

    def __call__(self, _: UUID) -> int:
        return self.end


def test_a_crash_while_sealing_does_not_hurt(tmp_path: Path) -> None:
    keys = PackKeys(Keyring.generate())
    for fail_at in range(4):
        folder = tmp_path / str(fail_at)
        folder.mkdir()
        files = Failing()
        writer = PackWriter.create(folder, keys.active, Trainer(), files)
        message = mail(1)
        appended = writer.append([Record(FrameKind.MESSAGE, hashlib.sha256(message).digest(), MemoryContent(message))])
        files.fail_at = files.count + fail_at
        try:
            writer.seal()
        except StoreUnavailable:
            again = PackWriter.adopt(writer.path, keys.active, Trainer(), OsFiles(), KnownEnd(appended.end))
            assert again is not None
            assert again.size == appended.end
            again.seal()
        size = writer.path.stat().st_size
        assert read_seal(lambda offset, length: writer.path.read_bytes()[offset : offset + length], size) is not None  # noqa: B023


def test_a_large_message_is_streamed_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "spooled"
    path.write_bytes(os.urandom(1 << 20) * 20)
    sha256 = hashlib.sha256(path.read_bytes()).digest()
    world = PackWorld(tmp_path / "packs")
    with Spooled(path) as raw:
        written = world.archive.append([Record(FrameKind.MESSAGE, sha256, raw)])
    for frame in written.batch.frames:
        world.places.known[frame.sha256, frame.kind] = frame.place
    pieces = list(world.archive.stream(sha256))
    assert len(pieces) > 1
    assert b"".join(pieces) == path.read_bytes()
    place = world.places.known[sha256, FrameKind.MESSAGE]
    (pack,) = pack_paths(tmp_path / "packs")
    data = bytearray(pack.read_bytes())
    data[place.offset + place.length - 1000] ^= 1
    pack.write_bytes(data)
    with pytest.raises(Damage, match="can't be decrypted"):
        for _ in world.archive.stream(sha256):
            pass
