"""OLM files of our own making, as Outlook for Mac writes them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

ACCOUNT = "Accounts/ann@example.org"


def email(
    number: int, body: str = "", html: str = "", attachments: tuple[tuple[str, str, str], ...] = (), more: str = ""
) -> str:
    """(name, type, URL) for each attachment."""
    listed = "".join(
        f"<messageAttachment OPFAttachmentName={quoteattr(name)} OPFAttachmentContentType={quoteattr(kind)}"
        f" OPFAttachmentURL={quoteattr(url)}/>"
        for name, kind, url in attachments
    )
    person = '<emailAddress OPFContactEmailAddressAddress="{}@example.org" OPFContactEmailAddressName="{}"/>'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<emails elementCount="1"><email xml:space="preserve">'
        f"<OPFMessageCopySubject>Grüße {number} &amp; mehr</OPFMessageCopySubject>"
        f"<OPFMessageCopyBody>{escape(body or f'Hello number {number}.')}</OPFMessageCopyBody>"
        f"<OPFMessageCopyHTMLBody>{escape(html)}</OPFMessageCopyHTMLBody>"
        f"<OPFMessageCopySentTime>2015-06-0{number % 9 + 1}T10:11:12</OPFMessageCopySentTime>"
        f"<OPFMessageCopyReceivedTime>2015-06-0{number % 9 + 1}T10:11:20</OPFMessageCopyReceivedTime>"
        f"<OPFMessageCopyMessageID>&lt;{number}@mac.example.org&gt;</OPFMessageCopyMessageID>"
        f"<OPFMessageCopyFromAddresses>{person.format('ann', 'Ann Müller')}</OPFMessageCopyFromAddresses>"
        f"<OPFMessageCopyToAddresses>{person.format('bob', 'Bob')}{person.format('cy', 'Cy')}</OPFMessageCopyToAddresses>"
        f"<OPFMessageCopyCCAddresses>{person.format('dee', 'Dee')}</OPFMessageCopyCCAddresses>"
        f"<OPFMessageGetIsRead>{number % 2}E0</OPFMessageGetIsRead>"
        f"<OPFMessageCopyAttachmentList>{listed}</OPFMessageCopyAttachmentList>{more}</email></emails>"
    )


def write_olm(path: Path, files: dict[str, str | bytes]) -> Path:
    """Each file at its name in the archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


def sample(path: Path) -> Path:
    messages = f"{ACCOUNT}/com.microsoft.__Messages"
    url = "com.microsoft.__Attachments/message_00002/picture.png"
    return write_olm(
        path,
        {
            "Categories.xml": "<categories/>",
            f"{messages}/Inbox/message_00001.xml": email(1),
            f"{messages}/Inbox/message_00002.xml": email(
                2, html="<html><b>bold</b></html>", attachments=(("Bild ü.png", "image/png", url),)
            ),
            f"{messages}/Projects/2015/message_00003.xml": email(3, body="<html><p>only html</p></html>"),
            f"{ACCOUNT}/{url}": bytes(range(256)) * 400,
            f"{ACCOUNT}/Calendar.xml": "<appointments/>",
        },
    )
