"""A transaction that does all its work and fails at the commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, event


class CommitFailed(Exception):
    pass


@contextmanager
def failing_commit(engine: Engine) -> Iterator[None]:
    """Every commit within the block fails, and the block ends with the first."""

    def fail(_: object) -> None:
        raise CommitFailed

    event.listen(engine, "commit", fail)
    try:
        with pytest.raises(CommitFailed):
            yield
    finally:
        event.remove(engine, "commit", fail)
