"""A set of mail to measure with: the benchmark corpus if it is there, else mail from a seeded generator.

The generated set has the shape of real mail: sizes, conversations, several languages and scripts, HTML, attachments that occur
several times. The same seed gives the same bytes.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.header import Header
from email.utils import format_datetime
from pathlib import Path

from benchmarks.store import corpus_messages

_SCRIPTS = {
    "latin": ("abcdefghijklmnopqrstuvwxyz", 0.70),
    "german": ("abcdefghijklmnoprstuwzäöüß", 0.12),
    "cyrillic": ("абвгдежзиклмнопрстуфхцчшыья", 0.10),
    "han": ("的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年", 0.08),
}
_HTML_SHARE, _ATTACHMENT_SHARE, _REPLY_SHARE, _REPEATED_SHARE = 0.4, 0.12, 0.55, 0.3
_EPOCH = datetime(2012, 1, 2, 8, tzinfo=timezone.utc)  # noqa: UP017


def mail_set(count: int, *, seed: int = 1) -> tuple[str, list[bytes]]:
    """Its name and its messages, no two of them equal."""
    real = list(dict.fromkeys(corpus_messages()))[:count]
    return ("corpus", real) if len(real) == count else (f"generated, seed {seed}", list(generated_mail(count, seed=seed)))


def write_maildir(folder: Path, messages: list[bytes]) -> Path:
    for name in ("cur", "new", "tmp"):
        (folder / name).mkdir(parents=True)
    for number, data in enumerate(messages):
        (folder / "cur" / f"{1_600_000_000 + number}.{number}.bench:2,S").write_bytes(data)
    return folder


def generated_mail(count: int, *, seed: int) -> Iterator[bytes]:
    author = _Author(random.Random(seed))
    for number in range(count):
        yield author.write(number)


@dataclass
class _Conversation:
    script: str
    subject: str
    people: list[str]
    ids: list[str] = field(default_factory=list)


class _Author:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._words = {name: self._vocabulary(letters) for name, (letters, _) in _SCRIPTS.items()}
        self._people = [f"{self._word('latin')}.{self._word('latin')}@{self._word('latin')}.example" for _ in range(400)]
        self._conversations: list[_Conversation] = []
        self._files: list[bytes] = []

    def _vocabulary(self, letters: str) -> list[str]:
        longest = 3 if letters[0] == "的" else 11
        return ["".join(self._chance.choices(letters, k=self._chance.randint(2, longest))) for _ in range(6_000)]

    def _word(self, script: str) -> str:
        words = self._words[script]
        return words[min(int(self._chance.expovariate(4.0) * len(words)), len(words) - 1)]  # few words are used often

    def write(self, number: int) -> bytes:
        conversation = self._conversation()
        text = self._text(conversation.script)
        head = self._head(number, conversation)
        parts = [self._part("text/plain", text)]
        if self._chance.random() < _HTML_SHARE:
            parts.append(self._part("text/html", self._html(text)))
        body = parts[0] if len(parts) == 1 else self._join("alternative", parts)
        if self._chance.random() < _ATTACHMENT_SHARE:
            body = self._join("mixed", [body, self._attachment()])
        return (head + body).replace("\n", "\r\n").encode()

    def _conversation(self) -> _Conversation:
        if self._conversations and self._chance.random() < _REPLY_SHARE:
            return self._chance.choice(self._conversations[-300:])
        script = self._chance.choices(list(_SCRIPTS), [share for _, share in _SCRIPTS.values()])[0]
        subject = " ".join(self._word(script) for _ in range(self._chance.randint(2, 7)))
        begun = _Conversation(script, subject, self._chance.sample(self._people, self._chance.randint(2, 6)))
        self._conversations.append(begun)
        return begun

    def _head(self, number: int, conversation: _Conversation) -> str:
        sender, *readers = self._chance.sample(conversation.people, len(conversation.people))
        message_id = f"<{number}.{self._chance.getrandbits(64):x}@{sender.partition('@')[2]}>"
        sent = format_datetime(_EPOCH + timedelta(minutes=11 * number))
        answered = conversation.ids[-8:]
        conversation.ids.append(message_id)
        subject = Header(
            ("Re: " if answered else "") + conversation.subject, "utf-8" if conversation.script != "latin" else None
        )
        lines = [
            f"Return-Path: <{sender}>",
            f"Received: from mx{number % 7}.example ([192.0.2.{number % 250}])\n\tby mail.example with ESMTPS; {sent}",
            f"Received: from sender.example by mx{number % 7}.example; {sent}",
            f"From: {sender.split('.')[0].title()} <{sender}>",
            f"To: {', '.join(readers)}",
            f"Subject: {subject.encode()}",
            f"Date: {sent}",
            f"Message-ID: {message_id}",
            *([f"In-Reply-To: {answered[-1]}", "References: " + "\n ".join(answered)] if answered else []),
            "MIME-Version: 1.0",
        ]
        return "\n".join(lines) + "\n"

    def _text(self, script: str) -> str:
        lines: list[str] = []
        left = int(self._chance.lognormvariate(7.6, 1.0))
        while left > 0:
            line = ("> " if lines and self._chance.random() < 0.2 else "") + " ".join(self._word(script) for _ in range(11))
            lines.append(line)
            left -= len(line.encode())
        return "\n".join(lines) + "\n"

    def _html(self, text: str) -> str:
        rows = "".join(f'<tr><td style="padding:4px;font-family:Arial">{line}</td></tr>\n' for line in text.splitlines())
        return f"<html><head><style>td {{ color: #222 }}</style></head><body><table>\n{rows}</table></body></html>\n"

    def _part(self, kind: str, text: str) -> str:
        head = f"Content-Type: {kind}; charset=utf-8\n"
        if text.isascii():
            return f"{head}Content-Transfer-Encoding: 7bit\n\n{text}"
        return f"{head}Content-Transfer-Encoding: base64\n\n{base64.encodebytes(text.encode()).decode()}"

    def _attachment(self) -> str:
        if not self._files or self._chance.random() > _REPEATED_SHARE:
            make = self._chance.choice(_CONTENTS)
            self._files.append(make(self._chance, min(int(self._chance.lognormvariate(10.8, 1.2)), 3 << 20)))
        content = base64.encodebytes(self._chance.choice(self._files[-200:])).decode()
        name = self._word("latin") + self._chance.choice((".txt", ".bin", ".jpg"))
        disposition = f'Content-Disposition: attachment; filename="{name}"'
        return f"Content-Type: application/octet-stream\n{disposition}\nContent-Transfer-Encoding: base64\n\n{content}"

    def _join(self, kind: str, parts: list[str]) -> str:
        boundary = f"=_{self._chance.getrandbits(80):x}"
        inside = "".join(f"--{boundary}\n{part}\n" for part in parts)
        return f'Content-Type: multipart/{kind}; boundary="{boundary}"\n\n{inside}--{boundary}--\n'


def _noise(chance: random.Random, size: int) -> bytes:
    return chance.randbytes(size)


def _table(chance: random.Random, size: int) -> bytes:
    line = "{},{},{}\n"
    return "".join(line.format(n, chance.randint(0, 9999), chance.random()) for n in range(size // 28)).encode()


_CONTENTS: tuple[Callable[[random.Random, int], bytes], ...] = (_noise, _table)
