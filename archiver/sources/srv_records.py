"""Asks the machine's resolver for SRV records (RFC 2782). The standard library can't."""

from __future__ import annotations

import secrets
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_SRV, _IN = 33, 1
_SECONDS = 3.0
_ANSWER_BYTES = 4096
_POINTERS = 20


@dataclass(frozen=True, slots=True, order=True)
class SrvRecord:
    priority: int
    weight: int
    port: int
    target: str


def resolvers(path: Path = Path("/etc/resolv.conf")) -> list[str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    return [words[1] for line in lines if len(words := line.split()) > 1 and words[0] == "nameserver"]


def find_srv(name: str, servers: list[str] | None = None, port: int = 53) -> list[SrvRecord]:
    """By priority; empty if there are none, or no resolver answers. A target of `.` means that there is no such service."""
    question = encode_question(name, number := secrets.randbelow(1 << 16))
    for server in (resolvers() if servers is None else servers)[:3]:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as line:
                line.settimeout(_SECONDS)
                line.connect((server, port))  # only this server's answers are received
                line.send(question)
                answer = line.recv(_ANSWER_BYTES)
        except OSError:
            continue
        if answer[:2] == struct.pack(">H", number):
            return sorted(decode_answer(answer))
    return []


def encode_question(name: str, number: int) -> bytes:
    labels = b"".join(bytes([len(part)]) + part for part in name.encode("idna").split(b"."))
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", _SRV, _IN)


def decode_answer(data: bytes) -> list[SrvRecord]:
    """Of any bytes: what can't be read is left out."""
    found = []
    try:
        _, _, questions, answers, _, _ = struct.unpack_from(">HHHHHH", data)
        at = 12
        for _ in range(questions):
            at = _read_name(data, at)[1] + 4
        for _ in range(answers):
            at = _read_name(data, at)[1]
            kind, _, _, length = struct.unpack_from(">HHIH", data, at)
            at += 10
            if kind == _SRV:
                priority, weight, port = struct.unpack_from(">HHH", data, at)
                target, _ = _read_name(data, at + 6)
                if target:
                    found.append(SrvRecord(priority, weight, port, target))
            at += length
    except (struct.error, IndexError, ValueError):
        return found
    return found


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    """The name at this place, and where the next field begins. Pointers go back, and not for ever."""
    labels: list[str] = []
    end = -1
    for _ in range(_POINTERS * 10):
        length = data[at]
        if length == 0:
            return ".".join(labels), at + 1 if end < 0 else end
        if length >= 0xC0:
            end = at + 2 if end < 0 else end
            at = (length & 0x3F) << 8 | data[at + 1]
            continue
        labels.append(data[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    raise ValueError("a name without an end")
