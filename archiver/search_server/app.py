"""The ASGI application: reads requests, checks keys, runs handlers in threads, and turns errors into responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from archiver.search_server.errors import ApiError
from archiver.search_server.keys import Permit
from archiver.search_server.payload import BODY_LIMIT, too_large, unpack
from archiver.search_server.request import Call, ServerResponse
from archiver.search_server.routes.table import ENDPOINTS, Endpoint
from archiver.search_server.service import Service
from archiver.search_server.tasks.writer import as_api_error

log = logging.getLogger("archiver.search")
SEARCH_THREADS = 4
OTHER_THREADS = 4
WAITING_SEARCHES = 1000
CUTOFF_MS = 1500


@dataclass(slots=True)
class Pools:
    """Searches do not wait for writes, nor writes for searches."""

    searches: ThreadPoolExecutor
    others: ThreadPoolExecutor
    waiting: int = 0

    def close(self) -> None:
        self.searches.shutdown(wait=False, cancel_futures=True)
        self.others.shutdown(wait=True)


def create_app(data: Path, master_key: str | None, *, body_limit: int = BODY_LIMIT) -> Starlette:
    """The server's application on the folder `data`, which the caller has locked."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service = Service.open(data, master_key)
        service.start()
        app.state.service = service
        app.state.pools = Pools(ThreadPoolExecutor(SEARCH_THREADS, "search"), ThreadPoolExecutor(OTHER_THREADS, "request"))
        try:
            yield
        finally:
            await asyncio.to_thread(app.state.pools.close)
            await asyncio.to_thread(service.close)

    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [
        Route(path, _handler(methods, body_limit), methods=[*methods, "HEAD"] if "GET" in methods else list(methods))
        for path, methods in by_path.items()
    ]
    handlers = {HTTPException: _http_error, Exception: _unexpected}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]


def _handler(methods: dict[str, Endpoint], body_limit: int) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        service: Service = request.app.state.service
        pools: Pools = request.app.state.pools
        try:
            permit = Permit()
            if endpoint.action is not None:
                permit = service.keys.permit(request.headers.get("authorization"), endpoint.action)
            content = await _body(request, body_limit)
            call = Call(service, permit, request.path_params, request.query_params, request.headers, content)
            answer = await (_search(endpoint, call, pools) if endpoint.is_search else _other(endpoint, call, pools))
        except ApiError as error:
            return respond(ServerResponse(error.body(), error.status))
        return respond(answer)

    return handle


async def _body(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
    body = b"".join(parts)
    encoding = request.headers.get("content-encoding", "")
    return unpack(body, encoding, limit) if encoding and body else body


async def _other(endpoint: Endpoint, call: Call, pools: Pools) -> ServerResponse:
    return await asyncio.get_running_loop().run_in_executor(pools.others, _guard, endpoint, call)


async def _search(endpoint: Endpoint, call: Call, pools: Pools) -> ServerResponse:
    """A search that exceeds its cutoff is abandoned, and a cheaper form of it is tried once."""
    if pools.waiting >= WAITING_SEARCHES:
        raise ApiError("too_many_search_requests", "Too many search requests running at the same time: 1000. Retry after 10s.")
    loop = asyncio.get_running_loop()
    seconds = _cutoff_seconds(call)
    pools.waiting += 1
    try:
        for attempt in (call, replace(call, late=True)):
            task = loop.run_in_executor(pools.searches, _guard, endpoint, attempt)
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if done:
                return task.result()
            task.add_done_callback(_forget)
            task.cancel()
    finally:
        pools.waiting -= 1
    log.warning("search_cut_off path=%s seconds=%s", endpoint.path, seconds)
    raise ApiError(
        "too_many_search_requests", f"The search exceeded its time limit twice, after {seconds * 1000:.0f} ms. Retry after 10s."
    )


def _forget(task: asyncio.Future[ServerResponse]) -> None:
    if not task.cancelled():
        task.exception()


def _cutoff_seconds(call: Call) -> float:
    entry = call.service.catalog.find(call.path.get("uid", ""))
    cutoff = entry.settings["searchCutoffMs"] if entry is not None else None
    return (CUTOFF_MS if cutoff is None else max(1, cutoff)) / 1000


def _guard(endpoint: Endpoint, call: Call) -> ServerResponse:
    """Translates errors of libraries. A panic in Rust is a BaseException and must not end the thread."""
    try:
        return endpoint.handler(call)
    except ApiError:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        log.exception("request_failed path=%s", endpoint.path)
        raise as_api_error(error) from error


def respond(answer: ServerResponse) -> Response:
    if answer.body is None and answer.status == 204:
        return Response(status_code=204)
    return Response(orjson.dumps(answer.body), answer.status, media_type="application/json")


async def _http_error(request: Request, error: HTTPException) -> Response:
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
    return respond(ServerResponse(ApiError(code, str(error.detail)).body(), error.status_code))


async def _unexpected(request: Request, error: Exception) -> Response:
    return respond(ServerResponse(ApiError("internal", f"{type(error).__name__}: {error}").body(), 500))
