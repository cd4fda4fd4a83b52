"""What the client makes of a search server that fails in the middle of an answer."""

import socket
import threading
from collections.abc import Iterator

import pytest

from archiver.config import Settings
from archiver.errors import NotReady
from archiver.search.client import make_client
from archiver.search.index import SearchServer, SearchUnavailable
from archiver.search.searcher import IndexSearcher
from tests.support.waiting import DEADLINE_SECONDS


@pytest.fixture
def broken_off() -> Iterator[str]:
    """A server that is gone after the first half of each answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE_SECONDS)


def test_an_answer_that_breaks_off_is_no_answer(broken_off: str) -> None:
    settings = Settings(meili_host=broken_off, meili_master_key="k" * 16)  # type: ignore[arg-type]
    with pytest.raises(SearchUnavailable, match="does not answer"):
        SearchServer(settings).add("mail", [b"{}"])
    with pytest.raises(NotReady, match="does not answer"):
        IndexSearcher(lambda: make_client(settings)).ask([{"q": "x"}])
