"""The requests about whole messages that a parsing child answers. It knows neither database nor packs.

For the index, a group of messages is parsed and kept (`texts`) until its documents are requested (`documents`): what is known
of their attachments is looked up in between. Text goes one way only, as part of a document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import orjson

from archiver.db.values import clean
from archiver.extract.extraction import TextPage
from archiver.extract.serving import Answer, Answers
from archiver.mail.message import Message, read_texts
from archiver.parsing import marks as mail_marks
from archiver.parsing import opened_mail
from archiver.search.document import FileText, IndexedCopy, Inputs, Participant, build_document

_held: list[Message] = []


def _texts(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    """The files of each message; messages in `nested` have to be sent whole, one by one (`whole`)."""
    _held.clear()
    _held.extend(read_texts(pieces))
    found: list[Any] = []
    nested: list[int] = []
    for number, message in enumerate(_held):
        left_out = {bytes.fromhex(sha256): size for sha256, size in (header["left_out"].get(str(number)) or {}).items()}
        if left_out and mail_marks.holds_nested(message):
            nested.append(number)
        else:
            _held[number] = message = mail_marks.with_parts(message, left_out)
        found.append(_read(message, left_out))
    return {"found": found, "nested": nested}, ()


def _whole(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    (message,) = read_texts(pieces)
    _held[header["number"]] = message
    return {"found": _read(message, {})}, ()


def _read(message: Message, left_out: dict[bytes, int]) -> list[Any]:
    files = [
        (
            file.name,
            file.content_type,
            file.position,
            file.inline,
            file.content_id,
            file.is_message,
            file.size_bytes,
            file.sha256.hex(),
            file.measured is not None and file.sha256 in left_out,
        )
        for file in message.attachments
    ]
    return [files, message.has_attachments, "text_too_large" in message.defects]


def _content(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    return {}, (_held[header["number"]].attachments[header["file"]].content,)


def _documents(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    """For each message of the group: its document and whether text was omitted, or the reason why there is none."""
    documents: list[bytes] = []
    notes: list[Any] = []
    for message, given in zip(_held, header["inputs"], strict=True):
        try:
            document = build_document(_inputs(message, *given))
            documents.append(_json(document))
            notes.append([bool(document.get("cut")), None])
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (of one of them: the others go on)
            documents.append(b"")
            notes.append([False, type(error).__name__])
    _held.clear()
    return {"notes": notes}, documents


def _inputs(
    message: Message,
    message_id: str,
    version: int,
    sha256: str,
    sort_at: str,
    size_bytes: int,
    internet_message_id: str | None,
    thread_id: str | None,
    sender: str | None,
    subject: str | None,
    people: Sequence[Sequence[Any]],
    copies: Sequence[Sequence[Any]],
    pages: dict[str, Any],
    retention_labels: Sequence[str] = (),
) -> Inputs:
    return Inputs(
        id=UUID(message_id),
        version=version,
        sha256=bytes.fromhex(sha256),
        sort_at=datetime.fromisoformat(sort_at),
        size_bytes=size_bytes,
        message=message,
        internet_message_id=internet_message_id,
        thread_id=UUID(thread_id) if thread_id is not None else None,
        sender=sender,
        subject=subject,
        people=[_person(*person) for person in people],
        copies=[IndexedCopy(_id(mailbox), _id(source), *rest) for mailbox, source, *rest in copies],
        files=[
            FileText(file.name, file.content_type, file.sha256, tuple(TextPage(*page) for page in pages.get(str(number), ())))
            for number, file in enumerate(message.attachments)
        ],
        retention_labels=retention_labels,
    )


_person = lru_cache(maxsize=16384)(Participant)
"""A cache, because most addresses occur again and again."""
_id = lru_cache(maxsize=4096)(UUID)


def _json(document: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError:  # lone surrogates
        return orjson.dumps(clean(document))


# for the web process


def _open(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    return {"content": clean(asdict(opened_mail.content_of(pieces[0], header["files_at"])))}, ()


def _header(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    return {"header": clean(asdict(opened_mail.header_of(pieces[0])))}, ()


def _frame(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    html = opened_mail.frame_of(pieces[0], keep_remote=header["keep_remote"])
    return {}, (html.encode("utf-8", "replace"),)


def _file(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    file = opened_mail.file_of(pieces[0], header["number"])
    if file is None:
        return {"name": None}, ()
    return {"name": clean(file.name), "content_type": file.content_type, "sha256": file.sha256.hex()}, (file.data,)


ANSWERS: Answers = {
    "texts": _texts,
    "whole": _whole,
    "content": _content,
    "documents": _documents,
    "open": _open,
    "header": _header,
    "frame": _frame,
    "file": _file,
}
