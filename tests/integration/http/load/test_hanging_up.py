"""Requests that wait for their turn: dropped when their client hangs up, and whole when their turn comes. Over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import uvicorn

from archiver.http.fair_share import AT_ONCE, Fair
from tests.support.waiting import DEADLINE_SECONDS


class Counting:
    """An application that answers with what it was sent, once the gate is open; and tells what it has worked on."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun: list[str] = []

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            return
        self.begun.append(scope["path"])
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  (it is told by nobody)
            await asyncio.sleep(0.01)


def in_a_server(test: Callable[[Counting, Fair, str], Awaitable[None]]) -> None:
    async def run() -> None:
        counting = Counting()
        fair = Fair(counting)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(fair, log_config=None, lifespan="off", timeout_graceful_shutdown=5))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await until(lambda: server.started)
            await test(counting, fair, f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            counting.gate.set()
            server.should_exit = True
            await serving
            listening.close()

    asyncio.run(run())


def waiting_in(fair: Fair) -> int:
    return sum(line._inside for line in fair._queues.values())


def client(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS, limits=httpx2.Limits(max_connections=200), verify=False)


def test_what_waits_is_dropped_when_its_client_hangs_up() -> None:
    async def test(counting: Counting, fair: Fair, url: str) -> None:
        async with client(url) as staying, client(url) as leaving:
            busy = [asyncio.create_task(staying.get("/busy")) for _ in range(AT_ONCE)]
            await until(lambda: len(counting.begun) == AT_ONCE)
            impatient = [asyncio.create_task(leaving.get("/impatient")) for _ in range(20)]
            impatient += [asyncio.create_task(leaving.post("/impatient", content=b"x" * 1000)) for _ in range(5)]
            patient = asyncio.create_task(staying.post("/patient", content=b"y" * 100_000))
            await until(lambda: waiting_in(fair) == AT_ONCE + 26)
            for task in impatient:
                task.cancel()
            await asyncio.gather(*impatient, return_exceptions=True)
            await until(lambda: waiting_in(fair) == AT_ONCE + 1)  # while all turns are taken
            counting.gate.set()
            assert (await patient).content == b"y" * 100_000
            assert [answer.status_code for answer in await asyncio.gather(*busy)] == [200] * AT_ONCE
            await until(lambda: not fair._queues)
            assert sorted(set(counting.begun)) == ["/busy", "/patient"]

    in_a_server(test)


def test_turns_are_neither_lost_nor_taken_twice() -> None:
    """Some hang up just when it is their turn."""

    async def test(counting: Counting, fair: Fair, url: str) -> None:
        counting.gate.set()
        async with client(url) as one:
            for round_ in range(10):
                tasks = [asyncio.create_task(one.get("/many")) for _ in range(60)]
                await until(lambda: any(task.done() for task in tasks))  # noqa: B023  (awaited at once)
                for task in tasks[round_::3]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await until(lambda: not fair._queues)
            counting.begun.clear()
            counting.gate.clear()
            tasks = [asyncio.create_task(one.get("/again")) for _ in range(AT_ONCE + 5)]
            await until(lambda: len(counting.begun) == AT_ONCE and waiting_in(fair) == AT_ONCE + 5)
            counting.gate.set()
            assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}

    in_a_server(test)
