"""Journal reports as Exchange and Microsoft 365 send them, around any message."""

from __future__ import annotations

import base64

LINES = (
    "Sender: alice@example.org\r\nSubject: Figures\r\nMessage-Id: <figures@example.org>\r\n"
    "To: bob@example.org, Expanded: staff@example.org\r\nCc: outside@elsewhere.example\r\nBcc: carol@example.org\r\n"
)
ORIGINAL = (
    b"From: Alice <alice@example.org>\r\nTo: staff@example.org\r\nCc: outside@elsewhere.example\r\nSubject: Figures\r\n"
    b"Date: Mon, 02 Nov 2026 10:00:00 +0000\r\nMessage-ID: <figures@example.org>\r\n\r\nThe quarterly pangolin figures.\r\n"
)


def report(
    original: bytes = ORIGINAL,
    lines: str = LINES,
    *,
    encoding: str = "7bit",
    charset: str = "us-ascii",
    after: bytes = b"",
    mark: str = "X-MS-Journal-Report:",
    line_end: bytes = b"\r\n",
    is_closed: bool = True,
) -> bytes:
    body = lines.encode(charset)
    if encoding == "base64":
        body = base64.encodebytes(body).replace(b"\n", b"\r\n")
    head = (
        "From: Microsoft Outlook <postmaster@example.org>\r\nTo: journal@archive.example\r\nSubject: Figures\r\n"
        f'{mark}\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="_b_=1"\r\n\r\n'
        f"--_b_=1\r\nContent-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    ).encode()
    middle = b"\r\n--_b_=1\r\nContent-Type: message/rfc822\r\n\r\n"
    end = b"\r\n--_b_=1--\r\n" if is_closed else b""
    framed = head + body + middle, after + end
    before, behind = (part.replace(b"\r\n", line_end) for part in framed)
    return before + original + behind
