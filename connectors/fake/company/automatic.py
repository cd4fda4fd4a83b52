"""Automatic mail: newsletters, invoices, bookings, invitations, bounces, spam."""

from __future__ import annotations

from datetime import timedelta

from connectors.fake.company import documents
from connectors.fake.company.broken import BROKEN
from connectors.fake.company.pen import Pen, invoice
from connectors.fake.company.wire import Entity, attachment, encode, mailbox, message, multipart, text, with_attachments

_HEADLINES = (
    ("Warm white is back", "Designers return to 2,700 kelvin, and our readers never left."),
    ("Ten small workshops to visit", "From a glassblower in a boat shed to a brass foundry behind a bakery."),
    ("What the new efficiency label means", "A short guide for everyone who sells lamps, with a table to print."),
    ("Street closed for the harbour festival", "Deliveries before nine, music after six."),
    ("Copper prices, explained calmly", "Why they move, and why it matters less than you think."),
)
_LURES = (
    ("You have WON a {number} EUR voucher!!!", "Click now to claim your prize. Only {small} hours left."),
    ("Luxury watches -90%", "Genuine quality, {small} models, no questions asked."),
    ("Your account will be locked", "Verify your password within {small} hours or lose your data."),
)
_CITIES = ("Milan", "Lyon", "Hamburg", "Seville", "Istanbul", "Osaka", "Copenhagen", "Dubai")


def newsletter(pen: Pen, _: int) -> bytes:
    note = pen.scene.notes[0]
    stories = pen.rng.sample(_HEADLINES, 3)
    plain = "\n\n".join(f"{title}\n{line}" for title, line in stories) + "\n\nUnsubscribe: https://letters.example/stop\n"
    rows = "".join(f'<tr><td style="padding:12px"><h2>{title}</h2><p>{line}</p></td></tr>' for title, line in stories)
    html = (
        f"<!DOCTYPE html><html><head><style>h2{{color:#864}}</style></head><body><table "
        f'width="600"><tr><td><h1>{note.sender.name}</h1>'
        f'</td></tr>{rows}</table><p style="font-size:10px">You get this because you asked for it. '
        '<a href="https://letters.example/stop">Unsubscribe</a></p><img src="https://letters.example/pixel.gif" '
        'width="1"></body></html>\n'
    )
    body = multipart("alternative", pen.boundary(0), (text(plain), text(html, kind="html")))
    host = note.sender.address.partition("@")[2]
    extra = (f"List-Id: <news.{host}>", "List-Unsubscribe: <https://letters.example/stop>", "Precedence: bulk")
    return message(pen.envelope(0, f"{stories[0][0]} – {note.sent_at:%B %Y}", extra), body)


def supplier_invoice(pen: Pen, _: int) -> bytes:
    note = pen.scene.notes[0]
    seller = note.sender.company
    body = text(
        f"Dear Sir or Madam,\n\nplease find attached our invoice {pen.story['order']} over {pen.story['amount']}.\n"
        f"It is payable within 30 days.\n\n{seller}\n"
    )
    parts = with_attachments(body, [invoice(pen, seller, note)], pen.boundary(0))
    return message(pen.envelope(0, f"Invoice {pen.story['order']} from {seller}"), parts)


def travel(pen: Pen, _: int) -> bytes:
    note = pen.scene.notes[0]
    city = pen.rng.choice(_CITIES)
    leaves = note.sent_at + timedelta(days=pen.rng.randint(5, 40))
    seat = f"{pen.rng.randint(1, 90)}{pen.rng.choice('ABDE')}"
    details = f"Train to {city}\n"
    details += (
        f"Departure: {leaves:%A, %d %B %Y, %H:%M}\nCoach {pen.story['small']}, seat {seat}\nPrice: {pen.story['amount']}\n"
    )
    ticket = documents.pdf(["Farline Travel", "", *details.splitlines(), f"Passenger: {note.to[0].name}"])
    parts = [attachment(f"ticket-{city}.pdf", "application/pdf", ticket)]
    body = text(f"Dear {note.to[0].name},\n\nyour booking is confirmed.\n\n{details}\nHave a good journey!\n")
    return message(pen.envelope(0, f"Your trip to {city}, {leaves:%d %B}"), with_attachments(body, parts, pen.boundary(0)))


def meeting(pen: Pen, _: int) -> bytes:
    note = pen.scene.notes[0]
    summary = pen.rng.choice(
        ("Weekly round", "Heron: next steps", "Walk through Harbour Street", "Prices for next year", "Look at the stand")
    )
    start = (note.sent_at + timedelta(days=pen.rng.randint(1, 12))).replace(hour=9, minute=30, second=0)
    guests = [person.address for person in note.to]
    calendar = documents.invitation(pen.message_id(0), summary, "Big table", note.sender.address, guests, start)
    entry = Entity(
        (b"Content-Type: text/calendar; charset=utf-8; method=REQUEST", b"Content-Transfer-Encoding: base64"),
        encode(calendar, "base64"),
    )
    plain = text(f"{summary}\n{start:%A, %d %B %Y, %H:%M} UTC, at the big table.\n")
    alternative = multipart("alternative", pen.boundary(0, 1), (plain, entry))
    file = attachment("invite.ics", "application/ics", calendar)
    return message(pen.envelope(0, f"Invitation: {summary}"), with_attachments(alternative, [file], pen.boundary(0)))


def spam(pen: Pen, _: int) -> bytes:
    subject, body = pen.rng.choice(_LURES)
    extra = (f"X-Spam-Score: {pen.rng.randint(8, 30)}.1", "X-Spam-Flag: YES")
    html = f"<html><body><h1>{pen.fill(subject)}</h1><a href='http://click.lucky-prize.example/'>{pen.fill(body)}</a></body></html>\n"
    return message(pen.envelope(0, pen.fill(subject), extra), text(html, kind="html"))


def bounce(pen: Pen, index: int) -> bytes:
    lost = pen.scene.notes[0].to[0]
    first = message(
        pen.envelope(0, pen.fill("Our new address from {month}")),
        text(f"Dear {lost.name},\n\nwe are moving to 3 Harbour Street. Please come by and see the new lamps.\n"),
    )
    if index == 0:
        return first
    human = text(f"Your message could not be delivered to {lost.address}.\nThe server said: 550 5.1.1 no such user here.\n")
    status = (
        f"Reporting-MTA: dns; mx.lanternworks.example\r\n\r\nFinal-Recipient: rfc822; {lost.address}\r\nAction: failed\r\n"
        "Status: 5.1.1\r\nDiagnostic-Code: smtp; 550 5.1.1 no such user here\r\n"
    )
    parts = (
        human,
        Entity((b"Content-Type: message/delivery-status",), status.encode()),
        Entity((b"Content-Type: text/rfc822-headers",), first.partition(b"\r\n\r\n")[0] + b"\r\n"),
    )
    report = multipart("report", pen.boundary(1), parts, "; report-type=delivery-status")
    extra = ("Auto-Submitted: auto-replied", "Return-Path: <>")
    return message(pen.envelope(1, "Undelivered mail returned to sender", extra), report)


def broken(pen: Pen, index: int) -> bytes:
    note = pen.scene.notes[index]
    fields = {
        b"sender": mailbox(note.sender),
        b"to": mailbox(note.to[0]),
        b"date": f"{note.sent_at:%a, %d %b %Y %H:%M:%S} +0000".encode(),
        b"id": f"{pen.scene.number}.{index}".encode(),
    }
    return BROKEN[pen.scene.topic][index](fields)


def unreadable(pen: Pen, _: int) -> bytes:
    return message(pen.envelope(0, "This one stays at the server"), text("You should never see this.\n"))
