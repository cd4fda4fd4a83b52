"""What all scenes need to write messages: randomness, the details of the story, message ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from connectors.fake.company import documents
from connectors.fake.company.people import COMPANY, DOMAIN, Employee
from connectors.fake.company.scenes import Note, Scene
from connectors.fake.company.topics import OFFICE, SLOTS
from connectors.fake.company.wire import Entity, HeaderSet, attachment


@dataclass(frozen=True, slots=True)
class Pen:
    scene: Scene
    rng: Random
    story: dict[str, str]
    """The values of the slots in this scene's texts, the same in all of its messages."""

    def fill(self, text: str) -> str:
        return text.format_map(self.story)

    def message_id(self, index: int) -> str:
        note = self.scene.notes[index]
        return f"{self.scene.number:x}.{index}.{int(note.sent_at.timestamp()):x}@{note.sender.address.partition('@')[2]}"

    def boundary(self, index: int, level: int = 0) -> str:
        return f"=_{self.scene.number:x}_{index}_{level}"

    def envelope(
        self, index: int, subject: str, extra: tuple[str, ...] = (), charset: str = "utf-8", raw: bool = False
    ) -> HeaderSet:
        note = self.scene.notes[index]
        before = tuple(self.message_id(number) for number in range(index))
        return HeaderSet(
            note.sender, note.to, subject, note.sent_at, self.message_id(index), note.cc, before, extra, charset, raw
        )


def pen_for(scene: Scene, rng: Random) -> Pen:
    story = {name: rng.choice(words) for name, words in SLOTS.items()}
    story["month"] = f"{scene.notes[0].sent_at:%B}"
    story["small"] = str(rng.randint(3, 24))
    story["number"] = str(rng.randint(40, 400))
    story["order"] = f"LW-{rng.randint(10000, 99999)}"
    story["amount"] = f"{rng.randint(120, 9800):,}.{rng.choice(('00', '50', '90'))} EUR"
    return Pen(scene, rng, story)


@lru_cache(maxsize=256)
def signature(person: Employee) -> str:
    lines = [person.name, f"{person.role}, {person.company}" if person.role else person.company]
    if person.is_staff:
        lines.append(f"www.{DOMAIN} | we make light")
    return "\n-- \n" + "\n".join(line for line in lines if line) + "\n"


def invoice(pen: Pen, seller: str, note: Note) -> Entity:
    number = pen.story["order"]
    lines = [f"{seller}", "", f"Invoice {number}", f"Date: {note.sent_at:%d %B %Y}", f"To: {COMPANY}, {_street(note)}", ""]
    lines += [f"{count} x {item}" for count, item in zip(pen.rng.choices(range(1, 40), k=4), _ITEMS, strict=True)]
    lines += ["", f"Total: {pen.story['amount']}", "Payable within 30 days, without deduction."]
    return attachment(f"invoice-{number}.pdf", "application/pdf", documents.pdf(lines))


_DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def _street(note: Note) -> str:
    return "3 Harbour Street" if note.sent_at.year >= OFFICE.last_year else "8 Mill Lane"


_ITEMS = ("smoked glass shade, 30 cm", "brass base, brushed", "textile cable, 3 m", "socket E27 with switch")


@lru_cache(maxsize=1)
def price_list() -> Entity:
    """The same file in many messages, large enough to be stored once."""
    models = ("Heron", "Plover", "Wren", "Tern", "Egret", "Dipper", "Swift", "Curlew")
    finishes = ("brushed brass", "black", "white", "copper", "raw steel", "smoked glass")
    lines = ["Lantern Works, price list", ""]
    for number in range(520):
        model, finish = models[number % len(models)], finishes[number // len(models) % len(finishes)]
        lines.append(f"{number + 1000}  {model} {number % 7 + 1}, {finish}: {40 + number * 37 % 460}.00 EUR")
    return attachment("price-list.pdf", "application/pdf", documents.pdf(lines))


def quotation(pen: Pen) -> Entity:
    paragraphs = (
        f"{pen.story['number']} reading lights, with dimmer: {pen.story['amount']}",
        "Delivered to your door. This offer is valid for thirty days.",
    )
    return attachment(f"quote-{pen.story['order']}.docx", _DOCX, documents.docx("Quote", paragraphs))


@lru_cache(maxsize=1)
def agreement() -> Entity:
    paragraphs = (
        "This agreement is made between Lantern Works and the landlord of 3 Harbour Street.",
        "The rooms are handed over swept, dry and with all keys.",
        "Lamps that are screwed to the ceiling stay; all others may be taken along.",
    )
    return attachment("agreement-harbour-street.docx", _DOCX, documents.docx("Agreement", paragraphs))


@lru_cache(maxsize=16)
def photo(hue: int) -> Entity:
    return attachment(f"lamp-{hue}.png", "image/png", documents.png(64, 48, hue))


LOGO_ID = f"logo@{DOMAIN}"


@lru_cache(maxsize=1)
def logo() -> Entity:
    return attachment("logo.png", "image/png", documents.png(48, 48, 20), content_id=LOGO_ID)


def table(pen: Pen) -> Entity:
    rows = [("article", "count", "price")]
    rows += [(item, str(pen.rng.randint(1, 400)), f"{pen.rng.randint(4, 90)}.50") for item in _ITEMS]
    return attachment(f"list-{pen.story['month'].lower()}.csv", "text/csv; charset=utf-8", documents.csv(rows))
