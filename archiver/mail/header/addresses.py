"""Parses the addresses of From, To and similar fields (RFC 5322, section 3.4), and whatever senders write instead."""

import re
from dataclasses import dataclass
from functools import lru_cache

from archiver.mail import limits
from archiver.mail.defects import Defects
from archiver.mail.header.words import decode_words, header_text, tidy

_BARE = r"[^\s\"<>,;:()@]+@[^\s\"<>,;:()@]+"
_SIMPLE = re.compile(rf'\s*+(?:([^\s"<>,;:()@\[\]\\]+(?: [^\s"<>,;:()@\[\]\\]+)*)?\s*+<({_BARE})>|({_BARE}))\s*\Z')
_ONE_QUOTED = re.compile(rf'\s*"([^"\\]*)"\s*<({_BARE})>\s*\Z')
_SIMPLE_CHARS = 400
_GROUP_TOKENS = 64
_USUAL_CHARS = 120
_SPECIAL = re.compile(r'["(:;\\\[]')
_TOKEN = re.compile(r'[ \t\r\n\x0b\x0c]+|\[[^\[\]\r\n]*\]|[^\s"<>,;:()\[]+|.', re.DOTALL)
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ANGLE = re.compile(r'<(?:@[^:<>"]*+:)?+((?:[^<>",;]++|"(?:[^"\\]++|\\.)*+")*+)>?', re.DOTALL)
_ANGLE_WITHOUT_QUOTES = re.compile(r'<(?:@[^:<>"]*+:)?+([^<>",;]*+)>?')
_COMMENT = re.compile(r"\([^()]*+\)")
_COMMENT_MARK = re.compile(r"[()\\]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """One entry of an address list. Text that is not an address becomes the name, with an empty address."""

    name: str
    address: str
    group: str = ""

    @property
    def key(self) -> str:
        """The spelling by which addresses are compared."""
        return self.address.lower()

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2].lower()

    def __str__(self) -> str:
        if not self.address:
            return self.name or self.group
        return f"{self.name} <{self.address}>" if self.name else self.address


def parse_addresses(value: str, defects: Defects, limit: int = limits.ADDRESSES) -> tuple[Address, ...]:
    """All entries of an address field, in order. Never raises; linear in the length of the value."""
    if len(value) <= _USUAL_CHARS:
        found, noted = _parse_usual(value)
        for defect in noted:
            defects.add(defect)
        return found
    return _parse(value, defects, limit)


@lru_cache(maxsize=8192)
def _parse_usual(value: str) -> tuple[tuple[Address, ...], tuple[str, ...]]:
    """Cached, because most mail of a mailbox comes from few people and goes to few lists."""
    defects = Defects()
    return _parse(value, defects, limits.ADDRESSES), defects.as_tuple()


def _parse(value: str, defects: Defects, limit: int) -> tuple[Address, ...]:
    text = header_text(value, defects)
    if not text or text.isspace():
        return ()
    one = _ONE_QUOTED.match(text)
    if one is not None:
        return (Address(tidy(decode_words(one[1], defects)), one[2]),)
    if _SPECIAL.search(text):
        return _AddressList(text, defects, limit).parse()
    found: list[Address] = []
    for piece in text.split(","):
        simple = _simple(piece, defects)
        if simple is not None:
            found.append(simple)
        elif piece and not piece.isspace():
            found.extend(_AddressList(piece, defects, limit - len(found)).parse())
        if len(found) >= limit:
            defects.add("too_many_addresses")
            break
    return tuple(found)


def _simple(piece: str, defects: Defects) -> Address | None:
    if len(piece) > _SIMPLE_CHARS:
        return None
    match = _SIMPLE.match(piece)
    if match is None:
        return None
    name, angle, bare = match.groups()
    if bare is not None:
        return None if "=?" in bare else Address("", bare)
    if not name:
        return Address("", angle)
    return Address(tidy(decode_words(name, defects)) if "=?" in name else name, angle)


class _AddressList:
    """Parses a list in a single pass over its tokens."""

    def __init__(self, text: str, defects: Defects, limit: int) -> None:
        self._text = text
        self._defects = defects
        self._limit = limit
        self._found: list[Address] = []
        self._group: str | None = None
        self._group_is_empty = True
        self._quotes_close = self._comments_close = True
        self._begin()

    def _begin(self) -> None:
        self._phrase: list[str] = []  # as a name: quotes and escapes removed
        self._source: list[str] = []  # unchanged, for an address without angle brackets
        self._comment = ""
        self._angle: str | None = None

    def parse(self) -> tuple[Address, ...]:
        text, position = self._text, 0
        while position < len(text):
            char = text[position]
            if char == '"':
                position = self._quote(position)
            elif char == "(":
                position = self._skip_comment(position)
            elif char == "<":
                position = self._angle_address(position)
            else:
                token = _TOKEN.match(text, position)
                assert token is not None
                position = token.end()
                if char in ",;:":
                    self._separator(char)
                elif char not in ">)":
                    self._take(" " if char.isspace() else token[0])
            if len(self._found) >= self._limit:
                self._defects.add("too_many_addresses")
                return tuple(self._found)
        self._end_entry()
        self._end_group()
        return tuple(self._found)

    def _take(self, token: str) -> None:
        self._phrase.append(token)
        self._source.append(token)

    def _quote(self, position: int) -> int:
        match = _QUOTED.match(self._text, position) if self._quotes_close else None
        if match is None:
            self._quotes_close = False
            self._defects.add("unterminated_quote")
            return position + 1
        self._phrase.append(_ESCAPE.sub(r"\1", match[1]))
        self._source.append(match[0])
        return match.end()

    def _skip_comment(self, position: int) -> int:
        depth, at = 0, position
        while self._comments_close:
            mark = _COMMENT_MARK.search(self._text, at)
            if mark is None or depth > limits.COMMENT_DEPTH:
                self._comments_close = False
                self._defects.add("unterminated_comment")
                break
            at = mark.end() + (mark[0] == "\\")
            depth += {"(": 1, ")": -1}.get(mark[0], 0)
            if depth == 0:
                self._comment = self._text[position + 1 : mark.start()]
                return at
        return position + 1

    def _angle_address(self, position: int) -> int:
        if self._angle:  # "<a@x> <b@y>": the comma is missing
            self._end_entry()
        pattern = (
            _ANGLE if self._quotes_close else _ANGLE_WITHOUT_QUOTES
        )  # otherwise each one would search for the closing quote to the end
        match = pattern.match(self._text, position)
        assert match is not None
        self._angle = match[1].strip()
        return match.end()

    def _separator(self, char: str) -> None:
        if char != ":":
            self._end_entry()
            if char == ";":
                self._end_group()
            return
        phrase = "".join(self._phrase).strip() if len(self._phrase) <= _GROUP_TOKENS else "@"
        if phrase.lower() == "mailto":
            self._begin()
        elif self._angle is None and "@" not in phrase and self._group is None:
            self._group, self._group_is_empty = self._name(phrase), True
            self._begin()
        else:
            self._take(char)

    def _end_group(self) -> None:
        if self._group and self._group_is_empty:
            address = _address(self._group) if "@" in self._group and " " not in self._group else ""
            self._found.append(Address("", address, "" if address else self._group))
        self._group = None

    def _end_entry(self) -> None:
        phrase = (
            "".join(self._phrase).strip().removesuffix(":").rstrip()
        )  # `ann@example.org:;` is an empty group with an address as its name
        if not phrase and self._angle is None and not self._comment:
            self._begin()
            return
        if self._angle is not None:
            entry = self._with_angle(phrase, self._angle)
        else:
            source = "".join(self._source).strip().removesuffix(":").rstrip()
            is_quoted = source.startswith('"') and source.endswith('"')
            entry = self._without_angle(phrase, phrase if is_quoted else source)
        if entry is not None:
            self._found.append(entry)
            self._group_is_empty = False
        self._begin()

    def _with_angle(self, phrase: str, angle: str) -> Address | None:
        name = self._name(phrase) or self._name(self._comment)
        address = _address(angle)
        if address:
            return Address(name, address, self._group or "")
        if not angle:
            return Address(name, "", self._group or "") if name else None
        self._defects.add("invalid_address")
        return Address(f"{name} <{angle}>".strip()[: limits.ADDRESS_CHARS], "", self._group or "")

    def _without_angle(self, phrase: str, source: str) -> Address | None:
        local, at, domain = source.rpartition("@")
        if at and local and domain:
            before, _, local = _last_word(local)
            domain, _, after = domain.strip().partition(" ")
            address = _address(f"{local}@{domain}")
            if address:
                name = self._name(f"{before} {after}".replace('"', "")) or self._name(self._comment)
                return Address(name, address, self._group or "")
        name = self._name(phrase or self._comment)
        if "=?" in source:  # the whole entry was encoded as one word
            decoded = _SIMPLE.match(name[:_SIMPLE_CHARS])
            if decoded is not None:
                return Address(decoded[1] or "", decoded[2] or decoded[3], self._group or "")
            quoted = _ONE_QUOTED.match(name[:_SIMPLE_CHARS])
            if quoted is not None:
                return Address(quoted[1], quoted[2], self._group or "")
        if name:
            self._defects.add("invalid_address")
        return Address(name, "", self._group or "") if name else None

    def _name(self, text: str) -> str:
        if not text:
            return ""
        return tidy(decode_words(text[: limits.ADDRESS_CHARS], self._defects))


def _last_word(text: str) -> tuple[str, str, str]:
    """Splits off the local part, which may be a quoted string with spaces in it."""
    text = text.rstrip()
    if text.endswith('"'):
        opening = text.rfind('"', 0, -1)
        if opening >= 0:
            return text[:opening], "", text[opening:]
    return text.rpartition(" ")


def _address(text: str) -> str:
    """The address with normalised white space; empty if it is not an address."""
    text = text.strip().strip("'")
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    elif "(" in text:
        text = _COMMENT.sub("", text)
    if text[:7].lower() == "mailto:":
        text = text[7:]
    local, at, domain = text.rpartition("@")
    local, domain = local.strip(), domain.strip()
    if not at or not local or not domain or len(text) > limits.ADDRESS_CHARS:
        return ""
    quoted = local.startswith('"') and local.endswith('"')
    if (not quoted and any(map(str.isspace, local))) or any(map(str.isspace, domain)):
        local, domain = (local if quoted else "".join(local.split())), "".join(domain.split())
    return f"{local}@{domain}"
