"""The path of a message from server to server (RFC 5321, section 4.4), and what the receiving servers report about its
authenticity (RFC 8601), as they wrote it. Anyone can write such lines: below the first server you trust, they prove nothing."""

import re
from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.defects import Defects
from archiver.mail.header.dates import parse_date
from archiver.mail.header.words import unstructured

_HOPS = 100
_CHECKS = 100
_PART_CHARS = 500
_WORDS = 60
_KEYS = frozenset({"from", "by", "via", "with", "id", "for"})
_ENCRYPTED = re.compile(r"(?:^|[^A-Za-z])(?:E?SMTPSA?|LMTPSA?|UTF8SMTPSA?|HTTPS|TLS)(?![A-Za-z])")
_ADDRESS = re.compile(r"\[([0-9A-Fa-f.:]{2,50})\]")


@dataclass(frozen=True, slots=True)
class Hop:
    """One server that took the message over from another."""

    sender: str
    sender_address: str
    """The IP address that the receiving server saw."""
    receiver: str
    protocol: str
    at: str
    """In ISO format, in UTC; empty if it can't be read."""
    is_encrypted: bool


@dataclass(frozen=True, slots=True)
class AuthenticityCheck:
    """One result of an Authentication-Results field."""

    server: str
    method: str
    result: str
    detail: str


def read_route(received: list[str]) -> tuple[Hop, ...]:
    """The hops in the order of travel, from the Received fields in the order of the header. Never raises."""
    return tuple(parse_hop(value) for value in reversed(received[:_HOPS]))


def parse_hop(value: str) -> Hop:
    """One Received field. Linear in its length."""
    text = unstructured(value[: limits.VALUE_CHARS], Defects())
    clauses, _, stamp = text.rpartition(";")
    at = parse_date(stamp.strip()[:_PART_CHARS])
    if not clauses:
        clauses = text
    plain, comments = split_comments(clauses)
    found = _clauses(plain)
    address = _ADDRESS.search(comments) or _ADDRESS.search(found.get("from", ""))
    protocol = found.get("with", "")
    is_encrypted = _ENCRYPTED.search(protocol.upper()) is not None or _ENCRYPTED.search(comments) is not None
    return Hop(
        sender=found.get("from", ""),
        sender_address=address[1] if address else "",
        receiver=found.get("by", ""),
        protocol=protocol,
        at=at.isoformat() if at else "",
        is_encrypted=is_encrypted,
    )


def parse_results(value: str) -> tuple[AuthenticityCheck, ...]:
    """One Authentication-Results field. Linear in its length."""
    plain, _ = split_comments(unstructured(value[: limits.VALUE_CHARS], Defects()))
    server, *results = plain.split(";")
    name = (server.split() or [""])[0][:_PART_CHARS]
    found = []
    for result in results[:_CHECKS]:
        words = result.split(maxsplit=_WORDS)
        method, equals, outcome = words[0].partition("=") if words else ("", "", "")
        if equals:
            detail = " ".join(words[1:_WORDS])[:_PART_CHARS]
            found.append(AuthenticityCheck(name, method.lower()[:50], outcome.lower()[:50], detail))
    return tuple(found)


def split_comments(text: str) -> tuple[str, str]:
    """The text without its comments in parentheses, which may be nested or never close, and the comments."""
    plain: list[str] = []
    comments: list[str] = []
    depth = 0
    for piece in re.split(r"([()])", text):
        if piece == "(":
            depth += 1
            comments.append(" ")
        elif piece == ")":
            depth = max(0, depth - 1)
        else:
            (comments if depth else plain).append(piece)
    return " ".join(plain), "".join(comments)


def _clauses(text: str) -> dict[str, str]:
    """The word after each keyword, and for `with` all up to the next one; the first of each counts."""
    found: dict[str, str] = {}
    key = ""
    for word in text.split(maxsplit=_WORDS)[:_WORDS]:
        if word.lower() in _KEYS and word.lower() not in found:
            key = word.lower()
            found[key] = ""
        elif key and (not found[key] or key == "with"):
            found[key] = f"{found[key]} {word}".strip()[:_PART_CHARS]
    return found
