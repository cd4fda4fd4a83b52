"""The document of a message in the search index, and the settings of the index. Pure.

A change of either must produce a new GENERATION: the settings are part of it; for the builder, increment DOCUMENT_VERSION.

| attribute | holds |
|---|---|
| `subject`, `filenames`, `from`, `to`, `cc`, `bcc`, `people` | text that is searched (`people`: Sender and Reply-To) |
| `text_01` … `text_99` | text: new text; from 02 on quotes, nested mail and the other form; from 03 on attachments |
| `subject_is`, `filename_is` | single words, folded; `.pdf` |
| `from_is`, `to_is`, `cc_is`, `bcc_is`, `people_is` | whole addresses, `@domain`, single words of names and addresses |
| `sender`, `domain`, `kinds` | facets: the author's address and domain, kinds of files |
| `year`, `month` | facets: a token from which each time zone derives its year (tokens.year_token), the month in UTC |
| `types`, `has`, `size`, `date`, `order` | media types and extensions; `attachment`; bytes; seconds; sorts by date, then id |
| `mailbox`, `folder`, `label` | of copies, each with its mailbox: the id, and `id/folder`, `id/label` |
| `recipient` | of copies: who received it by the record of a journal, `id/bcc:address` |
| `any_folder`, `any_label`, `any_recipient`, `source` | the same, only for readers who may see all mailboxes |
| `list`, `message_id`, `hashes`, `thread`, `retention` | exact values |
| `version`, `pages`, `cut` | not searched: `index_version`; offsets of attachment pages; whether text was omitted |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from archiver.search.file_types import ending_of, kind_of
from archiver.search.pieces import Pieces
from archiver.search.tokens import copy_token, month_token, token, year_token
from archiver.search.words import words

if TYPE_CHECKING:  # a search reads the settings of the index, and no mail: the parser takes long to load
    from archiver.extract.extraction import TextPage
    from archiver.mail.message import Message
    from archiver.mail.text.marks import MarkSpan

INDEX: Final = "messages"  # the index that is searched
DOCUMENT_VERSION: Final = 3  # incremented when the same inputs produce a different document
MAX_TEXTS: Final = 99
TEXTS: Final = tuple(f"text_{number:02}" for number in range(1, MAX_TEXTS + 1))
ROLES: Final = {"from": "from", "to": "to", "cc": "cc", "bcc": "bcc", "sender": "people", "reply_to": "people"}
PEOPLE: Final = ("from", "to", "cc", "bcc", "people")
FACETS: Final = ("sender", "domain", "year", "month", "kinds", "mailbox", "folder", "label", "any_folder", "any_label")
WORDS: Final = ("subject_is", "filename_is", *(f"{role}_is" for role in PEOPLE))
RECIPIENTS: Final = ("recipient", "any_recipient")
EXACT: Final = ("id", "types", "has", "size", "date", "order", "source", "list", "message_id", "hashes", "thread", "retention")

INDEX_SETTINGS: Final[dict[str, Any]] = {
    "searchableAttributes": ["subject", TEXTS[0], "from", "filenames", "to", TEXTS[1], "cc", "bcc", "people", *TEXTS[2:]],
    "filterableAttributes": sorted({*FACETS, *WORDS, *RECIPIENTS, *EXACT}),
    "sortableAttributes": ["order"],
    # the last one decides between equals: without it the order of arrival would, which depends on mail that others have
    "rankingRules": ["sort", "words", "typo", "proximity", "attributeRank", "wordPosition", "exactness", "order:desc"],
    "faceting": {"maxValuesPerFacet": 1000, "sortFacetValuesBy": {"*": "count"}},
    "pagination": {"maxTotalHits": 1_000_000_000},
}
GENERATION: Final = hashlib.sha256(json.dumps([DOCUMENT_VERSION, INDEX_SETTINGS], sort_keys=True).encode()).hexdigest()[:12]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Participant:
    """A row of `participants`."""

    role: str
    address: str
    name: str | None


@dataclass(frozen=True, slots=True)
class IndexedCopy:
    """A row of `message_copies` that is not deleted, with the source of its mailbox."""

    mailbox_id: UUID
    source_id: UUID
    folder: str
    labels: Sequence[str] = ()
    recipients: Sequence[str] = ()
    """`role:address`, as a journal recorded them."""


@dataclass(frozen=True, slots=True)
class FileText:
    """An attachment of the message, with its text if there is any."""

    name: str
    media_type: str
    sha256: bytes
    pages: tuple[TextPage, ...] = ()


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a document is built from: the row of the message, its participants and copies, the mail, its files.

    `files` is empty while only the body is indexed; names and types of attachments come from the mail itself.
    """

    id: UUID
    version: int
    sha256: bytes
    sort_at: datetime
    size_bytes: int
    message: Message
    internet_message_id: str | None = None
    thread_id: UUID | None = None
    sender: str | None = None
    subject: str | None = None
    people: Sequence[Participant] = ()
    copies: Sequence[IndexedCopy] = ()
    files: Sequence[FileText] = ()
    retention_labels: Sequence[str] = ()


def build_document(inputs: Inputs) -> dict[str, Any]:
    """The document of one message. Attributes without a value are omitted."""
    mail = inputs.message
    document: dict[str, Any] = {
        "id": str(inputs.id),
        "version": inputs.version,
        "date": int((inputs.sort_at - _EPOCH).total_seconds() // 1),
        "order": _order(inputs.sort_at, inputs.id),
        "year": year_token(inputs.sort_at),
        "month": month_token(inputs.sort_at),
        "size": inputs.size_bytes,
        "hashes": [inputs.sha256.hex(), *{file.sha256.hex(): None for file in inputs.files}],
    }
    if inputs.subject:
        document["subject"] = inputs.subject
        document["subject_is"] = _distinct(words(inputs.subject))
    if inputs.sender:
        document["sender"] = token(inputs.sender)
        domain = inputs.sender.rpartition("@")[2] if "@" in inputs.sender else ""
        if domain:
            document["domain"] = token(domain)
    if inputs.internet_message_id:
        document["message_id"] = token(inputs.internet_message_id)
    if inputs.thread_id is not None:
        document["thread"] = str(inputs.thread_id)
    if mail.headers.list_id:
        document["list"] = list_tokens(mail.headers.list_id)
    if inputs.retention_labels:
        document["retention"] = list(inputs.retention_labels)
    _add_people(document, inputs.people)
    _add_copies(document, inputs.copies)
    _add_files(document, mail)
    _add_texts(document, inputs)
    return document


def place_of(document: Mapping[str, Any], attribute: str, start_byte: int) -> tuple[str, int] | None:
    """The file and page (0 if it has none) of a match at this byte of an attribute; None if it is in the mail itself.

    Needs only `pages` of the document.
    """
    found: tuple[str, int] | None = None
    for entry in document.get("pages", ()):
        if entry["in"] == attribute:
            for start, number in zip(entry["starts"], entry["numbers"], strict=True):
                if start <= start_byte:
                    found = entry["file"], number
    return found


def list_tokens(list_id: str) -> list[str]:
    """The List-Id and its first label: `dev.lists.example.org` also matches `dev`."""
    return _distinct([token(list_id), token(list_id.partition(".")[0])])


def recipient_tokens(recipients: Iterable[str]) -> list[str]:
    """`bcc:ann@example.org` also as `bcc:@example.org`. A recipient whose role is not known is one of To."""
    found: list[str] = []
    for one in recipients:
        role, _, address = one.partition(":")
        role = "to" if role in ("recipient", "list") else role
        found += [f"{role}:{address}", f"{role}:@{address.rpartition('@')[2]}"]
    return _distinct(found)


@lru_cache(maxsize=16384)
def people_tokens(address: str, name: str | None) -> tuple[str, ...]:
    """The tokens of a person. Cached, because the same people recur."""
    found = [token(address)] if "@" in address else []
    domain = address.rpartition("@")[2] if found else ""
    if domain:
        found.append(token(f"@{domain}"))
    found += words(address)
    if name:
        found += words(name)
    return tuple(found)


def _order(at: datetime, message_id: UUID) -> int:
    """Milliseconds followed by 9 bits of the id: one number that sorts by date and then by id, and fits a double."""
    return int((at - _EPOCH) // timedelta(milliseconds=1)) * 512 + (message_id.int >> 119)


def _add_people(document: dict[str, Any], people: Iterable[Participant]) -> None:
    for person in people:
        role = ROLES[person.role]
        texts = document.setdefault(role, [])
        if person.name and person.name != person.address:
            texts.append(person.name)
        texts.append(person.address)
        document.setdefault(f"{role}_is", {}).update(dict.fromkeys(people_tokens(person.address, person.name)))
    for role in PEOPLE:
        if role in document:
            document[f"{role}_is"] = list(document[f"{role}_is"])


def _add_copies(document: dict[str, Any], copies: Iterable[IndexedCopy]) -> None:
    found: dict[str, dict[str, None]] = {}
    for copy in copies:
        mailbox = _id_text(copy.mailbox_id)
        found.setdefault("mailbox", {})[mailbox] = None
        found.setdefault("source", {})[_id_text(copy.source_id)] = None
        found.setdefault("folder", {})[copy_token(mailbox, copy.folder)] = None
        found.setdefault("any_folder", {})[token(copy.folder)] = None
        for label in copy.labels:
            found.setdefault("label", {})[copy_token(mailbox, label)] = None
            found.setdefault("any_label", {})[token(label)] = None
        for recorded in recipient_tokens(copy.recipients):
            found.setdefault("recipient", {})[copy_token(mailbox, recorded)] = None
            found.setdefault("any_recipient", {})[token(recorded)] = None
    document.update({name: list(values) for name, values in found.items()})


def _add_files(document: dict[str, Any], mail: Message) -> None:
    if mail.has_attachments:
        document["has"] = ["attachment"]
    if not mail.attachments:
        return
    names = _distinct(file.name for file in mail.attachments if file.name)
    if names:
        document["filenames"] = names
        endings = [f".{ending_of(name)}" for name in names if ending_of(name)]
        document["filename_is"] = _distinct([*(word for name in names for word in words(name)), *endings])
    document["kinds"] = _distinct(kind_of(file.content_type, file.name) for file in mail.attachments)
    types = document["kinds"].copy()
    for file in mail.attachments:
        types += token(file.content_type), token(file.content_type.partition("/")[0]), ending_of(file.name)
    document["types"] = _distinct(one for one in types if one)


def _add_texts(document: dict[str, Any], inputs: Inputs) -> None:
    new, old = split_passages(inputs.message.text, inputs.message.spans)
    texts: list[str | list[str] | None] = []
    for passages in (new, old):
        pieces = Pieces()
        for passage in passages:
            pieces.add(passage)
        texts += pieces.texts() or [None]
    pages: list[dict[str, Any]] = []
    for file in inputs.files:
        for entries, text in _file_texts(file, len(texts)):
            texts.append(text)
            pages += entries
    document.update((name, text) for name, text in zip(TEXTS, texts, strict=False) if text is not None)
    if pages:
        document["pages"] = [entry for entry in pages if entry["in"] in document]
    if len(texts) > MAX_TEXTS:
        document["cut"] = True


def _file_texts(file: FileText, before: int) -> list[tuple[list[dict[str, Any]], str]]:
    """The text of a file as attributes, each with the pages that begin in it."""
    pieces = Pieces(joined=True)
    for page in file.pages:
        if page.text.strip():
            pieces.add(page.text, (f"{file.name}/{page.file}" if page.file else file.name, page.number))
    found: list[tuple[list[dict[str, Any]], str]] = []
    for number, (text, starts) in enumerate(pieces.joined_texts(), start=before + 1):
        entries: dict[str, dict[str, Any]] = {}
        for start, (name, page_number) in starts:
            entry = entries.setdefault(name, {"in": f"text_{number:02}", "file": name, "starts": [], "numbers": []})
            entry["starts"].append(start)
            entry["numbers"].append(page_number)
        found.append((list(entries.values()), text))
    return found


def split_passages(text: str, spans: Sequence[MarkSpan]) -> tuple[list[str], list[str]]:
    """The new text, and the text that is quoted, signature, hidden or nested; each in order, without empty passages."""
    if not spans:
        return ([text] if text and not text.isspace() else []), []
    new: list[str] = []
    old: list[str] = []
    done = 0
    for start, end in _merge_spans(spans):
        for passages, passage in ((new, text[done:start]), (old, text[start:end])):
            if passage and not passage.isspace():
                passages.append(passage)
        done = end
    if text[done:].strip():
        new.append(text[done:])
    return new, old


def _merge_spans(spans: Sequence[MarkSpan]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], span.end)
        else:
            merged.append((span.start, span.end))
    return merged


@lru_cache(maxsize=4096)
def _id_text(mailbox_or_source: UUID) -> str:
    return str(mailbox_or_source)


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
