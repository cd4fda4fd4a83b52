"""Header fields: dates, addresses, lists, answers, and what large messages carry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

from tests.support.own_mail.case import MailCase, message, multipart, part

_AT = datetime(2019, 7, 3, 21, 4, 5, tzinfo=UTC)
_NAMED = {"GMT": 0, "UT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}
_ZONES = ("+0000", "-0000", "+0100", "-0500", "+0530", "+1245", "-1130", *_NAMED)


def cases() -> Iterator[MailCase]:
    yield from _dates()
    yield from _addresses()
    yield from _lists()
    yield from _answers()
    yield from _automatic()
    yield from _calendars()
    yield from _secured()
    yield from _large()


def _offset(zone: str) -> timezone:
    if zone in _NAMED:
        return timezone(timedelta(hours=_NAMED[zone]))
    minutes = int(zone[1:3]) * 60 + int(zone[3:])
    return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))


def _dates() -> Iterator[MailCase]:
    for zone in _ZONES:
        local = _AT.astimezone(_offset(zone))
        forms = {
            "usual": f"{local:%a, %d %b %Y %H:%M:%S} {zone}",
            "no-weekday": f"{local:%d %b %Y %H:%M:%S} {zone}",
            "short-year": f"{local:%a, %d %b %y %H:%M:%S} {zone}",
            "comment": f"{local:%a, %d %b %Y %H:%M:%S} {zone} (summer (or not))",
            "one-digit": f"{local:%a}, {local.day} {local:%b %Y %H:%M:%S} {zone}",
        }
        for form, written in forms.items():
            name = f"date-{form}-{zone.replace('+', 'plus').replace('-', 'minus')}"
            raw = message(name, [("Date", written), ("Subject", form)], "x\n")
            yield MailCase(name, f"a date: {form}, {zone}", raw, {"instant": _AT.isoformat()})


def _addresses() -> Iterator[MailCase]:
    forms = {
        "bare": ("carl@x.example", ["carl@x.example"]),
        "named": ("Carl C <carl@x.example>", ["Carl C <carl@x.example>"]),
        "quoted": ('"Cruz, Carl" <carl@x.example>', ["Cruz, Carl <carl@x.example>"]),
        "several": ("a@x.example, B <b@x.example>,c@x.example", ["a@x.example", "B <b@x.example>", "c@x.example"]),
        "folded": ("A <a@x.example>,\r\n\tB <b@x.example>", ["A <a@x.example>", "B <b@x.example>"]),
        "empty-members": (",, a@x.example,,", ["a@x.example"]),
        "many": (", ".join(f"p{n}@x.example" for n in range(300)), [f"p{n}@x.example" for n in range(300)]),
    }
    for form, (written, found) in forms.items():
        for field, key in (("To", "to"), ("Cc", "cc"), ("Reply-To", "reply_to")):
            name = f"address-{form}-{key}"
            raw = message(name, [(field, written), ("Subject", form)], "x\n")
            yield MailCase(name, f"addresses: {form}", raw, {key: found})


def _lists() -> Iterator[MailCase]:
    name_of_list = "<news.lantern.example>"
    forms = {"plain": name_of_list, "named": f"News of the works {name_of_list}", "quoted": f'"News" {name_of_list}'}
    for form, written in forms.items():
        for more in ("List-Unsubscribe", "List-Post", "Precedence"):
            value = "list" if more == "Precedence" else "<mailto:leave@lantern.example>"
            name = f"list-{form}-{more.lower()}"
            fields = [("List-Id", written), (more, value), ("Subject", "[news] March")]
            expected = {"list_id": "news.lantern.example", "flags": ["bulk"], "subject": "[news] March"}
            yield MailCase(name, f"mail of a list: {form}, {more}", message(name, fields, "News.\n-- \nThe list\n"), expected)


def _answers() -> Iterator[MailCase]:
    for depth in range(1, 9):
        name = f"answer-{depth}"
        quoted = "".join(f"{'>' * level} said at level {level}\n" for level in range(1, depth + 1))
        ids = " ".join(f"<answer-{level}@lantern.example>" for level in range(depth))
        fields = [("Subject", "Re: " * depth + "Plans"), ("References", ids), ("In-Reply-To", ids.split()[-1])]
        body = f"The newest words.\n\nOn Mon, 2 Mar 2020, Bob wrote:\n{quoted}"
        expected = {"text_includes": ["The newest words.", f"level {depth}"], "new_text_excludes": ["said at level 1"]}
        yield MailCase(name, f"an answer that quotes {depth} before it", message(name, fields, body), expected)


def _automatic() -> Iterator[MailCase]:
    for field, value in (
        ("Auto-Submitted", "auto-replied"),
        ("Auto-Submitted", "auto-replied (vacation)"),
        ("X-Autoreply", "yes"),
    ):
        name = f"automatic-{field.lower()}-{len(value)}"
        raw = message(name, [(field, value), ("Subject", "Away")], "I am away.\n")
        yield MailCase(name, f"an automatic answer: {field}", raw, {"flags": ["auto_reply"], "text": "I am away."})


def _calendars() -> Iterator[MailCase]:
    for method in ("REQUEST", "REPLY", "CANCEL", "PUBLISH"):
        for start, shown in (("20200302T130000Z", "2020-03-02"), ("20201224", "2020-12-24")):
            name = f"calendar-{method.lower()}-{start.lower()}"
            lines = [
                "BEGIN:VCALENDAR",
                f"METHOD:{method}",
                "BEGIN:VEVENT",
                f"UID:{name}@lantern.example",
                f"DTSTART{'' if 'T' in start else ';VALUE=DATE'}:{start}",
                "SUMMARY:Review of the lanterns",
                "LOCATION:Hall 3",
                "END:VEVENT",
                "END:VCALENDAR",
            ]
            invitation = part("\n".join(lines) + "\n", ("Content-Type", f"text/calendar; charset=utf-8; method={method}"))
            field, body = multipart("alternative", "b", [part("Please come.", ("Content-Type", "text/plain")), invitation])
            expected = {"flags": ["calendar"], "text_includes": ["Review of the lanterns", "Hall 3", shown]}
            yield MailCase(name, f"an event: {method}", message(name, [field, ("Subject", "Review")], body), expected)


def _secured() -> Iterator[MailCase]:
    words = part("Signed words.", ("Content-Type", "text/plain; charset=utf-8"))
    for kind, file in (("pkcs7-signature", "smime.p7s"), ("pgp-signature", "signature.asc")):
        name = f"signed-{kind}"
        signature = part("AAAA\n", ("Content-Type", f"application/{kind}; name={file}"))
        field, body = multipart("signed", "b", [words, signature], more=f'; protocol="application/{kind}"; micalg=sha-256')
        expected = {"flags": ["signed"], "text_includes": ["Signed words."]}
        yield MailCase(name, f"signed: {kind}", message(name, [field, ("Subject", kind)], body), expected)
    version = part("Version: 1\n", ("Content-Type", "application/pgp-encrypted"))
    armour = "-----BEGIN PGP MESSAGE-----\n\nAAAA\n-----END PGP MESSAGE-----\n"
    sealed = part(armour, ("Content-Type", "application/octet-stream; name=encrypted.asc"))
    field, body = multipart("encrypted", "b", [version, sealed], more='; protocol="application/pgp-encrypted"')
    yield MailCase("encrypted-pgp", "encrypted with PGP", message("encrypted-pgp", [field], body), {"flags": ["encrypted"]})


def _large() -> Iterator[MailCase]:
    references = "\r\n ".join(f"<{number}@lantern.example>" for number in range(3000))

    many: list[tuple[str, str]] = [(f"X-Field-{number}", "value " * 10) for number in range(2000)]
    for name, shows, fields, body, expected in (
        (
            "large-subject",
            "a subject of 20,000 characters",
            [("Subject", "\r\n ".join(["word word"] * 2000))],
            "x\n",
            {"text": "x"},
        ),
        ("large-references", "3,000 references", [("References", references)], "y\n", {"text": "y"}),
        ("large-header", "2,000 fields", [*many, ("Subject", "after all")], "z\n", {"subject": "after all"}),
        ("large-line", "a line of 500,000 characters", [], "word " * 100_000, {"text_includes": ["word word"]}),
    ):
        yield MailCase(name, shows, message(name, fields, body), expected)
