"""Checks whether the parts respond, and which versions they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg
import redis

from archiver.config import Settings
from archiver.errors import ArchiverError, NotReady, no_postgres
from archiver.queue.connection import sync_client
from archiver.search.client import search_version

_CONNECT_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Health:
    part: str
    ok: bool
    detail: str
    """The version, or the error."""
    seconds: float


def check_parts(settings: Settings) -> list[Health]:
    """In parallel, each with a short timeout."""
    checks = {"postgres": postgres_version, "redis": redis_version, "search": search_version}
    with ThreadPoolExecutor(len(checks)) as pool:
        return list(pool.map(lambda item: _measure(item[0], item[1], settings), checks.items()))


def _measure(part: str, check: Callable[[Settings], str], settings: Settings) -> Health:
    started = time.monotonic()
    try:
        ok, detail = True, check(settings)
    except ArchiverError as error:
        ok, detail = False, str(error)
    return Health(part, ok, detail, round(time.monotonic() - started, 4))


def postgres_version(settings: Settings) -> str:
    if settings.database_url is None:
        raise NotReady("postgres is not running")
    try:
        with psycopg.connect(settings.database_url.get_secret_value(), connect_timeout=_CONNECT_SECONDS) as connection:
            version = connection.execute("SHOW server_version").fetchone()
    except psycopg.Error as error:
        raise no_postgres(error) from error
    assert version is not None
    return f"PostgreSQL {str(version[0]).split()[0]}"


def redis_version(settings: Settings) -> str:
    if settings.redis_url is None:
        raise NotReady("redis is not running")
    client = sync_client(settings.redis_url.get_secret_value())
    try:
        info = client.info("server")
    except (redis.RedisError, ValueError) as error:
        raise NotReady(f"redis does not answer: {error}") from error
    finally:
        client.close()
    assert isinstance(info, dict)
    return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
