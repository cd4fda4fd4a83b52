"""Room on the disk: asked for before bytes come and while they come, set aside for uploads."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archiver.access.principal import Principal, rights_of
from archiver.config import Settings, load_settings
from archiver.sources import uploads
from archiver.store.capacity import NoRoom, explain_full_disk
from tests.integration.http.conftest import Company, Served


def free(settings: Settings) -> int:
    return shutil.disk_usage(settings.archiver_data).free


@pytest.fixture
def roomy(company: Company, variables: dict[str, str]) -> Settings:
    """Uploads as large as the disk may be announced."""
    return load_settings({**variables, "UPLOAD_MAX_BYTES": "900T"}, Path("none"))


def person(company: Company, name: str) -> Principal:
    user = company.people[name]
    return Principal(user.email, user.role, rights_of(user.role), user.id)


def test_room_is_set_aside_for_uploads_that_have_begun(company: Company, roomy: Settings) -> None:
    size = int(free(roomy) * 0.6)
    alice = person(company, "alice")

    def begin(_: int) -> object:
        try:
            with company.engine.begin() as connection:
                return uploads.begin(connection, roomy, alice, "large.mbox", size, None)
        except NoRoom as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(begin, range(4)))
    begun = [one for one in said if isinstance(one, uploads.Upload)]
    assert len(begun) == 1, "four announced 0.6 of the disk each"
    path = uploads.path_of(roomy, begun[0].id)
    os.utime(path, (0, 0))
    second = begin(0)
    assert isinstance(second, uploads.Upload), "one that stands still gives its room to others"
    with pytest.raises(NoRoom), company.engine.begin() as connection:
        uploads.renew_reservation(connection, roomy, begun[0])
    with company.engine.begin() as connection:
        uploads.remove(connection, roomy, alice, second.id)
        uploads.renew_reservation(connection, roomy, begun[0])
        uploads.remove(connection, roomy, alice, begun[0].id)


def test_a_disk_that_fills_while_bytes_arrive(company: Company, variables: dict[str, str]) -> None:
    full = load_settings({**variables, "DISK_MIN_FREE_BYTES": "900T"}, Path("none"))
    alice = person(company, "alice")
    with company.engine.begin() as connection:
        upload = uploads.begin(connection, company.settings, alice, "x.mbox", 10, None)
    with uploads.open_for_append(company.settings, upload, 0) as file:
        uploads.add_piece(company.settings, file, upload, b"12345")
        with pytest.raises(NoRoom, match="nothing more is written"):
            uploads.add_piece(full, file, upload, b"67890")
    assert uploads.offset(company.settings, upload) == 5, "what arrived stays"
    with company.client("alice") as alice_there, Served(full) as served:
        headers = {"X-CSRF-Token": alice_there.headers["X-CSRF-Token"], "Upload-Offset": "5"}
        answer = alice_there.patch(f"{served.url}/api/v1/uploads/{upload.id}", content=b"67890", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (429, "no_room")
        assert alice_there.patch(f"/uploads/{upload.id}", content=b"67890", headers=headers).status_code == 204
        assert alice_there.delete(f"/uploads/{upload.id}").status_code == 204


def test_a_write_to_a_full_disk_is_told_as_such() -> None:
    with (
        pytest.raises(NoRoom, match="the disk is full"),
        explain_full_disk(),
        Path("/dev/full").open("wb", buffering=0) as file,
    ):
        file.write(b"x")
    with pytest.raises(FileNotFoundError), explain_full_disk():
        Path("/nowhere/at/all").read_bytes()


def test_one_person_has_so_many_uploads_at_once(company: Company) -> None:
    with company.client("bob") as client:
        begun = [client.post("/uploads", json={"name": "x", "size_bytes": 1}) for _ in range(101)]
        assert [one.status_code for one in begun] == [201] * 100 + [409]
        assert begun[-1].json()["code"] == "too_many_uploads"
        for one in begun[:100]:
            client.delete(f"/uploads/{one.json()['id']}")


def test_a_slow_upload_is_not_given_up_and_unknown_files_stay(company: Company) -> None:
    alice, place = person(company, "alice"), uploads.folder(company.settings)
    with company.engine.begin() as connection:
        slow = uploads.begin(connection, company.settings, alice, "slow", 10, None)
        idle = uploads.begin(connection, company.settings, alice, "idle", 10, None)
    company.act("UPDATE uploads SET updated_at = now() - interval '8 days'")
    os.utime(uploads.path_of(company.settings, idle.id), (0, 0))
    unknown, beginning = (place / f"{company.source}.part", place / f"{company.mailboxes['bob']}.part")
    unknown.write_bytes(b"somebody's mail")
    beginning.touch()
    for path in (unknown, beginning):
        os.utime(path, (0, 0))
    uploads.tidy(company.engine, company.settings)
    assert sorted(place.iterdir()) == sorted([unknown, uploads.path_of(company.settings, slow.id)])
    unknown.unlink()
    with company.engine.begin() as connection:
        uploads.remove(connection, company.settings, alice, slow.id)
