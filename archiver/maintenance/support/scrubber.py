"""Removes from a text what identifies people, servers and mail, and every secret that is known. Pure.

Error messages come from mail servers, file systems and libraries, so they may quote anything. What is left has to be enough to
recognise an error: its words, its numbers, and our own ids.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_MAX_CHARACTERS = 4_000
_SHORTEST_SECRET = 4
"""Shorter values would take apart ordinary words."""

# In this order: an address is part of a URL, and a host is part of an address. Both begin only where a word begins, so that a
# long word is read once. A quotation mark that is never closed hides the rest of its line, unless it may be an apostrophe.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("url", re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]+", re.IGNORECASE)),
    ("address", re.compile(r"(?<![^\s<>\"'(),;:=@])[^\s<>\"'(),;:=@]++@[^\s<>\"'(),;:=@]+")),
    ("quoted", re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*+”?|‘[^’\n]*+’?|[«»][^«»\n]*+[«»]?|„[^“”\n]*+[“”]?")),
    ("path", re.compile(r"(?<![\w.])~?(?:/[^\s:,;()]+){2,}")),
    ("host", re.compile(r"(?<![\w-])(?<![\w-]\.)(?:[\w-]++\.)+[^\W\d_]{2,24}\b(?!\()")),
    ("ip", re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{1,4}:){3,}[0-9a-f:]*", re.IGNORECASE)),
    ("token", re.compile(rf"(?!{_ID})[A-Za-z0-9_+/=-]{{24,}}")),
)
_OWN_MODULE = re.compile(r"(?:archiver|workers|connectors|migrations|sqlalchemy|psycopg|redis|bullmq|asyncio)(?:\.\w+)+")
_FRAME = re.compile(r'^(?P<indent>\s*)File "(?P<path>[^"]*)"(?P<rest>.*)$')
_KNOWN_FOLDER = re.compile(r".*/((?:site-packages|archiver|workers|connectors|migrations)/.*)")
_ERROR_LINE = re.compile(r"(?P<kind>(?:(?:\w*+\.)++|\w)[^\WA-Z]*+[A-Z]\w++)(?P<rest>: .*)?$")
_SAFE_FIELDS = frozenset({"timestamp", "level", "logger", "event", "queue", "job", "part", "kind", "stage", "state"})


@dataclass(frozen=True, slots=True)
class Scrubber:
    secrets: tuple[str, ...] = ()
    """Values that must not appear, whatever is around them."""
    names: tuple[str, ...] = ()
    """Of sources, people and servers."""
    key: bytes = field(default=b"", repr=False)
    """Of this bundle: the same name gets the same mark, and no mark can be tried out against a list of names."""

    @classmethod
    def of(cls, secrets: Iterable[str], names: Iterable[str], key: bytes) -> Scrubber:
        return cls(_longest_first(secrets), _longest_first(names), key)

    def mark(self, kind: str, value: str) -> str:
        """What stands for the value: the same for the same value within a bundle."""
        digest = hmac.new(self.key, value.casefold().encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        return f"<{kind} {digest[:8]}>"

    def text(self, value: str) -> str:
        for secret in self.secrets:  # before the text is cut, which might leave the first half of one
            value = value.replace(secret, "<secret>")
        value = value[:_MAX_CHARACTERS]
        for name in self.names:
            value = re.sub(re.escape(name), lambda found: self.mark("name", found[0]), value, flags=re.IGNORECASE)
        for kind, pattern in _PATTERNS:
            value = pattern.sub(lambda found, kind=kind: self._replace(kind, found[0]), value)  # type: ignore[misc]
        return value

    def _replace(self, kind: str, found: str) -> str:
        if kind == "quoted" and re.fullmatch(r"\W<[^<>]*>\W?", found):
            return found
        if kind == "host" and _OWN_MODULE.fullmatch(found):
            return found
        return "<quoted>" if kind in ("quoted", "token") else self.mark(kind, found)

    def traceback(self, value: str) -> str:
        """Files, lines and functions stay; of the error itself its type, and its scrubbed text."""
        return "\n".join(self._traceback_line(line) for line in value.splitlines())[-_MAX_CHARACTERS:]

    def _traceback_line(self, line: str) -> str:
        if frame := _FRAME.match(line):
            known = _KNOWN_FOLDER.match(frame["path"])
            return f"{frame['indent']}File {known[1] if known else frame['path'].rpartition('/')[2]}{frame['rest']}"
        if line.startswith("    "):
            return "    …"  # the line of the program: may hold a literal of a test or a local change
        if error := _ERROR_LINE.match(line):
            return error["kind"] + (self.text(error["rest"]) if error["rest"] else "")
        return self.text(line)

    def event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """A line of a log: what is a number or one of our ids stays, every other text is scrubbed."""
        return {name: self._field(name, value) for name, value in event.items()}

    def _field(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if name == "exception":
            return self.traceback(str(value))
        if isinstance(value, str) and (
            re.fullmatch(_ID, value) or (name in _SAFE_FIELDS and re.fullmatch(r"[\w.:+-]{1,80}", value))
        ):
            return self._without_secrets(value)
        return self.text(value if isinstance(value, str) else repr(value))

    def _without_secrets(self, value: str) -> str:
        return "<secret>" if any(secret in value for secret in self.secrets) else value

    def contains_secret(self, value: str) -> bool:
        return any(secret in value for secret in self.secrets)


def _longest_first(values: Iterable[str]) -> tuple[str, ...]:
    """A value may contain another one, which would leave its rest behind."""
    return tuple(sorted({value for value in values if len(value) >= _SHORTEST_SECRET}, key=lambda value: (-len(value), value)))
