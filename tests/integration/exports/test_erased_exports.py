"""Exports with mail that was erased: removed when they are finished, cancelled while they are written."""

from __future__ import annotations

from archiver.exports import service as exports
from archiver.exports.erased import remove_containing
from tests.integration.exports.conftest import ExportWorld


def test_they_go_with_what_they_contain(world: ExportWorld) -> None:
    export_id = world.export()
    world.finish()
    hashes = world.hashes()
    assert remove_containing(world.engine, world.settings, world.who, {"00" * 32}) == []
    assert world.state(export_id) == "done"
    exports.downloadable(world.engine, world.settings, world.who, export_id)
    (removed,) = remove_containing(world.engine, world.settings, world.who, {min(hashes)})
    assert removed.id == export_id
    assert removed.downloaded_at is not None
    assert world.files_left() == []
    assert world.one("SELECT count(*) FROM exports") == 0
    assert remove_containing(world.engine, world.settings, world.who, hashes) == []


def test_a_damaged_package_goes_too(world: ExportWorld) -> None:
    export_id = world.export()
    world.finish()
    world.volumes(export_id)[0].write_bytes(b"not a zip file")
    assert [one.id for one in remove_containing(world.engine, world.settings, world.who, {"00" * 32})] == [export_id]
