"""MSG files as messages: what is kept, that the bytes are always the same, and what damaged or hostile files can do."""

from __future__ import annotations

import email
import email.policy
import random
import struct
from datetime import UTC, datetime
from email.message import EmailMessage

import pytest

from archiver.mail.message import read_message
from archiver.outlook.items import OutlookFileBroken
from archiver.outlook.mime import Conversion
from archiver.outlook.msg import open_msg
from archiver.parsing.opened_mail import content_of
from tests.support.outlook_files import MsgSpec, Value, compound, msg

SENT = datetime(2024, 3, 5, 9, 30, tzinfo=UTC)
HEADER = "Received: from a by b; Tue, 5 Mar 2024 09:30:01 +0000\r\nFrom: Ann <ann@example.org>\r\nTo: bob@example.org\r\n"
ENCAPSULATED = (
    rb"{\rtf1\ansi\ansicpg1252\fromhtml1 \deff0{\fonttbl{\f0\fswiss Arial;}}"
    rb"{\*\htmltag64 <p>}Gr\'fc\'dfe \u8364?{\*\htmltag72 </p>}\htmlrtf {\b invisible}\htmlrtf0 }"
)
BASE: dict[int, Value] = {
    0x001A: "IPM.Note",
    0x0037: "Offer",
    0x0039: SENT,
    0x0C1A: "Ann Lee",
    0x5D01: "ann@example.org",
    0x1000: "Hello\r\nBob",
}


def convert(spec: MsgSpec) -> bytes:
    conversion = Conversion("MSG")
    raw = b"".join(conversion.build(open_msg(msg(spec))))
    assert conversion.problems == []
    return raw


def parse(spec: MsgSpec) -> EmailMessage:
    return email.message_from_bytes(convert(spec), policy=email.policy.default)


def test_a_message_without_a_header_gets_one_from_its_properties() -> None:
    to: dict[int, Value] = {0x0C15: 1, 0x3001: "Bøb", 0x39FE: "bob@example.org"}
    hidden: dict[int, Value] = {0x0C15: 3, 0x3001: "Eve", 0x39FE: "eve@example.org"}
    found = parse(MsgSpec({**BASE, 0x0037: "\x01\x05Re: Öffer", 0x1035: "<1@example.org>"}, [to, hidden]))
    assert found["From"] == "Ann Lee <ann@example.org>"
    assert found["To"].addresses[0].display_name == "Bøb"
    assert found["Bcc"] == "Eve <eve@example.org>"
    assert found["Subject"] == "Re: Öffer"
    assert found["Date"].datetime == SENT
    assert found["Message-ID"] == "<1@example.org>"
    assert found["X-Archiver-Converted-From"] == "MSG (IPM.Note)"
    assert found.get_content().splitlines() == ["Hello", "Bob"]


def test_the_header_of_the_transport_is_kept_and_completed() -> None:
    odd = "Microsoft Mail Internet Headers Version 2.0\r\nno field at all\r\nContent-Type: text/html\r\n"
    odd += "X-Archiver-Converted-From: forged\r\n"
    raw = convert(MsgSpec({**BASE, 0x007D: odd + HEADER + "X-Folded: one\r\n two\r\n\r\n--part\r\n"}))
    header, _, _ = raw.partition(b"\r\n\r\n")
    assert HEADER.encode() + b"X-Folded: one\r\n two\r\n" in header
    assert b"X-Archiver-Unreadable-Header: no field at all" in header
    assert b"Microsoft Mail" not in header
    assert b"forged" not in header
    assert header.count(b"Content-Type:") == 1
    assert header.count(b"\r\nFrom:") == 1
    assert b"Subject: Offer" in header


def test_an_address_of_exchange_is_shown_and_never_made_up() -> None:
    spec = MsgSpec({0x001A: "IPM.Note", 0x0C1A: "Ann Lee", 0x0C1F: "/O=ORG/CN=ANN", 0x1000: "x"})
    header = convert(spec).partition(b"\r\n\r\n")[0]
    assert b'From: "Ann Lee (/O=ORG/CN=ANN)" <>' in header


def test_html_inside_rtf_is_html() -> None:
    plain = struct.pack("<II4sI", 0, len(ENCAPSULATED), b"MELA", 0) + ENCAPSULATED
    found = parse(MsgSpec({**BASE, 0x1009: plain}))
    html = found.get_body(("html",))
    assert html is not None
    assert html.get_content().strip() == "<p>Grüße €</p>"
    assert [part.get_content_type() for part in found.iter_parts()] == ["text/plain", "text/html"]


def test_rtf_that_is_a_document_is_kept_beside_its_text() -> None:
    rtf = rb"{\rtf1\ansi\ansicpg1252 bold {\b words}}"
    found = parse(MsgSpec({0x001A: "IPM.Note", 0x1009: struct.pack("<II4sI", 0, len(rtf), b"MELA", 0) + rtf}))
    text, document = found.iter_parts()
    assert text.get_content().strip() == "bold words"
    assert document.get_content() == rtf


def test_attachments_keep_name_type_and_bytes() -> None:
    content = bytes(range(256)) * 1000
    name = "Überweisung für März " + "sehr " * 30 + "lang.pdf"
    file: dict[int, Value] = {0x3705: 1, 0x3707: name, 0x370E: "application/pdf", 0x3701: content}
    image: dict[int, Value] = {0x3705: 1, 0x3707: "a.png", 0x370E: "image/png", 0x3712: "img1@x", 0x3701: b"png"}
    html = b'<p>Caf\xe9 <img src="cid:img1@x"></p>'
    found = parse(MsgSpec({**BASE, 0x1013: html, 0x3FDE: 1252}, files=[file, image]))
    (attached,) = found.iter_attachments()
    assert attached.get_filename() == name
    assert attached.get_content_type() == "application/pdf"
    assert attached.get_content() == content
    related = found.get_body(("related",))
    assert related is not None
    assert [part.get_content_type() for part in related.walk()] == ["multipart/related", "text/html", "image/png"]
    body = found.get_body(("html",))
    assert body is not None
    assert "Café" in body.get_content()


def test_attached_messages_are_messages_at_any_depth() -> None:
    inner = MsgSpec({**BASE, 0x0037: "innermost", 0x1000: "needle"})
    middle = MsgSpec({**BASE, 0x0037: "middle"}, files=[inner])
    found = read_message(convert(MsgSpec(BASE, files=[middle, {0x3705: 1, 0x3707: "a.txt", 0x3701: b"x"}])))
    assert "needle" in found.text
    assert found.attachments[-1].name == "a.txt"


def test_events_tasks_and_contacts_are_files_of_their_own() -> None:
    event = parse(MsgSpec({**BASE, 0x001A: "IPM.Appointment"}, named={0x820D: SENT, 0x820E: SENT, 0x8208: "Room 1; left"}))
    (calendar,) = [part for part in event.walk() if part.get_content_type() == "text/calendar"]
    assert "DTSTART:20240305T093000Z" in calendar.get_content()
    assert "LOCATION:Room 1\\; left" in calendar.get_content()
    contact = parse(MsgSpec({**BASE, 0x001A: "IPM.Contact", 0x3001: "Ann, Lee"}, named={0x8083: "ann@example.org"}))
    (card,) = [part for part in contact.walk() if part.get_content_type() == "text/vcard"]
    assert "FN:Ann\\, Lee" in card.get_content()
    assert "EMAIL:ann@example.org" in card.get_content()


def test_a_signed_message_is_what_was_signed() -> None:
    signed = b'Content-Type: multipart/signed; boundary="b"\r\n\r\n--b\r\n\r\ntext\r\n--b--\r\n'
    raw = convert(MsgSpec({**BASE, 0x001A: "IPM.Note.SMIME.MultipartSigned"}, files=[{0x3705: 1, 0x3701: signed}]))
    assert raw.endswith(signed)
    assert raw.count(b"MIME-Version") == 0


def test_the_same_item_gives_the_same_bytes() -> None:
    spec = MsgSpec({**BASE, 0x1013: b"<p>x</p>"}, files=[{0x3705: 1, 0x3707: "a", 0x3701: b"x" * 5000}, MsgSpec(BASE)])
    assert convert(spec) == convert(spec)


def test_the_page_says_what_it_was_converted_from() -> None:
    assert content_of(convert(MsgSpec(BASE)), "/files").converted_from == "MSG"
    assert content_of(b"X-Archiver-Converted-From: <script>\r\n\r\nx", "/files").converted_from == ""


def test_control_characters_do_not_make_header_fields() -> None:
    raw = convert(MsgSpec({**BASE, 0x0037: "a\r\nBcc: evil@example.org", 0x0C1A: "x\r\nTo: evil@example.org"}))
    names = [line.partition(b":")[0] for line in raw.partition(b"\r\n\r\n")[0].split(b"\r\n")]
    assert b"Bcc" not in names
    assert b"To" not in names


def test_an_item_that_contains_itself_ends() -> None:
    """The attached message of the file is its own root."""
    whole = bytearray(msg(MsgSpec(BASE, files=[MsgSpec(BASE), MsgSpec(BASE)])))
    name = "__substg1.0_3701000D".encode("utf-16-le")
    top = whole.index("Root Entry".encode("utf-16-le"))
    at = whole.index(name)
    while at >= 0:
        whole[at + 76 : at + 80] = whole[top + 76 : top + 80]  # the same children
        at = whole.find(name, at + 1)
    with pytest.raises(OutlookFileBroken, match=r"nested|messages in one"):
        for _ in Conversion("MSG").build(open_msg(bytes(whole))):
            pass


def test_a_compound_file_that_is_no_message_is_refused() -> None:
    with pytest.raises(OutlookFileBroken, match="not an Outlook message"):
        open_msg(compound({"WordDocument": b"x"}))


def test_damaged_files_are_read_or_refused_and_never_crash() -> None:
    whole = msg(
        MsgSpec(
            {**BASE, 0x1013: b"<p>x</p>" * 900}, [{0x0C15: 1, 0x3001: "B"}], [MsgSpec(BASE), {0x3705: 1, 0x3701: b"y" * 9000}]
        )
    )
    chance = random.Random(25)
    broken = [whole[:length] for length in range(0, len(whole), 512)]
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(chance.choice((1, 4, 40))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        broken.append(bytes(changed))
    for data in broken:
        try:
            size = sum(map(len, Conversion("MSG").build(open_msg(data))))
        except OutlookFileBroken:
            continue
        assert size < 100 * len(whole)
