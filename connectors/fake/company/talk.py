"""Conversations between people: openings, replies, quotes."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from connectors.fake.company.languages import TONGUES, Tongue
from connectors.fake.company.pen import LOGO_ID, Pen, agreement, invoice, logo, photo, price_list, quotation, signature, table
from connectors.fake.company.people import COMPANY
from connectors.fake.company.scenes import Note
from connectors.fake.company.topics import LIST, ORDER, WORK, Topic
from connectors.fake.company.wire import Entity, message, multipart, text, with_attachments

_WESTERN = (
    ("us-ascii", "7bit"),
    ("utf-8", "quoted-printable"),
    ("windows-1252", "quoted-printable"),
    ("utf-8", "8bit"),
    ("iso-8859-1", "quoted-printable"),
)
_PROGRAMS = ("User-Agent: Quill/4.2", "X-Mailer: Postcard 16.0", "User-Agent: Harbour Mail (phone)")
_TOPICS: dict[str, Topic] = {topic.name: topic for topic in (*WORK, ORDER, LIST)}


def work(pen: Pen, index: int) -> bytes:
    topic = _TOPICS[pen.scene.topic]
    which = pen.rng.randrange(len(topic.openings))
    replies = pen.rng.sample(topic.replies, len(topic.replies))
    bodies = [topic.openings[which], *(replies[number % len(replies)] for number in range(index))]
    attaches = topic.attaches if pen.rng.random() < 0.5 else ""
    return _letter(pen, bodies, topic.subjects[which], lambda: _brought_along(pen, attaches) if index == 0 else [])


def order(pen: Pen, index: int) -> bytes:
    which = pen.rng.randrange(len(ORDER.openings))
    thanks = pen.rng.choice(ORDER.replies[len(ORDER.openings) :])
    bodies = [ORDER.openings[which], ORDER.replies[which], thanks][: index + 1]
    return _letter(pen, bodies, ORDER.subjects[which], lambda: _confirmation(pen, which) if index == 1 else [])


def mailing_list(pen: Pen, index: int) -> bytes:
    which = pen.rng.randrange(len(LIST.openings))
    replies = pen.rng.sample(LIST.replies, len(LIST.replies))
    extra = (
        "List-Id: People who make lamps <lampmakers.lists.craft.example>",
        "List-Post: <mailto:lampmakers@lists.craft.example>",
        "List-Unsubscribe: <mailto:lampmakers-leave@lists.craft.example>",
        "Precedence: list",
    )
    return _letter(pen, [LIST.openings[which], *replies[:index]], LIST.subjects[which], extra=extra)


def draft(pen: Pen, _: int) -> bytes:
    return _letter(pen, ["I wanted to tell you that the offer for {small} lamps"], "Offer, not sent yet")


def away(pen: Pen, index: int) -> bytes:
    subject = "Quick question about order {order}"
    if index == 0:
        return _letter(pen, ["do you know whether order {order} has left?"], subject)
    body = f"I am away until {pen.story['weekday']} and read no mail. In urgent cases please call the workshop.\n"
    extra = ("Auto-Submitted: auto-replied", "X-Auto-Response-Suppress: All", "Precedence: bulk")
    envelope = pen.envelope(index, pen.fill(f"Out of office: {subject}"), extra)
    return message(envelope, text(body + signature(pen.scene.notes[index].sender)))


def foreign(pen: Pen, index: int) -> bytes:
    """In the language of the customer, on both sides."""
    tongue = TONGUES[pen.scene.topic]
    answered = len(pen.scene.notes) > 1
    which = pen.rng.randrange(2 if answered else len(tongue.openings))
    charset, encoding = pen.rng.choice(tongue.charsets)
    raw = charset not in ("utf-8", "iso-2022-jp") and pen.rng.random() < 0.3
    said = (tongue.openings[which], tongue.answers[which], tongue.answers[2])
    body = ""
    for number, note in enumerate(pen.scene.notes[: index + 1]):
        quote = f"\n{_introduction(tongue, pen.scene.notes[number - 1])}\n{_quoted(body)}" if number else ""
        greeting = tongue.greeting.format(name=note.to[0].name)
        body = f"{greeting}\n\n{pen.fill(said[number])}\n\n{tongue.closing}\n{signature(note.sender)}{quote}"
    subject = pen.fill(tongue.subjects[which])
    envelope = pen.envelope(index, f"Re: {subject}" if index else subject, charset=charset, raw=raw)
    return message(envelope, text(body, charset, encoding))


def _introduction(tongue: Tongue, note: Note) -> str:
    return tongue.reply.format(name=note.sender.name, date=f"{note.sent_at:%d.%m.%Y %H:%M}")


def _letter(
    pen: Pen, bodies: list[str], subject: str, attach: Callable[[], list[Entity]] = list, extra: tuple[str, ...] = ()
) -> bytes:
    """The last message, above quotes of the earlier ones. Attachments are generated only here, because they take time."""
    index = len(bodies) - 1
    subject = pen.fill(subject)
    charset, encoding = pen.rng.choice(_WESTERN)
    with_html = pen.rng.random() < 0.25
    program = pen.rng.choice(_PROGRAMS)
    body = ""
    for number, note in enumerate(pen.scene.notes[: index + 1]):
        quote = _quote(pen.scene.notes[number - 1], body) if number else ""
        body = _said(note, pen.fill(bodies[number])) + quote
    content = text(body, charset, encoding)
    if with_html:
        content = _alternative(pen, index, content, body)
    content = with_attachments(content, attach(), pen.boundary(index))
    words = charset if charset != "us-ascii" else "utf-8"
    return message(pen.envelope(index, f"Re: {subject}" if index else subject, (*extra, program), words), content)


def _said(note: Note, said: str) -> str:
    greeting = f"Hi {note.to[0].first_name}," if len(note.recipients) < 4 else "Hello all,"
    return f"{greeting}\n\n{said[0].upper()}{said[1:]}\n\nBest regards\n{signature(note.sender)}"


def _quote(note: Note, body: str) -> str:
    return f"\nOn {note.sent_at:%a, %d %b %Y at %H:%M}, {note.sender.name} wrote:\n{_quoted(body)}"


def _quoted(body: str) -> str:
    """The beginning of it, down to a readable quote depth."""
    kept = body.partition("\n>>>")[0].rstrip("\n")
    return f"\n{kept}".replace("\n", "\n> ").replace("\n> >", "\n>>")[1:] + "\n"


def _alternative(pen: Pen, index: int, plain: Entity, body: str) -> Entity:
    paragraphs = "".join(f"<p>{escape(part)}</p>" for part in body.split("\n\n"))
    html = (
        f'<html><body style="font-family: sans-serif">{paragraphs}<img src="cid:{LOGO_ID}" alt="Lantern Works"></body></html>\n'
    )
    related = multipart("related", pen.boundary(index, 2), (text(html, kind="html"), logo()))
    return multipart("alternative", pen.boundary(index, 1), (plain, related))


def _brought_along(pen: Pen, attaches: str) -> list[Entity]:
    match attaches:
        case "plan":
            return [agreement() if pen.rng.random() < 0.5 else photo(4)]
        case "photo":
            return [photo(pen.rng.randrange(8))]
        case "table":
            return [table(pen)]
        case _:
            return []


def _confirmation(pen: Pen, which: int) -> list[Entity]:
    """The attachments that replies to an order and to a request for a quote mention."""
    match which:
        case 0:
            confirmed = invoice(pen, COMPANY, pen.scene.notes[1])
            return [confirmed, price_list()] if pen.rng.random() < 0.5 else [confirmed]
        case 1:
            return [quotation(pen)]
        case _:
            return []
