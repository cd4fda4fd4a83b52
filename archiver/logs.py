"""Structured logs: events with ids, one JSON object per line, never with mail content.

`log.info("batch_stored", source=…, mailbox=…, messages=200)`. They are written to standard error and to rotated
files in `ARCHIVER_DATA/logs`; in a terminal as coloured lines instead of JSON.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import structlog

_FILE_BYTES = 10 << 20
_BACKUP_FILES = 5
_NOT_COPIED = frozenset({"event", "level", "logger", "timestamp", "job", "job_id", "correlation_id", "exc_info", "exception"})
_copied: ContextVar[Callable[[str], None] | None] = ContextVar("copied_lines", default=None)
_SECRET_WORDS = ("password", "secret", "token", "credential", "master_key", "encryption_key", "authorization", "cookie")


def get_logger(name: str) -> Any:
    return structlog.get_logger(name)


def log_context(**values: str) -> AbstractContextManager[None]:
    """Adds the values to every line that this thread logs within the block."""
    return structlog.contextvars.bound_contextvars(**values)


@contextmanager
def copy_lines(to: Callable[[str], None]) -> Iterator[None]:
    """Every line that this thread logs within the block is also passed to `to`, as a short text."""
    token = _copied.set(to)
    try:
        yield
    finally:
        _copied.reset(token)


def log_problems_only() -> None:
    """For commands: results go to standard output, warnings and errors to standard error, and nothing else is logged."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def set_up_logs(part: str, level: str, folder: Path | None, *, to_terminal: bool | None = None) -> None:
    """Call once per process. Without a folder, no file is written (in a container, the engine stores the output)."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    is_terminal = sys.stderr.isatty() if to_terminal is None else to_terminal
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(_coloured_lines() if is_terminal else _json_lines())
    handlers: list[logging.Handler] = [stream]
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = logging.handlers.RotatingFileHandler(folder / f"{part}.log", maxBytes=_FILE_BYTES, backupCount=_BACKUP_FILES)
        file.setFormatter(_json_lines())
        handlers.append(file)
    logging.basicConfig(level=level.upper(), handlers=handlers, force=True)
    for chatty in ("uvicorn", "httpx", "httpcore", "httpx2", "httpcore2", "msal", "urllib3", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _json_lines() -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("event"),
            structlog.processors.JSONRenderer(sort_keys=False),
        ],
    )


def _coloured_lines() -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            # Plain tracebacks: the default formatter shows the values of variables, which may be passwords or mail.
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ],
    )


def _hide_secrets(_: Any, __: str, event: Any) -> Any:
    """A safety net: a field whose name suggests a secret is never written."""
    for name in event:
        if any(word in name.lower() for word in _SECRET_WORDS):
            event[name] = "***"
    return event


def _copy(_: Any, __: str, event: Any) -> Any:
    to = _copied.get()
    if to is not None:
        shown = [f"{name}={value}" for name, value in event.items() if name not in _NOT_COPIED]
        to(" ".join([event.get("level", ""), str(event.get("event", "")), *shown]).strip())
    return event


_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
    _hide_secrets,
    _copy,
]
"""Applied to our own events and to those of libraries that log through `logging`."""
