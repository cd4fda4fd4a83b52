"""What machines report: deliveries that failed, were delayed, or succeeded."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.own_mail.case import MailCase, message, multipart, part

STATUSES = {
    "failed": ("5.1.1", "5.2.2", "5.4.4", "5.7.1", "5.0.0"),
    "delayed": ("4.4.1", "4.2.2", "4.7.0"),
    "delivered": ("2.0.0", "2.1.5"),
}
_SAID = {
    "english": "Your message could not be delivered.",
    "german": "Ihre Nachricht konnte nicht zugestellt werden.",
    "french": "Votre message n'a pas pu être remis.",
    "japanese": "メッセージを配信できませんでした。",
}


def cases() -> Iterator[MailCase]:
    for action, statuses in STATUSES.items():
        for status in statuses:
            for language, said in _SAID.items():
                for returned in ("message/rfc822", "text/rfc822-headers"):
                    yield _report(action, status, language, said, returned)


def _report(action: str, status: str, language: str, said: str, returned: str) -> MailCase:
    name = f"report-{action}-{status}-{language}-{returned.partition('/')[2]}"
    recipient = f"{language}@gone.example"
    per_recipient = [
        f"Original-Recipient: rfc822;first.{recipient}",
        f"Final-Recipient: rfc822; {recipient}",
        f"Action: {action}",
        f"Status: {status}",
        f"Diagnostic-Code: smtp; 550 {status} said the other side",
    ]
    original = f"From: ann@lantern.example\nTo: {recipient}\nSubject: The original of {language}\n"
    status_part = "Reporting-MTA: dns; mx.lantern.example\n\n" + "\n".join(per_recipient) + "\n"
    field, body = multipart(
        "report",
        "=_report",
        [
            part(said, ("Content-Type", "text/plain; charset=utf-8"), ("Content-Transfer-Encoding", "8bit")),
            part(status_part, ("Content-Type", "message/delivery-status")),
            part(original + ("\nThe original words.\n" if returned == "message/rfc822" else ""), ("Content-Type", returned)),
        ],
        more="; report-type=delivery-status",
    )
    sender = ("From", "Mail Delivery System <MAILER-DAEMON@lantern.example>")
    fields = [field, sender, ("Return-Path", "<>"), ("Subject", "Delivery report")]
    delivery = {
        "action": action,
        "status": status,
        "recipient": recipient,
        "original_recipient": f"first.{recipient}",
        "diagnostic": f"550 {status} said the other side",
    }
    expected = {"deliveries": [delivery], "text_includes": [said, f"The original of {language}"]}
    shows = f"a report: {action} {status}, in {language}, with {returned}"
    return MailCase(name, shows, message(name, fields, body), expected)
