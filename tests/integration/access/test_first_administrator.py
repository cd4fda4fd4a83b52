"""The first administrator: announced by a link, or created from the environment; and what the purpose of the archive means."""

from __future__ import annotations

import re
import time
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.access import users
from archiver.access.login import demo_link, first_start
from archiver.access.principal import LOCAL_OPERATOR, Principal, rights_of
from archiver.access.scope import scope_of
from archiver.config import Settings, load_settings
from archiver.db.ids import uuid7
from archiver.db.states import UserRole
from archiver.errors import NotFound, NotSignedIn

PAGE = "http://127.0.0.1:8080"


def settings_of(folder: Path, **values: str) -> Settings:
    return load_settings({"ARCHIVER_DATA": str(folder), **values}, Path("none"))


def test_a_link_is_announced_until_there_is_a_user(engine: Engine, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    said = first_start.announcement(engine, settings, PAGE)
    assert said is not None
    token = re.search(r"/welcome#token=(\S+)", said)
    assert token is not None
    values = {"email": "ann@example.org", "password": "correct horse battery", "name": None, "own_mail": True}
    first_start.create_administrator(engine, settings, LOCAL_OPERATOR, token[1], **values)  # type: ignore[arg-type]
    assert first_start.announcement(engine, settings, PAGE) is None


def test_an_administrator_from_the_environment(engine: Engine, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("correct horse battery\n")
    settings = settings_of(tmp_path, ARCHIVER_ADMIN_EMAIL="ops@example.org", ARCHIVER_ADMIN_PASSWORD_FILE=str(secret))
    said = first_start.announcement(engine, settings, PAGE)
    assert said is not None
    assert "token" not in said
    assert "correct horse" not in said
    with engine.connect() as connection:
        user = users.find(connection, "ops@example.org")
    assert (user.role, user.own_mail) == (UserRole.ADMINISTRATOR, False)
    assert first_start.announcement(engine, settings, PAGE) is None


@pytest.mark.parametrize("own_mail", [True, False])
def test_what_the_first_administrator_may_read(engine: Engine, own_mail: bool) -> None:
    """Of two sources, one without an owner and one of another user; and a mailbox whose address another user has."""
    with engine.begin() as connection:
        first = users.add(
            connection,
            LOCAL_OPERATOR,
            "a@x.org",
            role=UserRole.ADMINISTRATOR,
            address_verified=False,
            settings={"own_mail": own_mail},
        )
        other = users.add(connection, LOCAL_OPERATOR, "bob@x.org", role=UserRole.USER)
        boxes: dict[str, UUID] = {}
        for name, owner in (("imported", None), ("of bob", other.id)):
            source = uuid7()
            values = {"id": source, "name": name, "owner": owner}
            connection.execute(
                text("INSERT INTO ingestion_sources (id, kind, name, owner_id) VALUES (:id, 'files', :name, :owner)"), values
            )
            for address in ("old@x.org", "BOB@x.org"):
                boxes[f"{name} {address}"] = box = uuid7()
                row = {"id": box, "source": source, "address": address}
                connection.execute(text("INSERT INTO mailboxes (id, source_id, address) VALUES (:id, :source, :address)"), row)
        principal = Principal(first.email, first.role, rights_of(first.role), first.id)
        readable = scope_of(connection, principal).mailboxes
    assert readable == ({boxes["imported old@x.org"]} if own_mail else set())


def test_the_link_of_the_demo_works_once_and_on_sample_data_alone(engine: Engine, tmp_path: Path) -> None:
    sample, real = settings_of(tmp_path, SAMPLE_SOURCES="true"), settings_of(tmp_path)
    token = demo_link.new_token(engine, sample)
    with pytest.raises(NotFound):
        demo_link.sign_in(engine, real, LOCAL_OPERATOR, token, None)
    with pytest.raises(NotSignedIn):
        demo_link.sign_in(engine, sample, LOCAL_OPERATOR, token[:-1], None)
    assert demo_link.sign_in(engine, sample, LOCAL_OPERATOR, token, "a browser").token
    with pytest.raises(NotSignedIn, match="used or has expired"):
        demo_link.sign_in(engine, sample, LOCAL_OPERATOR, token, None)


def test_a_link_of_the_demo_expires(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = settings_of(tmp_path, SAMPLE_SOURCES="true")
    token = demo_link.new_token(engine, sample)
    now = time.time()
    monkeypatch.setattr("archiver.access.login.demo_link.time.time", lambda: now + 3600)
    with pytest.raises(NotSignedIn, match="used or has expired"):
        demo_link.sign_in(engine, sample, LOCAL_OPERATOR, token, None)
