"""Errors in queries, with their position."""

from __future__ import annotations

from archiver.errors import UsageError


class QueryError(UsageError):
    """The query can't be parsed, or can't be answered as intended. `start` and `end` are positions in its text."""

    def __init__(self, reason: str, query: str = "", start: int = 0, end: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.query = query
        self.start = start
        self.end = max(start + 1, end if end is not None else start + 1)

    def __str__(self) -> str:
        if not self.query:
            return self.reason
        marks = " " * self.start + "^" * min(self.end - self.start, max(1, len(self.query) - self.start))
        return f"{self.reason}\n  {self.query}\n  {marks}"
