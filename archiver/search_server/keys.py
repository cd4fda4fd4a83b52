"""API keys and tenant tokens: which actions they allow on which indexes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from archiver.search_server import timestamps
from archiver.search_server.errors import ApiError
from archiver.search_server.index.settings import kind
from archiver.search_server.state import ServerState

_AREAS = {
    "documents": ("add", "get", "delete"),
    "indexes": ("create", "get", "update", "delete", "swap", "compact"),
    "fields": ("post",),
    "tasks": ("get", "cancel", "delete"),
    "settings": ("get", "update"),
    "stats": ("get",),
    "metrics": ("get",),
    "dumps": ("create",),
    "snapshots": ("create",),
    "keys": ("get", "create", "update", "delete"),
    "experimental": ("get", "update"),
    "network": ("get", "update"),
    "chats": ("get", "delete"),
    "chatsSettings": ("get", "update"),
    "webhooks": ("get", "create", "update", "delete"),
}
ACTIONS = frozenset(
    {"*", "search", "version", "export", "chatCompletions", "*.get"}
    | {f"{area}.{action}" for area, actions in _AREAS.items() for action in (*actions, "*")}
)
_IMMUTABLE = ("uid", "key", "actions", "indexes", "expiresAt", "createdAt", "updatedAt")
_INDEX_PATTERN = re.compile(r"\*|[a-zA-Z0-9_-]{1,400}\*?")


@dataclass(frozen=True, slots=True)
class Permit:
    """What the bearer may access: all indexes, or some, each with the filter of a tenant token if there is one."""

    patterns: tuple[str, ...] = ("*",)
    rules: dict[str, Any] | None = None

    def allows(self, uid: str) -> bool:
        if not any(_fits(pattern, uid) for pattern in self.patterns):
            return False
        return self.rules is None or any(_fits(pattern, uid) for pattern in self.rules)

    def filter_for(self, uid: str) -> Any:
        if self.rules is None:
            return None
        exact = self.rules.get(uid)
        rule = exact if uid in self.rules else next((rule for pattern, rule in self.rules.items() if _fits(pattern, uid)), None)
        return rule.get("filter") if isinstance(rule, dict) else None


def _fits(pattern: str, uid: str) -> bool:
    return uid.startswith(pattern[:-1]) if pattern.endswith("*") else uid == pattern


INVALID = ApiError("invalid_api_key", "The provided API key is invalid.")


class KeyRing:
    """Without a master key, everything is allowed."""

    def __init__(self, state: ServerState, master_key: str | None) -> None:
        self._state = state
        self._master_key = master_key or None
        if self._master_key and not self._state.note("default_keys"):
            with state.transaction():
                for key in _default_keys():
                    self._save(key)
                state.set_note("default_keys", True)

    def permit(self, authorization: str | None, action: str) -> Permit:
        """Raises ApiError if the header is missing or does not allow the action."""
        if self._master_key is None:
            return Permit()
        if not authorization or not authorization.startswith("Bearer "):
            raise ApiError(
                "missing_authorization_header",
                "The Authorization header is missing. It must use the bearer authorization method.",
            )
        token = authorization.removeprefix("Bearer ").strip()
        if _same(token, self._master_key):
            return Permit()
        for key in self.all():
            if _same(token, self.secret(key)):
                return self._by_key(key, action)
        return self._by_token(token, action)

    def _by_key(self, key: dict[str, Any], action: str) -> Permit:
        expires = timestamps.parse(key["expiresAt"]) if key["expiresAt"] else None
        if (expires is not None and expires <= datetime.now(UTC)) or not _allowed(key["actions"], action):
            raise INVALID
        return Permit(tuple(key["indexes"]))

    def _by_token(self, token: str, action: str) -> Permit:
        if action != "search" or token.count(".") != 2:
            raise INVALID
        head, claims, signature = token.split(".")
        try:
            header, content = orjson.loads(_unbase64(head)), orjson.loads(_unbase64(claims))
            key = self.find(str(content["apiKeyUid"]))
            method = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[header["alg"]]
            given = _unbase64(signature)
        except (ValueError, KeyError, TypeError, ApiError):
            raise INVALID from None
        expected = hmac.new(self.secret(key).encode(), f"{head}.{claims}".encode(), method).digest()
        if not hmac.compare_digest(expected, given):
            raise INVALID
        if content.get("exp") is not None and float(content["exp"]) <= time.time():
            raise INVALID
        rules = content.get("searchRules")
        if isinstance(rules, list):
            rules = {str(name): None for name in rules}
        if not isinstance(rules, dict):
            raise INVALID
        permit = self._by_key(key, action)
        return Permit(permit.patterns, rules)

    def secret(self, key: dict[str, Any]) -> str:
        """The key itself, derived from its uid and the master key."""
        return hmac.new((self._master_key or "").encode(), str(key["uid"]).encode(), hashlib.sha256).hexdigest()

    def require_master_key(self) -> None:
        if self._master_key is None:
            raise ApiError(
                "missing_master_key",
                "Meilisearch is running without a master key."
                " To access this API endpoint, you must have set a master key at launch.",
            )

    def all(self) -> list[dict[str, Any]]:
        keys = [row["content"] for row in self._state.all("SELECT content FROM keys")]
        return sorted(keys, key=lambda key: key["createdAt"], reverse=True)

    def find(self, name: str) -> dict[str, Any]:
        for key in self.all():
            if key["uid"] == name or _same(self.secret(key), name):
                return key
        raise ApiError("api_key_not_found", f"API key `{name}` not found.")

    def shown(self, key: dict[str, Any]) -> dict[str, Any]:
        return {**key, "key": self.secret(key)}

    def create(self, body: Any) -> dict[str, Any]:
        key = _check_new(body)
        if any(known["uid"] == key["uid"] for known in self.all()):
            raise ApiError("api_key_already_exists", f"`uid` field value `{key['uid']}` is already an existing API key.")
        self._save(key)
        return self.shown(key)

    def update(self, name: str, body: Any) -> dict[str, Any]:
        key = self.find(name)
        if not isinstance(body, dict):
            raise ApiError("bad_request", f"Invalid value type: expected an object, but found {kind(body)}")
        for field in body:
            if field in _IMMUTABLE:
                code = "immutable_api_key_" + re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), field)
                raise ApiError(code, f"Immutable field `{field}`: expected one of `description`, `name`")
            if field not in ("name", "description"):
                raise ApiError("bad_request", f"Unknown field `{field}`: expected one of `description`, `name`")
            if body[field] is not None and not isinstance(body[field], str):
                raise ApiError(f"invalid_api_key_{field}", f"Invalid value type at `.{field}`: expected a string")
        key = {**key, **body, "updatedAt": timestamps.now()}
        self._save(key)
        return self.shown(key)

    def delete(self, name: str) -> None:
        self._state.run("DELETE FROM keys WHERE uid = ?", [self.find(name)["uid"]])

    def _save(self, key: dict[str, Any]) -> None:
        self._state.run("INSERT OR REPLACE INTO keys (uid, content) VALUES (?, ?)", [key["uid"], orjson.dumps(key)])


def _same(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(), right.encode())


def _allowed(actions: list[str], action: str) -> bool:
    area = action.split(".")[0]
    return any(one in ("*", action, f"{area}.*") or (one == "*.get" and action.endswith(".get")) for one in actions)


def _unbase64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _new_key(
    name: str | None, description: str | None, actions: list[str], indexes: list[str], expires: str | None, uid: str
) -> dict[str, Any]:
    now = timestamps.now()
    return {
        "name": name, "description": description, "key": "", "uid": uid, "actions": actions, "indexes": indexes,
        "expiresAt": expires, "createdAt": now, "updatedAt": now,
    }  # fmt: skip


def _default_keys() -> list[dict[str, Any]]:
    admin = "Use it for anything that is not a search operation. Caution! Do not expose it on a public frontend"
    return [
        _new_key("Default Admin API Key", admin, ["*"], ["*"], None, str(uuid.uuid4())),
        _new_key("Default Search API Key", "Use it to search from the frontend", ["search"], ["*"], None, str(uuid.uuid4())),
    ]


def _check_new(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ApiError("bad_request", f"Invalid value type: expected an object, but found {kind(body)}")
    for field in body:
        if field not in ("name", "description", "uid", "actions", "indexes", "expiresAt"):
            raise ApiError(
                "bad_request",
                f"Unknown field `{field}`: expected one of `description`, `name`, `uid`, `actions`, `indexes`, `expiresAt`",
            )
    for field in ("actions", "indexes", "expiresAt"):
        if field not in body:
            code = "missing_api_key_" + re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), field)
            raise ApiError(code, f"Missing field `{field}`")
    for field in ("name", "description"):
        if body.get(field) is not None and not isinstance(body[field], str):
            raise ApiError(
                f"invalid_api_key_{field}",
                f"Invalid value type at `.{field}`: expected a string, but found {kind(body[field])}",
            )
    actions, indexes = body["actions"], body["indexes"]
    if not isinstance(actions, list) or not all(action in ACTIONS for action in actions):
        raise ApiError(
            "invalid_api_key_actions",
            f"Invalid value at `.actions`: expected a list of actions such as {', '.join(sorted(ACTIONS)[:8])}",
        )
    if not isinstance(indexes, list) or not all(isinstance(one, str) and _INDEX_PATTERN.fullmatch(one) for one in indexes):
        raise ApiError("invalid_api_key_indexes", "Invalid value at `.indexes`: expected a list of index uids or patterns")
    return _new_key(
        body.get("name"), body.get("description"), actions, indexes, _expiry(body["expiresAt"]), _uid(body.get("uid"))
    )


def _expiry(value: Any) -> str | None:
    if value is None:
        return None
    parsed = timestamps.parse(value) if isinstance(value, str) else None
    if parsed is None or parsed <= datetime.now(UTC):
        raise ApiError(
            "invalid_api_key_expires_at",
            f"Invalid value at `.expiresAt`: `{value}` is not a valid date or lies in the past."
            " It should follow the RFC 3339 format or be specified as a numerical value or null.",
        )
    return parsed.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _uid(value: Any) -> str:
    if value is None:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise ApiError("invalid_api_key_uid", f"Invalid value at `.uid`: `{value}` is not a valid UUID v4.") from None
