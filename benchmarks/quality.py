"""How well mail is read, not how fast: `python -m benchmarks.quality [CORPUS] [--round-trips N]`.

Everything is held against a second opinion that shares no code with ours: Python's own parser and a plain HTML reader for
bodies, subjects, dates and senders; a plain XML reader, or another library, for attachments; the ids in the headers for
conversations. Where the two differ, either may be wrong: the figures are for comparing releases, and for finding odd mail.
"""

from __future__ import annotations

import argparse
import email
import email.policy
import email.utils
import hashlib
import html.parser
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.header import decode_header, make_header
from email.message import Message as StandardMessage
from pathlib import Path
from uuid import UUID
from xml.etree import ElementTree

import kreuzberg

from archiver.config import Settings
from archiver.extract.extractor import Extractor
from archiver.mail.header.headers import Headers, read_headers
from archiver.mail.message import read_message
from archiver.mail.thread_groups import group_messages
from archiver.mail.threads import Correspondents, normalise_subject, thread_keys
from benchmarks.list_traffic import ListTraffic, true_groups
from benchmarks.mail import DEFAULT_CORPUS, benchmark_set
from benchmarks.report import figure

_WORD = re.compile(r"[^\W_]{3,40}")
_ADDRESS = re.compile(r"\S+://\S+|\S+@\S+")
_XML_KINDS = {"docx": "word/", "xlsx": "xl/", "pptx": "ppt/", "odt": "", "ods": "", "odp": ""}
_XML_LEFT_OUT = re.compile(r"/(?:slideMasters|slideLayouts|notesMasters|handoutMasters)/")  # prompts
_XML_BREAKS = frozenset(
    {
        "p",
        "h",
        "tc",
        "tr",
        "si",
        "is",
        "row",
        "table-cell",
        "br",
        "tab",
        "s",
        "line-break",
        "cm",
        "comment",
        "title",
        "desc",
        "text",
    }
)
_OTHER_KINDS = {
    "doc": "application/msword",
    "ppt": "application/vnd.ms-powerpoint",
    "xls": "application/vnd.ms-excel",
    "rtf": "application/rtf",
    "epub": "application/epub+zip",
}
_HIDDEN_SHARE = 20  # one in so many replies has its ids taken away
_START = datetime(1990, 1, 1, tzinfo=UTC)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", nargs="?", type=Path, default=DEFAULT_CORPUS)
    parser.add_argument("--round-trips", type=int, default=1000, help="messages that go out and come in again; 0: none")
    options = parser.parse_args()
    raws = list(map(_without_postmark, benchmark_set(options.corpus)))
    _bodies(raws)
    _headers(raws)
    _attachments(options.corpus / "public" / "attachments")
    _conversations(raws)
    _generated_list()
    if options.round_trips:
        _round_trips(raws[:: max(1, len(raws) // options.round_trips)])


def words(text: str) -> set[str]:
    return set(_WORD.findall(_ADDRESS.sub(" ", text).casefold()))


def _without_postmark(raw: bytes) -> bytes:
    return raw.partition(b"\n")[2] if raw.startswith(b"From ") else raw


@dataclass(slots=True)
class Recall:
    """Of the words that a second reader finds: how many we have."""

    expected: int = 0
    found: int = 0
    things: int = 0
    poor: int = 0

    def add(self, expected: set[str], found: set[str]) -> None:
        if not expected:
            return
        there = len(expected & found)
        self.expected += len(expected)
        self.found += there
        self.things += 1
        self.poor += there < 0.95 * len(expected)

    def print(self, name: str, target: str = "") -> None:
        if self.things:
            figure(f"words found: {name}", 100 * self.found / self.expected, "%", target)
            figure(f"  with less than 95 % of its words, of {self.things:,}", self.poor, "")


class _Visible(html.parser.HTMLParser):
    """What a browser without styles would show."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("style", "script", "title")
        if tag not in ("b", "i", "u", "em", "strong", "span", "font", "a", "big", "small", "tt"):
            self.pieces.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "script", "title") and self._hidden > 0

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)


def _part_text(part: StandardMessage) -> str:
    payload = part.get_payload(decode=True)
    content = payload if isinstance(payload, bytes) else b""
    charset = part.get_content_charset() or "utf-8"
    return content.decode(charset, "strict")


def _bodies(raws: Sequence[bytes]) -> None:
    plain, only_html, both = Recall(), Recall(), Recall()
    for raw in raws:
        texts: dict[str, list[str]] = defaultdict(list)
        try:
            for part in email.message_from_bytes(raw, policy=email.policy.compat32).walk():
                if part.get_content_type() in ("text/plain", "text/html") and part.get_content_disposition() != "attachment":
                    texts[part.get_content_type()].append(_part_text(part))
        except (LookupError, UnicodeError, AttributeError, ValueError, TypeError, AssertionError):
            continue  # their parser does not survive this one, or its charset is not what it says
        visible = _Visible()
        for text in texts["text/html"]:
            visible.feed(text)
        in_plain, in_html = words("\n".join(texts["text/plain"])), words("".join(visible.pieces))
        found = words(read_message(raw).text)
        (both if in_plain and in_html else plain if in_plain else only_html).add(in_plain | in_html, found)
    plain.print("bodies, plain", "99")
    only_html.print("bodies, HTML alone", "99")
    both.print("bodies, both halves", "99")


def _headers(raws: Sequence[bytes]) -> None:
    subjects = Recall()
    dates, senders = Counter[bool](), Counter[bool]()
    for raw in raws:
        theirs, ours = email.message_from_bytes(raw, policy=email.policy.compat32), read_headers(raw)
        subject, date, sender = theirs["subject"], theirs["date"], theirs["from"]
        with suppress(LookupError, ValueError, email.errors.HeaderParseError):
            subjects.add(words(str(make_header(decode_header(str(subject or ""))))), words(ours.subject))
        try:
            at = email.utils.parsedate_to_datetime(str(date)) if date else None
        except (ValueError, TypeError, IndexError):
            at = None
        if at is not None and 1970 < at.year < 2200:
            dates[ours.date == (at if at.tzinfo else at.replace(tzinfo=UTC))] += 1
        address = email.utils.parseaddr(str(sender or ""))[1].lower()
        if "@" in address and address.isascii():
            senders[any(one.key == address for one in ours.from_)] += 1
    subjects.print("subjects", "99")
    figure(f"dates as Python's parser reads them, of {dates.total():,}", 100 * dates[True] / dates.total(), "%")
    figure(f"senders as Python's parser reads them, of {senders.total():,}", 100 * senders[True] / senders.total(), "%")


def _xml_words(data: bytes, folder: str) -> set[str]:
    """The character data of all parts that may hold text. Runs inside a paragraph are joined."""
    pieces: list[str] = []
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            is_text = name.startswith(folder) if folder else name == "content.xml"
            if is_text and name.endswith(".xml") and not _XML_LEFT_OUT.search(name):
                _collect(ElementTree.fromstring(archive.read(name)), pieces, is_ooxml=bool(folder))
    return words("".join(pieces))


def _collect(element: ElementTree.Element, pieces: list[str], *, is_ooxml: bool) -> None:
    local = element.tag.rpartition("}")[2]
    if local == "Fallback":
        return
    if not is_ooxml or local in ("t", "text"):
        pieces.append(element.text or "")
    for child in element:
        _collect(child, pieces, is_ooxml=is_ooxml)
        pieces.append("" if is_ooxml else child.tail or "")
    pieces.append("\n" if local in _XML_BREAKS else "")


def _their_words(kind: str, data: bytes) -> set[str]:
    if kind in _XML_KINDS:
        return _xml_words(data, _XML_KINDS[kind])
    options = {"disable_ocr": True}
    config = kreuzberg.ExtractionConfig(use_cache=False, **options)  # type: ignore[arg-type]
    return words(kreuzberg.extract_bytes_sync(data, _OTHER_KINDS[kind], config).content)


def _attachments(folder: Path) -> None:
    recall: dict[str, Recall] = defaultdict(Recall)
    with Extractor(processes=1) as extractor:
        for path in sorted(folder.rglob("*")):
            found = extractor.extract(path, path.name) if path.is_file() else None
            if found is None or not found.pages or found.kind not in {*_XML_KINDS, *_OTHER_KINDS}:
                continue
            try:
                expected = _their_words(found.kind, path.read_bytes())
            except (kreuzberg.KreuzbergError, ElementTree.ParseError, zipfile.BadZipFile):
                continue
            recall[found.kind].add(expected, words(found.text))
    for kind in sorted(recall):
        recall[kind].print(f"attachments, {kind}", "99")


# conversations


@dataclass(frozen=True, slots=True)
class ListMail:
    id: UUID
    internet_message_id: str | None
    in_reply_to: str | None
    reference_ids: list[str]
    subject: str
    sort_at: datetime
    correspondents: Correspondents
    mailboxes: list[UUID] = field(default_factory=lambda: [UUID(int=0)])


def _list_mail(raws: Iterable[bytes]) -> list[ListMail]:
    """Mail whose conversation its headers tell: replies that name nothing are left out."""
    found: dict[str, ListMail] = {}
    for number, raw in enumerate(raws, start=1):
        headers = read_headers(raw)
        keys = thread_keys(headers)
        if keys.message_id and not keys.goes_by_subject:
            found.setdefault(keys.message_id, listed(number, headers))
    return list(found.values())


def _conversations(raws: Sequence[bytes]) -> None:
    mails = _list_mail(raws)
    people = {mail.id: mail.correspondents for mail in mails}
    truth = _groups(mails, {})
    _score("conversations", _groups(mails, people), truth, len(mails))
    replies = [mail for mail in mails if (mail.in_reply_to or mail.reference_ids) and normalise_subject(mail.subject)[1]]
    hidden = {mail.id for mail in random.Random(1).sample(replies, len(replies) // _HIDDEN_SHARE)}
    stripped = [_without_ids(mail) if mail.id in hidden else mail for mail in mails]
    _score(f"{len(hidden)} replies without ids", _groups(stripped, people), truth, len(mails))


def _generated_list() -> None:
    """A list of which the truth is known, with many replies that name nothing under subjects that everybody uses."""
    traffic = ListTraffic().mails()
    mails = [listed(number, read_headers(mail.raw)) for number, mail in enumerate(traffic)]
    truth = [[mails[place].id for place in places] for places in true_groups(traffic)]
    found = _groups(mails, {mail.id: mail.correspondents for mail in mails})
    _score("generated list", found, truth, len(mails))


def listed(number: int, headers: Headers) -> ListMail:
    keys, parent = thread_keys(headers), next(iter(headers.in_reply_to), None)
    references, at = list(headers.references), headers.date or _START
    return ListMail(UUID(int=number), keys.message_id, parent, references, headers.subject, at, keys.correspondents)


def _without_ids(mail: ListMail) -> ListMail:
    return ListMail(mail.id, mail.internet_message_id, None, [], mail.subject, mail.sort_at, mail.correspondents)


def _groups(mails: Sequence[ListMail], people: Mapping[UUID, Correspondents]) -> list[list[UUID]]:
    """Without people, ids alone join."""
    return group_messages(mails, lambda ids: people)


def _score(name: str, found: list[list[UUID]], truth: list[list[UUID]], count: int) -> None:
    def pairs(size: int) -> int:
        return size * (size - 1) // 2

    true = {member: number for number, group in enumerate(truth) for member in group}
    right = {frozenset(group) for group in truth}
    exact = sum(len(group) for group in found if frozenset(group) in right)
    both = sum(pairs(size) for group in found for size in Counter(true[member] for member in group).values())
    joined, wanted = sum(pairs(len(group)) for group in found), sum(pairs(len(group)) for group in truth)
    figure(f"{name}: in exactly the right one, of {count:,}", 100 * exact / count, "%", "98")
    figure(f"{name}: pair precision", both / max(1, joined), "", "0.99")
    figure(f"{name}: pair recall", both / max(1, wanted), "", "0.98")


# round trips


def _round_trips(raws: Sequence[bytes]) -> None:
    with tempfile.TemporaryDirectory(prefix="archiver-quality-") as place:
        mail = Path(place) / "mail"
        mail.mkdir()
        for number, raw in enumerate(raws):
            (mail / f"{number}.eml").write_bytes(raw)
        first = Installation(Path(place) / "first")
        first.run("import", str(mail), "--wait")
        before = first.hashes()
        figure(f"round trip: .eml files that are archived as they are, of {len(raws):,}", len(before & _hashes(raws)), "")
        for kind in ("zip", "mbox"):
            out = Path(place) / f"out.{kind}"
            first.run("export", "--all", "-o", str(out), "--format", kind)
            second = Installation(Path(place) / f"second-{kind}")
            second.run("import", str(out), "--wait")
            figure(f"round trip: {kind}, of {len(before):,}", len(before & second.hashes()), "", f"{len(before):,}")


def _hashes(raws: Iterable[bytes]) -> set[str]:
    return {hashlib.sha256(raw).hexdigest() for raw in raws}


@dataclass(frozen=True, slots=True)
class Installation:
    data: Path

    def run(self, *arguments: str) -> str:
        own = {name.upper() for name in Settings.model_fields}
        environment = {name: value for name, value in os.environ.items() if name not in own}
        environment["ARCHIVER_DATA"] = str(self.data)
        command = [sys.executable, "-m", "archiver", *arguments, "--json"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1]
        )
        if done.returncode not in (0, 3):
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
        return done.stdout

    def hashes(self) -> set[str]:
        out = self.data.with_suffix(".zip")
        json.loads(self.run("export", "--all", "-o", str(out), "--format", "zip"))
        return _hashes(_messages_in(out))


def _messages_in(path: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as archive:
        yield from (archive.read(name) for name in archive.namelist() if name.endswith(".eml"))


if __name__ == "__main__":
    main()
