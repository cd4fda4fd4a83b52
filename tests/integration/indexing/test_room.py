"""A disk that is nearly full: indexing pauses as if the search server were away, and goes on when there is room."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from archiver.config import load_settings
from archiver.indexing.pipeline import index_work, run_or_notify
from archiver.queue.jobs import IndexEmailBatch
from archiver.search.index import SearchUnavailable
from tests.integration.indexing.conftest import IndexWorld
from tests.support.store_world import mail
from workers.context import is_outage


def test_indexing_pauses_while_the_disk_is_nearly_full(at: IndexWorld) -> None:
    at.put(mail(1))
    variables = {"ARCHIVER_DATA": str(at.settings.archiver_data), **at.search.variables}
    for free, is_indexed in (("900T", False), ("0", True)):
        settings = load_settings({**variables, "DISK_MIN_FREE_BYTES": free}, Path("none"))
        work = index_work(settings, at.engine, at.archive, threading.Event())
        try:
            if is_indexed:
                run_or_notify(work, IndexEmailBatch())
                work.check_search_server()
            else:
                with pytest.raises(SearchUnavailable, match="disk is nearly full") as told:
                    run_or_notify(work, IndexEmailBatch())
                assert is_outage(told.value), "no job loses an attempt"
                with pytest.raises(SearchUnavailable):
                    work.check_search_server()
        finally:
            work.stop()
        assert at.rows("SELECT indexed_version = index_version FROM messages") == [(is_indexed,)]
