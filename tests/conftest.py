"""What every test may ask for. The servers are real; each test that asks for a database gets one of its own."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import psycopg
import pytest
from sqlalchemy import Engine

from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.support.dovecot import Dovecot
from tests.support.dovecot import dovecot as running_dovecot
from tests.support.other_imap import OtherImap, courier, cyrus
from tests.support.own_mail import write_own_corpus
from tests.support.waiting import PATIENCE

_FAILED = pytest.StashKey[bool]()
CORPUS = Path(os.environ.get("ARCHIVER_TEST_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))

# A busy machine may take any time for one example; the growth tests count steps instead.
hypothesis.settings.register_profile("archiver", deadline=None)
hypothesis.settings.load_profile("archiver")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The limit of each test grows with all other deadlines. No two tests have the same name: pytest-xdist would run one."""
    names = Counter(item.nodeid for item in items)
    if twice := [name for name, count in names.items() if count > 1]:
        raise pytest.UsageError(f"several tests are named {twice[0]}")
    usual = float(config.getini("timeout"))
    for item in items if PATIENCE != 1 else ():
        own = item.get_closest_marker("timeout")
        item.add_marker(pytest.mark.timeout((own.args[0] if own else usual) * PATIENCE), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a failed test left open, a process or a socket, is collected now, so that its warnings don't fail the next test."""
    done = yield
    if item.stash.get(_FAILED, False):
        for name in ("last_exc", "last_value", "last_traceback"):  # they hold its frames
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return done


@pytest.fixture(scope="session")
def shared_corpus() -> Path:
    """Real mail, which is not part of the project: ARCHIVER_TEST_CORPUS, or `shared/corpus` beside the project."""
    if not CORPUS.is_dir():
        pytest.skip(f"no mail corpus at {CORPUS} (set ARCHIVER_TEST_CORPUS)")
    return CORPUS


@pytest.fixture(scope="session", params=["own", *(["shared"] if CORPUS.is_dir() else [])])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mail in files: that of our own making, and the shared corpus too, where it is there."""
    return CORPUS if request.param == "shared" else write_own_corpus(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A real PostgreSQL for the whole run, with the migrated database `template` to copy from."""
    folder = DataFolder(tmp_path_factory.mktemp("postgres") / "data")
    folder.prepare()
    server = EmbeddedPostgres(folder)
    server.prepare()
    # Hundreds of databases would be synced to the disk when it stops. Nothing here cuts the power: kills keep what was written.
    with (server.data / "postgresql.conf").open("a") as file:
        file.write("fsync = off\nfull_page_writes = off\n")
    with server.running():
        _create_database(server, "template", "template0")
        engine = make_engine(server.url("template"), "test")
        schema.migrate(engine)
        engine.dispose()
        yield server


def _create_database(server: EmbeddedPostgres, name: str, template: str) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')


@pytest.fixture
def empty_database_url(postgres: EmbeddedPostgres) -> str:
    """A database without any table."""
    name = f"t_{uuid7().hex}"
    _create_database(postgres, name, "template0")
    return postgres.url(name)


@pytest.fixture
def database_url(postgres: EmbeddedPostgres) -> str:
    """A database with the whole schema and no row."""
    name = f"t_{uuid7().hex}"
    _create_database(postgres, name, "template")
    return postgres.url(name)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url, "test")
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def dovecot() -> Iterator[Dovecot]:
    """One for the whole run: each test has users of its own in it."""
    with running_dovecot() as server:
        yield server


@pytest.fixture(scope="session")
def plain_dovecot() -> Iterator[Dovecot]:
    """One that hides what it is and what it can: IMAP as it was in 2003."""
    hidden = "login_greeting = ready\nimap_id_send = name something\nimap_capability = IMAP4rev1\n"
    with running_dovecot(hidden) as server:
        yield server


@pytest.fixture(scope="session")
def cyrus_server() -> Iterator[OtherImap]:
    with cyrus() as server:
        yield server


@pytest.fixture(scope="session")
def courier_server() -> Iterator[OtherImap]:
    with courier() as server:
        yield server
