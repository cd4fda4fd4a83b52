"""People, on a real Postgres."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from archiver.access import users
from archiver.access.principal import LOCAL_OPERATOR
from archiver.access.users import User
from archiver.config import Settings, load_settings
from archiver.db.states import UserRole
from archiver.secrets import Keyring

PASSWORD = "correct horse battery"


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return load_settings({"ARCHIVER_DATA": str(tmp_path), "DATABASE_URL": database_url}, Path("none"))


@pytest.fixture
def keyring() -> Keyring:
    return Keyring({"test": b"k" * 32})


@pytest.fixture
def add_user(engine: Engine) -> Callable[..., User]:
    def add(email: str, role: UserRole = UserRole.USER, password: str | None = PASSWORD) -> User:
        with engine.begin() as connection:
            return users.add(connection, LOCAL_OPERATOR, email, role=role, password=password)

    return add
