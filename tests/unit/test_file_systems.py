"""Which mount a folder is on, and what `archiver doctor` says of those that do not suit."""

from __future__ import annotations

from pathlib import Path

import pytest

from archiver.config import load_settings
from archiver.maintenance.checks import doctor
from archiver.maintenance.checks.doctor import Verdict
from archiver.maintenance.checks.file_systems import file_system_of, nearest_mount

OWN_SERVERS = {
    "DATABASE_URL": "postgresql://h/x",
    "REDIS_URL": "redis://h",
    "MEILI_HOST": "http://h",
    "MEILI_MASTER_KEY": "k",
}
MOUNTS = [("/", "ext4"), ("/srv", "nfs4"), ("/srv/data", "xfs"), ("/srv/data", "CIFS"), ("/srv2", "9p")]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/x", "ext4"), ("/srv", "nfs4"), ("/srv/other", "nfs4"), ("/srv/data/packs", "cifs"), ("/srv22", "ext4")],
)
def test_the_nearest_mount_counts(path: str, kind: str) -> None:
    assert nearest_mount(Path(path), MOUNTS) == kind


def test_it_follows_links_and_knows_this_machine(tmp_path: Path) -> None:
    (tmp_path / "packs").symlink_to("/proc")
    assert file_system_of(tmp_path / "packs") == file_system_of(Path("/proc"))
    assert file_system_of(tmp_path / "not" / "yet") == file_system_of(tmp_path)


@pytest.mark.parametrize(
    ("data", "packs", "given", "verdicts"),
    [
        ("ext4", "ext4", {}, []),
        ("ext4", "nfs4", {}, []),
        ("nfs4", "nfs4", {}, [Verdict.WARNING]),
        ("cifs", "cifs", {}, [Verdict.FAILED, Verdict.FAILED]),
        ("ext4", "fuse.sshfs", {}, [Verdict.FAILED]),
        ("nfs", "nfs", OWN_SERVERS, []),
    ],
)
def test_what_the_doctor_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: str, packs: str, given: dict[str, str], verdicts: list[Verdict]
) -> None:
    monkeypatch.setattr(doctor, "file_system_of", lambda path: packs if path.name == "packs" else data)
    settings = load_settings({"ARCHIVER_DATA": str(tmp_path), **given}, Path("none"))
    assert [finding.verdict for finding in doctor._file_systems(settings)] == verdicts
