"""Charsets, transfer encodings, structures, names of files: what a message contains."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from tests.support.own_mail.case import MailCase, encoded, encoded_word, message, multipart, part

SAMPLES = {
    "utf-8": "Grüße aus Köln, 東京 и Москва",
    "us-ascii": "Plain words in seven bits",
    "iso-8859-1": "Süße Äpfel, crème brûlée, señor",
    "iso-8859-2": "Příliš žluťoučký kůň, zażółć",
    "iso-8859-5": "Привет из архива",
    "iso-8859-7": "Καλημέρα από το αρχείο",
    "iso-8859-9": "İyi günler, şimdi görüşürüz",
    "iso-8859-15": "Preis: 25 €, œuvre",
    "windows-1250": "Zażółć gęślą jaźń",
    "windows-1251": "Добрый день, счёт № 5",
    "windows-1252": "“Quoted” – 5 € … naïve",
    "windows-1253": "Τιμολόγιο για τον Μάρτιο",
    "windows-1254": "Fatura ektedir, teşekkürler",
    "windows-1257": "Sveiki, sąskaita už kovą",
    "koi8-r": "Отчёт за март готов",
    "koi8-u": "Звіт за березень, їжак",
    "gb2312": "发票在附件中请查收",
    "gbk": "會議記錄已經寄出",
    "gb18030": "合同的最后一页在附件里",
    "big5": "請查收附件中的發票",
    "euc-jp": "請求書を添付しました",
    "shift_jis": "会議は三時からです",
    "iso-2022-jp": "よろしくお願いします",
    "euc-kr": "청구서를 첨부했습니다",
}
ENCODINGS = ("8bit", "base64", "quoted-printable")
NAMES = {
    "german": "Übersicht März.txt",
    "japanese": "請求書.txt",
    "russian": "отчёт за март.txt",
    "greek": "τιμολόγιο.txt",
    "long": "a rather long name of a file that does not fit into one line of a header of a message.txt",
    "symbols": '50% off; "really" = true.txt',
}


def cases() -> Iterator[MailCase]:
    yield from _texts()
    yield from _subjects()
    yield from _html()
    yield from _structures()
    yield from _file_names()
    yield from _file_contents()


def _texts() -> Iterator[MailCase]:
    for charset, sample in SAMPLES.items():
        for encoding in ENCODINGS:
            name = f"text-{charset}-{encoding}"
            text = f"{sample}\nThe second line.\n"
            fields = [
                ("MIME-Version", "1.0"),
                ("Content-Type", f"text/plain; charset={charset}"),
                ("Content-Transfer-Encoding", encoding),
                ("Subject", name),
            ]
            raw = message(name, fields, encoded(text.encode(charset), encoding))
            yield MailCase(name, f"text in {charset}, sent as {encoding}", raw, {"text": text.strip(), "subject": name})


def _subjects() -> Iterator[MailCase]:
    for charset, sample in SAMPLES.items():
        for encoding in "bq":
            name = f"subject-{charset}-{encoding}"
            word = encoded_word(sample.encode(charset), charset, encoding)
            sender = encoded_word(sample[:6].encode(charset), charset, encoding)
            fields = [("Subject", f"{word}\r\n (no. 7)"), ("From", f"{sender} <sender@lantern.example>")]
            expected = {"subject": f"{sample} (no. 7)", "text": "body"}
            shows = f"a subject in {charset} as an encoded word of kind {encoding}"
            yield MailCase(name, shows, message(name, fields, "body\n"), expected)


def _html() -> Iterator[MailCase]:
    for charset in ("utf-8", "iso-8859-1", "windows-1252", "koi8-r", "gb2312", "euc-kr"):
        sample = SAMPLES[charset]
        page = f"<html><head><style>p {{color: red}}</style></head><body><p>{sample}</p><p>5 &lt; 7 &amp; 8</p></body></html>\n"
        for encoding in ENCODINGS:
            name = f"html-{charset}-{encoding}"
            fields = [
                ("Content-Type", f'text/html; charset="{charset}"'),
                ("Content-Transfer-Encoding", encoding),
                ("Subject", name),
            ]
            expected = {"text_includes": [sample, "5 < 7 & 8"], "text_excludes": ["color", "<p>"], "attachments": []}
            raw = message(name, fields, encoded(page.encode(charset), encoding))
            yield MailCase(name, f"HTML alone in {charset}, sent as {encoding}", raw, expected)


_PLAIN = part("Words of the letter.", ("Content-Type", "text/plain; charset=utf-8"))
_PAGE = part("<p>Words of the letter.</p>", ("Content-Type", "text/html; charset=utf-8"))
_PICTURE = part(
    encoded(b"\x89PNG\r\n\x1a\n" + bytes(60), "base64"),
    ("Content-Type", "image/png; name=dot.png"),
    ("Content-Transfer-Encoding", "base64"),
    ("Content-ID", "<dot@lantern.example>"),
    ("Content-Disposition", "inline; filename=dot.png"),
)
_SHEET = part(
    encoded(b"a,b\n1,2\n", "base64"),
    ("Content-Type", "text/csv; name=table.csv"),
    ("Content-Transfer-Encoding", "base64"),
    ("Content-Disposition", "attachment; filename=table.csv"),
)


def _inside(kind: str, boundary: str, *parts: bytes) -> bytes:
    field, body = multipart(kind, boundary, parts)
    return part(body, field)


def _structures() -> Iterator[MailCase]:
    alternative = _inside("alternative", "alt", _PLAIN, _PAGE)
    related = _inside("related", "rel", _PAGE, _PICTURE)
    picture, sheet = {"name": "dot.png", "size_bytes": 68}, {"name": "table.csv", "size_bytes": 8}
    trees = {
        "alternative": ("alternative", [_PLAIN, _PAGE], []),
        "mixed": ("mixed", [_PLAIN, _SHEET], [sheet]),
        "mixed-twice": ("mixed", [_PLAIN, _SHEET, _SHEET], [sheet, sheet]),
        "related": ("related", [_PAGE, _PICTURE], [picture]),
        "alternative-in-mixed": ("mixed", [alternative, _SHEET], [sheet]),
        "related-in-alternative": ("alternative", [_PLAIN, related], [picture]),
        "related-in-alternative-in-mixed": ("mixed", [_inside("alternative", "a", _PLAIN, related), _SHEET], [picture, sheet]),
        "mixed-in-mixed": ("mixed", [_inside("mixed", "inner", _PLAIN, _SHEET), _PICTURE], [sheet, picture]),
        "unknown-kind": ("x-unheard-of", [_PLAIN, _SHEET], [sheet]),
        "deep": ("mixed", [_inside("mixed", "m1", _inside("mixed", "m2", alternative)), _SHEET], [sheet]),
    }
    for tree, (kind, parts, files) in trees.items():
        for line_end, eol in (("crlf", b"\r\n"), ("lf", b"\n")):
            for preamble in (b"", b"This is a message in MIME format.\n"):
                name = f"structure-{tree}-{line_end}{'-preamble' if preamble else ''}"
                field, body = multipart(kind, "=_outer", parts)
                raw = message(name, [("MIME-Version", "1.0"), field, ("Subject", tree)], preamble + body, eol=eol)
                expected = {"text_includes": ["Words of the letter."], "text_excludes": ["MIME format"], "attachments": files}
                yield MailCase(name, f"{tree}: which parts are the text, and which are files", raw, expected)


def _file_names() -> Iterator[MailCase]:
    for language, given in NAMES.items():
        quoted = given.replace("\\", "\\\\").replace('"', '\\"')
        percent = quote(given, safe="")
        cut = percent.rfind("%", 0, len(percent) // 2)
        halves = percent[:cut], percent[cut:]
        words = [encoded_word(given[at : at + 12].encode(), "utf-8", "b") for at in range(0, len(given), 12)]
        ways = {
            "2231": f"attachment; filename*=utf-8''{percent}",
            "2231-continued": f"attachment; filename*0*=utf-8''{halves[0]};\r\n filename*1*={halves[1]}",
            "2231-beside-plain": f"attachment; filename=\"fallback.txt\"; filename*=utf-8''{percent}",
            "2047": 'attachment; filename="' + "\r\n ".join(words) + '"',
            "raw": f'attachment; filename="{quoted}"',
        }
        for way, disposition in ways.items():
            name = f"file-name-{language}-{way}"
            file = part("content", ("Content-Type", "application/octet-stream"), ("Content-Disposition", disposition))
            field, body = multipart("mixed", "b", [_PLAIN, file])
            expected = {"attachments": [{"name": given, "size_bytes": 7}]}
            raw = message(name, [field, ("Subject", way)], body)
            yield MailCase(name, f"a name of a file, written as {way}", raw, expected)


def _file_contents() -> Iterator[MailCase]:
    sizes = (0, 1, 2, 3, 56, 57, 58, 1000, 5000)
    for size in sizes:
        data = bytes((number * 7 + size) % 256 for number in range(size))
        for encoding in ("base64", "quoted-printable"):
            name = f"file-of-{size}-{encoding}"
            file = part(
                encoded(data, encoding) if encoding == "base64" else _quoted(data),
                ("Content-Type", "application/octet-stream; name=data.bin"),
                ("Content-Transfer-Encoding", encoding),
                ("Content-Disposition", "attachment"),
            )
            field, body = multipart("mixed", "b", [_PLAIN, file])
            expected = {"attachments": [{"name": "data.bin", "size_bytes": size, "content": data}]}
            raw = message(name, [field, ("Subject", name)], body)
            yield MailCase(name, f"{size} bytes as {encoding} come out whole", raw, expected)


def _quoted(data: bytes) -> bytes:
    codes = [b"=%02X" % byte for byte in data]
    return b"=\n".join(b"".join(codes[at : at + 20]) for at in range(0, len(codes), 20))
