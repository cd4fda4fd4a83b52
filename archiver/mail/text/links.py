"""Links of a mail that may not lead where their reader believes. Pure."""

import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from ipaddress import ip_address
from urllib.parse import urlsplit

_LINKS = 2_000
_SHOWN_CHARS = 300
_URL_CHARS = 2_000
_UNSEEN = re.compile("<[^<>]*>|[\u00ad\u200b-\u200f\u2060\ufeff]")
_HREF = re.compile(r"\bhref=\"([^\"]*)\"")
_SHOWN_HOST = re.compile(r"(https?://|www\.)?((?:[\w-]{1,63}\.){1,8}([a-z]{2,24}))(?:[/?#:]\S{0,300})?\Z", re.IGNORECASE)
_FILE_ENDINGS = frozenset(
    [
        "pdf",
        "doc",
        "docx",
        "xls",
        "xlsx",
        "ppt",
        "pptx",
        "odt",
        "ods",
        "zip",
        "html",
        "htm",
        "txt",
        "csv",
        "eml",
        "png",
        "jpg",
        "jpeg",
        "gif",
        "md",
        "py",
        "js",
        "sh",
        "rs",
    ]
)
_FAMILIES = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
"""Scripts whose letters look alike."""
_ALIKE = str.maketrans(
    {
        **dict(zip("аеорсухіјѕԁһӏԛԝ", "aeopcyxijsdhlqw", strict=True)),
        **dict(zip("αερονυικτηω", "aepovuiktnw", strict=True)),
        **dict(zip("ıɡʟո", "igln", strict=True)),
        **dict(zip("0135", "oles", strict=True)),
    }
)


@dataclass(frozen=True, slots=True)
class DoubtfulLink:
    url: str
    shown: str
    """What the reader sees."""
    host: str
    """In the script that a browser would show it in."""
    reason: str
    """other_host, look_alike, mixed_scripts, encoded, address, user"""


def find_doubtful_links(html: str, known_domains: frozenset[str]) -> tuple[DoubtfulLink, ...]:
    """In safe HTML. `known_domains` are those that the mail itself names: of its sender and recipients."""
    found = {}
    for url, shown in _links(html):
        if url not in found and (doubt := judge_link(url, shown, known_domains)) is not None:
            found[url] = doubt
    return tuple(found.values())


def judge_link(url: str, shown: str, known_domains: frozenset[str]) -> DoubtfulLink | None:
    """None if nothing is odd about it."""
    try:
        parts = urlsplit(url[:_URL_CHARS])
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host:
        return None
    readable = decode_host(host)
    reason = _reason(parts.netloc, host, readable, shown, known_domains)
    return DoubtfulLink(url[:_URL_CHARS], shown, readable, reason) if reason else None


def _reason(netloc: str, host: str, readable: str, shown: str, known_domains: frozenset[str]) -> str:
    if "@" in netloc:
        return "user"
    if _is_address(host):
        return "address"
    named = _shown_host(shown)
    if named and not _are_related(decode_host(named), readable):
        return "other_host"
    if any(_looks_like(readable, domain) for domain in known_domains):
        return "look_alike"
    if len(_scripts(readable)) > 1:
        return "mixed_scripts"
    return "encoded" if readable != host else ""


def _shown_host(shown: str) -> str:
    """The host that the text of a link names; empty if it is some other text, such as the name of a file."""
    named = _SHOWN_HOST.match(shown)
    if named is None or (not named[1] and named[3].lower() in _FILE_ENDINGS):
        return ""
    return named[2].lower()


def decode_host(host: str) -> str:
    """Punycode labels as the letters that they stand for."""
    labels = []
    for label in host.lower().split(".")[:130]:
        if label.startswith("xn--") and len(label) <= 63:
            with suppress(UnicodeError):
                label = label[4:].encode("ascii").decode("punycode")
        labels.append(label)
    return ".".join(labels)


def _looks_like(host: str, domain: str) -> bool:
    """Whether the host is not this domain, or below it, but would be taken for it."""
    if not domain or _are_related(host, domain):
        return False
    own = host.split(".")
    tail = ".".join(own[-len(domain.split(".")) :])
    return _skeleton(tail) == _skeleton(domain) or f"{domain}." in host


def _skeleton(host: str) -> str:
    """The same for hosts that look the same at a glance."""
    bare = unicodedata.normalize("NFKD", host)
    letters = "".join(char for char in bare if not unicodedata.combining(char)).lower().translate(_ALIKE)
    return letters.replace("rn", "m").replace("vv", "w").replace("i", "l").replace("-", "")


def _scripts(host: str) -> set[str]:
    names = (unicodedata.name(char, "").partition(" ")[0] for char in host if char.isalpha())
    return {name for name in names if name in _FAMILIES}


def _are_related(one: str, other: str) -> bool:
    """The same domain, or one below the other, or both below the same organisation's."""
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}") or _organisation(one) == _organisation(other)


def _organisation(host: str) -> str:
    """Without the list of public suffixes: two labels, or three if the second level is short, as in example.co.uk."""
    labels = host.split(".")
    return ".".join(labels[-3:] if len(labels) > 2 and len(labels[-2]) <= 3 and len(labels[-1]) == 2 else labels[-2:])


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host.isdigit() or host.startswith("0x")
    return True


def _links(html: str) -> list[tuple[str, str]]:
    """Targets and shown texts, in order. Linear: each position only moves forward."""
    found: list[tuple[str, str]] = []
    at = html.find("<a ")
    while at >= 0 and len(found) < _LINKS:
        end = _end_of_tag(html, at)
        if end < 0:
            break
        close = html.find("</a", end)
        if close < 0:
            break
        target = _HREF.search(html, at, min(end, at + _URL_CHARS + 1_000))
        if target is not None:
            shown = " ".join(_UNSEEN.sub("", unescape(_UNSEEN.sub("", html[end : min(close, end + 2_000)]))).split())
            found.append((unescape(target[1]), shown[:_SHOWN_CHARS]))
        at = html.find("<a ", close)
    return found


def _end_of_tag(html: str, start: int) -> int:
    """After the `>` that is in no attribute, or -1."""
    at = start
    while True:
        close, quote = html.find(">", at), html.find('"', at)
        if close < 0 or quote < 0 or close < quote:
            return close + 1 if close >= 0 else -1
        at = html.find('"', quote + 1) + 1
        if at == 0:
            return -1
