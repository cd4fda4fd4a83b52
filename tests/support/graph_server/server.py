"""A small Entra ID and Microsoft Graph over TLS: what an archiver asks for, with the limits and the trouble that they make.

`python -m tests.support.graph_server.server PLAN.json`; POST /_control changes what it does, GET /_control shows what
it has seen.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl

import orjson
import uvicorn

from tests.support.graph_server.entra import Entra
from tests.support.graph_server.routes import Asked, Routes
from tests.support.graph_server.tenant import Tenant

Send = Callable[[dict[str, Any]], Awaitable[None]]
Refusal = tuple[int, dict[str, Any], dict[str, str]]
"""Status, body, headers."""
AT_ONCE = 4


class Server:
    def __init__(self, plan: dict[str, Any]) -> None:
        self.url = f"https://127.0.0.1:{plan['port']}"
        self.tenant = Tenant(plan["users"], plan.get("messages", 0), plan.get("folders", ["inbox"]), plan.get("size", 0))
        self.entra = Entra(self.url, plan.get("certificate"))
        self.routes = Routes(self.url, self.tenant, plan.get("most_per_page", 10_000))
        self.trouble: dict[str, Any] = plan.get("trouble", {})
        self.calls: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()
        self.most_at_once = 0
        self.violations: Counter[str] = Counter()
        self.throttled_until: dict[str, float] = {}
        self.recent: dict[str, deque[float]] = defaultdict(deque)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        path = scope["raw_path"].decode()
        headers = {key.decode().lower(): value.decode() for key, value in scope["headers"]}
        query = scope["query_string"].decode()
        if path == "/_control":
            await _json(send, 200, self._control(orjson.loads(body)) if body else self._seen())
        elif path.startswith(("/v1.0/", "/beta/")):
            await self._graph(Asked(scope["method"], path, query, headers, body), send)
        else:
            await self._entra(scope["method"], path, dict(parse_qsl(query)), body, send)

    # --- Entra

    async def _entra(self, method: str, path: str, query: dict[str, str], body: bytes, send: Send) -> None:
        self.calls["entra"] += 1
        tenant, _, rest = path.strip("/").partition("/")
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        match rest:
            case "v2.0/.well-known/openid-configuration":
                await _json(send, *self.entra.discovery(tenant))
            case "oauth2/v2.0/token":
                await _json(send, *self.entra.token(form))
            case "oauth2/v2.0/devicecode":
                await _json(send, 200, self.entra.device_code())
            case "oauth2/v2.0/authorize":
                await _json(send, 302, {}, {"Location": self.entra.authorize(query)})
            case _:
                await _json(send, 404, {"error": "not_found"})

    # --- Graph

    async def _graph(self, asked: Asked, send: Send) -> None:
        kind = asked.kind
        self.calls[kind] += 1
        refusal = self._refusal(asked)
        if refusal is not None:
            await asyncio.sleep(self.trouble.get("latency", 0.0))
            await _json(send, *refusal)
            return
        parts = self._parts(asked) if kind == "batch" else [asked]
        if kind == "batch" and all(part.kind == "value" for part in parts):
            self.calls["bundle"] += 1
            if planned := self._planned(asked, "bundle"):
                await _json(send, *planned)
                return
        load = {box: min(count, AT_ONCE) for box, count in Counter(part.mailbox for part in parts).items() if box}
        self.at_once.update(load)
        try:
            for box in load:
                self.most_at_once = max(self.most_at_once, self.at_once[box])
                if self.at_once[box] > AT_ONCE:
                    self.violations["more than 4 at once"] += 1
            await asyncio.sleep(self.trouble.get("latency", 0.0) * math.ceil(len(parts) / AT_ONCE))
            if any(self._hangs(part) for part in parts):
                await asyncio.sleep(3600)
            if kind == "batch":
                await _json(send, 200, self._batch(parts))
            else:
                await self._answer(asked, send)
        finally:
            self.at_once.subtract(load)

    def _hangs(self, asked: Asked) -> bool:
        kind = asked.kind
        hang_at = self.trouble.get("hang_at")
        return bool(hang_at and hang_at in asked.path) or (
            self.trouble.get("hang") == kind and self.calls[kind] > self.trouble.get("hang_after", 0)
        )

    async def _answer(self, asked: Asked, send: Send) -> None:
        answer = self.routes.answer(asked)
        if answer.chunks is None:
            await _json(send, answer.status, answer.body)
            return
        self.calls["downloads"] += 1
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
        await send(start)
        for chunk in answer.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _parts(self, asked: Asked) -> list[Asked]:
        """The requests of a batch. Graph works on four of them at once."""
        requests = orjson.loads(asked.body)["requests"]
        assert len(requests) <= 20, "Graph takes 20 at most"
        parts = []
        for one in requests:
            path, _, query = one["url"].partition("?")
            headers = {key.lower(): value for key, value in one.get("headers", {}).items()}
            parts.append(Asked("GET", f"/v1.0{path}", query, headers, b"", asked.claims, one["id"]))
            self.calls["sub-requests"] += 1
            self.calls[parts[-1].kind] += parts[-1].kind == "value"
        return parts

    def _batch(self, parts: list[Asked]) -> dict[str, Any]:
        most = self.trouble.get("most_in_batch", len(parts))
        busy = {"status": 429, "headers": {"Retry-After": "0.01"}, "body": _error("ApplicationThrottled", "MailboxConcurrency")}
        responses = [answer for part in parts[:most] if (answer := self._part(part))]
        responses += [{"id": part.id, **busy} for part in parts[most:]]
        return {"responses": list(reversed(responses))}  # in any order, as Graph does

    def _part(self, asked: Asked) -> dict[str, Any] | None:
        """`parts`: key of a message → what is wrong with the answer to its part of a batch."""
        refusal = self._throttled_part(asked) or self._limits(asked) or self._planned(asked)
        wrong = self.trouble.get("parts", {}).get(asked.steps[-2] if asked.kind == "value" else "", [])
        match wrong:
            case ["missing"]:
                return None
            case [int(status), str(code), dict(headers)]:
                refusal = status, _error(code, "planned"), headers
            case [int(status), str(text), dict(headers), "text"]:
                return {"id": asked.id, "status": status, "headers": headers, "body": text}
        if refusal:
            return {"id": asked.id, "status": refusal[0], "headers": refusal[2], "body": refusal[1]}
        answer = self.routes.answer(asked)
        if answer.chunks is None:
            return {"id": asked.id, "status": answer.status, "headers": {}, "body": answer.body}
        self.calls["downloads"] += 1
        self.calls["downloads in batches"] += 1
        headers = {"Content-Type": "text/plain"}
        return {"id": asked.id, "status": 200, "headers": headers, "body": self._in_batch(b"".join(answer.chunks), wrong)}

    def _in_batch(self, content: bytes, wrong: list[Any]) -> Any:
        """As Graph gives files: in base64. `bodies` or `parts` say how they are given instead."""
        match wrong[:1] or [self.trouble.get("bodies", "")]:
            case ["text"]:
                return content.decode(errors="replace")
            case ["json"]:
                return {"content": base64.b64encode(content).decode()}
            case ["url-safe"]:
                return base64.urlsafe_b64encode(content).decode()
            case ["lines"]:
                return base64.encodebytes(content).decode()
            case ["unix"]:
                content = content.replace(b"\r\n", b"\n")
            case ["decoded"]:
                content = content.decode(errors="replace").encode()
        return base64.b64encode(content).decode()

    def _refusal(self, asked: Asked) -> Refusal | None:
        """What is answered instead, and with which headers."""
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        claims = self.entra.use(token, self.trouble.get("token_calls", 0))
        if claims is None:
            self.calls["refused tokens"] += 1
            return 401, _error("InvalidAuthenticationToken", f"Lifetime validation failed, the token {token} is expired."), {}
        asked.claims = claims
        return self._throttled(asked) or (None if asked.kind == "batch" else self._limits(asked)) or self._planned(asked)

    def _throttled(self, asked: Asked) -> Refusal | None:
        """Each address is throttled once; whoever asks again too early has not obeyed."""
        what = f"{asked.path}?{asked.query}" if asked.kind != "batch" else f"batch {hash(asked.body)}"
        return self._throttled_once(what, self.trouble.get("throttle_each"))

    def _throttled_part(self, asked: Asked) -> Refusal | None:
        """The same for the parts of batches."""
        return self._throttled_once(asked.path, self.trouble.get("throttle_parts"))

    def _throttled_once(self, what: str, seconds: float | None) -> Refusal | None:
        if not seconds:
            return None
        until = self.throttled_until.get(what)
        if until is None:
            self.throttled_until[what] = time.monotonic() + seconds
            self.calls["throttled"] += 1
            return 429, _error("ApplicationThrottled", "Too many requests"), {"Retry-After": str(seconds)}
        if time.monotonic() < until - 0.01:
            self.violations["asked before Retry-After was over"] += 1
        return None

    def _limits(self, asked: Asked) -> Refusal | None:
        """`quota`: so many requests in `quota_seconds` for each mailbox."""
        quota, box = self.trouble.get("quota"), asked.mailbox
        if not box:
            return None
        self.calls[f"counted {box}"] += 1
        if not quota:
            return None
        now, seconds, recent = time.monotonic(), self.trouble.get("quota_seconds", 60.0), self.recent[box]
        while recent and recent[0] < now - seconds:
            recent.popleft()
        if len(recent) >= quota:
            self.violations["over the quota"] += 1
            return 429, _error("ApplicationThrottled", "Too many requests"), {"Retry-After": "1"}
        recent.append(now)
        return None

    def _planned(self, asked: Asked, kind: str = "") -> Refusal | None:
        """`fail`: kind of request → [status, code, how often]. `lost`: keys of messages that are listed and not found."""
        if "messages" in asked.steps and set(asked.steps) & set(self.trouble.get("lost", ())):
            return 404, _error("ErrorItemNotFound", "planned"), {}
        plan = self.trouble.get("fail", {}).get(kind or asked.kind)
        if not plan or plan[2] == 0:
            return None
        plan[2] -= 1
        return plan[0], _error(plan[1], f"planned, and it quotes {asked.headers.get('authorization', '')}"), {}

    # --- control

    def _seen(self) -> dict[str, Any]:
        return {
            "calls": dict(self.calls),
            "most_at_once": self.most_at_once,
            "violations": dict(self.violations),
            "grants": self.entra.asked,
            "refresh_tokens": list(self.entra.refresh_tokens),
            "access_tokens": list(self.entra.uses),
        }

    def _control(self, order: dict[str, Any]) -> Any:
        """{"trouble": …}, {"entra": …}, {"roles": …}, {"forget": "counts"}, or {"mailbox": ADDRESS, "do": METHOD, …}."""
        if "trouble" in order:
            self.trouble = order["trouble"]
            self.throttled_until.clear()
        if "entra" in order:
            self.entra.trouble = order["entra"]
        if "unified" in order:
            self.tenant.unified = order["unified"]
        if "roles" in order:
            self.entra.roles = order["roles"]
        if order.get("revoke"):
            self.entra.refresh_tokens.clear()
            self.entra.uses.clear()
        if order.get("forget") == "counts":
            self.calls.clear()
            self.violations.clear()
            self.most_at_once = 0
        if "sign_in" in order:
            return {"refresh_token": self.entra._signed_in(order["sign_in"])["refresh_token"]}
        if "mailbox" in order:
            box = self.tenant.mailbox(order["mailbox"])
            assert box is not None
            result = getattr(box, order["do"])(*order.get("args", ()), **order.get("more", {}))
            return {"result": getattr(result, "number", result)}
        return {}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


async def _json(send: Send, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    data = orjson.dumps(body)
    sent = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    sent += [(key.encode(), value.encode()) for key, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": data})


def main(plan_path: str) -> None:
    plan = json.loads(Path(plan_path).read_text())
    uvicorn.run(
        Server(plan),
        host="127.0.0.1",
        port=plan["port"],
        ssl_certfile=plan["ssl_certificate"],
        ssl_keyfile=plan["ssl_key"],
        log_level="error",
        lifespan="off",
        timeout_keep_alive=60,
    )


if __name__ == "__main__":
    main(sys.argv[1])
