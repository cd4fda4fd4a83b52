"""One hash for the variants of one mail, however it is fed."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.mail.canonical import Canonical, canonical_sha256

MAIL = b"From: a@example.org\nSubject: x\n\nHello\nFrom here on\n"
SAME = {
    "crlf": MAIL.replace(b"\n", b"\r\n"),
    "postmark": b"From a@example.org Thu Jan  1 00:00:00 1998\n" + MAIL,
    "status": b"Status: RO\n" + MAIL,
    "mozilla": MAIL.replace(b"Subject", b"X-Mozilla-Status: 0001\nX-Mozilla-Keys:\n  folded\nSubject"),
    "labels": MAIL.replace(b"Subject", b"x-gmail-labels: Inbox,\n Important\nSubject"),
    "quoted from": MAIL.replace(b"\nFrom here", b"\n>From here"),
    "blank line at the end": MAIL + b"\n\r\n",
    "no line end": MAIL[:-1],
    "all at once": b"From x\r\nStatus: RO\r\n" + MAIL.replace(b"\nFrom here", b"\n>From here").replace(b"\n", b"\r\n"),
    "delivered": b"Return-Path: <a@example.org>\nDelivered-To: b@example.org\nReceived: by x with LMTP\n\tid 1;\n date\n"
    + MAIL,
    "journalled": b"Received: from y\n" + MAIL.replace(b"Subject", b"X-MS-Exchange-Organization-AuthAs: Internal\nSubject"),
    "verified": b"ARC-Seal: i=1\nAuthentication-Results: x;\n spf=pass\nReceived-SPF: pass\nX-Spam-Score: 1\n" + MAIL,
    "last field": MAIL.replace(b"\n\n", b"\nX-UID: 7\n\tfolded\n\n"),
}
OTHER = {
    "subject": MAIL.replace(b"Subject: x", b"Subject: y"),
    "body": MAIL.replace(b"Hello", b"Hallo"),
    "inner blank line": MAIL.replace(b"Hello\n", b"Hello\n\n"),
    "status in the body": MAIL + b"Status: RO\n",
    "signature": b"DKIM-Signature: v=1; d=example.org\n" + MAIL,
    "sender": b"Sender: b@example.org\n" + MAIL,
    "receipt in the body": MAIL + b"Received: by x\n",
}


@pytest.mark.parametrize("variant", SAME.values(), ids=SAME.keys())
def test_variants_of_one_mail_have_one_hash(variant: bytes) -> None:
    assert canonical_sha256(variant) == canonical_sha256(MAIL)


@pytest.mark.parametrize("variant", OTHER.values(), ids=OTHER.keys())
def test_other_mail_has_another_hash(variant: bytes) -> None:
    assert canonical_sha256(variant) != canonical_sha256(MAIL)


def test_it_is_the_hash_of_the_canonical_text() -> None:
    assert canonical_sha256(MAIL) == hashlib.sha256(MAIL.rstrip(b"\n")).digest()


LINES = [b"\r", b"\n", b"\r\n", b">", b"From ", b"Status: x", b"\n\n", b" ", b"a", b"From", b">>>>>>>>>From "]
FIELDS = [b"Subject: x\n", b"x-uid:1\r\n\tfolded\r\n", b"X-Mozilla-\n", b"\nXref :", b"Lines"]
BITS = st.sampled_from(LINES + FIELDS)


@given(st.lists(BITS, max_size=30), st.lists(st.integers(0, 200), max_size=10))
def test_pieces_do_not_matter(bits: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(bits)
    canonical, at = Canonical(), 0
    for cut in sorted(cuts):
        canonical.feed(raw[at:cut] if cut > at else b"")
        at = max(at, cut)
    canonical.feed(raw[at:])
    assert canonical.digest() == canonical_sha256(raw)


def test_byte_by_byte() -> None:
    raw = SAME["quoted from"].replace(b"\n", b"\r\n")
    canonical = Canonical()
    for position in range(len(raw)):
        canonical.feed(raw[position : position + 1])
    assert canonical.digest() == canonical_sha256(MAIL)
