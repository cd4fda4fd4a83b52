"""`archiver search` asks the web process over its socket, and gets the answer that it would have computed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from archiver.http.app import create_app
from archiver.http.local_search import serve_local_searches
from archiver.search.answer import answer_of
from archiver.search.local_request import LocalSearchRequest, RemoteError, ask
from archiver.search.service import open_search
from archiver.supervisor.folder import DataFolder
from tests.integration.http.conftest import Company

REQUEST = LocalSearchRequest("for", "newest", 1, 20, facets=True, zone="Europe/Berlin", similar=False)

LOGGED = "SELECT count(*) FROM audit_log WHERE action = 'search.done'"


@pytest.fixture
def path(company: Company) -> Iterator[Path]:
    context = create_app(company.settings).state.context
    serve_local_searches(context)
    yield DataFolder(company.settings.archiver_data).search_socket
    context.close()


def test_the_answer_is_that_of_the_search_itself(company: Company, path: Path) -> None:
    before = company.value(LOGGED)
    answer = ask(path, REQUEST)
    assert answer is not None
    found = open_search(company.settings, company.engine).search("for", facets=list(answer["facets"]))
    expected = answer_of(found, 1)
    assert [hit["subject"] for hit in answer["hits"]] == ["for both", "for bob", "for alice"]
    assert {**answer, "facets": None} == {**expected, "facets": None}
    assert company.value(LOGGED) == before + 1
    assert path.stat().st_mode & 0o777 == 0o600, "only for the owner of the data folder"


def test_a_wrong_query_is_an_error_with_its_exit_code(path: Path) -> None:
    with pytest.raises(RemoteError, match="no operator fom:") as caught:
        ask(path, replace(REQUEST, query="fom:x"))
    assert caught.value.exit_code == 2


def test_who_can_t_be_asked_is_not(path: Path, tmp_path: Path) -> None:
    assert ask(path, replace(REQUEST, version="0.0.0")) is None, "another release may mean something else"
    assert ask(tmp_path / "none.sock", REQUEST) is None
    for line in (b"\n", b"[]\n", b"{}\n", b"\xff\n", b'{"query": 1'):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(path))
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""
    assert ask(path, REQUEST) is not None, "it still answers"
