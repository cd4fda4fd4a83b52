"""Finds quotations and signatures in plain text, so that search can prefer new words.

All patterns begin with a line end and are used on "\\n" + text: that lets the regex engine leap from line to line, and a match
that starts at n in there is a line that starts at n in the text. Where there is a choice of words, their initials are looked
for first: most lines begin with none of them.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator

from archiver.mail import limits
from archiver.mail.text.marks import Mark, MarkedText, MarkSpan

_QUOTED_LINES = re.compile(r"\n[ \t]{0,3}>[^\n]*(?:\n[ \t]{0,3}>[^\n]*)*\n?")
# The end of "On Monday, Bob wrote:", in the languages of the usual mail programs.
_WROTE = re.compile(
    r"\b(?:wrote|writes|said|schrieb|schreibt|écrit|escribió|ha scritto|schreef|escreveu|skrev|napisał|napsal|написал)\b"
)
_ATTRIBUTION_CHARS = 400
# A reply in the manner of Outlook: everything below is another mail.
_ORIGINAL = re.compile(
    r"\n[ \t]*(?:-{2,}+[ \t]*(?:Original Message|Original-Nachricht|Ursprüngliche Nachricht|Weitergeleitete Nachricht"
    r"|Forwarded message|Forwarded by [^\n]{1,100}?|Message d'origine|Message original|Mensaje original|Messaggio originale"
    r"|Oorspronkelijk bericht|Mensagem original|Original Appointment|Исходное сообщение)[ \t]*-{2,}+|_{20,}+)[ \t]*(?=\n)"
)
_HEADER_BLOCK = re.compile(
    r"\n[ \t]*(?=[*FVDOО])\*?(?:From|Von|De|Da|Van|Från|Fra|Od|От)\*?[ \t]?:[^\n]+"
    r"(?:\n[ \t]*\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado|Inviato|Verzonden|Skickat|Sendt|To|An|À|Para|A|Aan|Till|Til|Cc"
    r"|Отправлено|Кому)\*?[ \t]?:[^\n]*){1,5}"
    r"\n[ \t]*\*?(?:Subject|Betreff|Objet|Asunto|Oggetto|Onderwerp|Ämne|Emne|Assunto|Temat|Тема)\*?[ \t]?:"
)
_SIGNATURE = re.compile(r"\n--[ \t]?(?=\n|\Z)")
_SENT_FROM = re.compile(
    r"\n[ \t]*(?=[SGVEIО])(?:Sent from my [^\n]{2,40}|Sent from (?:Mail|Outlook|Yahoo)[^\n]{0,60}|Get Outlook for [^\n]{2,60}"
    r"|Von meinem [^\n]{2,40} gesendet|Envoyé de mon [^\n]{2,40}|Enviado desde mi [^\n]{2,40}|Inviato da[l ][^\n]{2,40}"
    r"|Verstuurd vanaf mijn [^\n]{2,40}|Skickat från min [^\n]{2,40}|Отправлено с [^\n]{2,40})(?=\n|\Z)"
)
_SIGNATURE_LINES = 30
# One cheap check excludes most texts; few of the others contain the forms that begin with a word.
_BY_WORD = (
    r"\*?(?:From|Von|De|Da|Van|Från|Fra|Od|От)\*?[ \t]?:|Sent from|Get Outlook"
    r"|Von meinem|Envoyé de|Enviado|Inviato|Verstuurd|Skickat|Отправлено"
)
_ANY = re.compile(rf"\n[ \t]{{0,3}}(?=[>*FVDOОSGEI_-])(?:>|--|____|{_BY_WORD})")
_ANY_BY_WORD = re.compile(rf"\n[ \t]*+(?=[*FVDOОSGEI])(?:{_BY_WORD})")

_Range = tuple[int, int]


def mark_quotes(text: str) -> MarkedText:
    """Marks quoted lines with their attribution, forwarded or original messages, and signatures. Linear in the text."""
    if len(text) > limits.TEXT_CHARS:
        return MarkedText(text)
    padded = f"\n{text}"
    if _ANY.search(padded) is None:
        return MarkedText(text)
    by_word = _ANY_BY_WORD.search(padded) is not None
    quotes = _merge(sorted(_quotes(padded, by_word)))
    spans = [MarkSpan(start, end, Mark.QUOTE) for start, end in quotes]
    signatures = [MarkSpan(start, end, Mark.SIGNATURE) for start, end in _signatures(padded, quotes, by_word)]
    if signatures:
        spans = sorted(spans + signatures)
    return MarkedText(text, tuple(spans[: limits.SPANS]))


def _quotes(padded: str, by_word: bool) -> Iterator[_Range]:
    length = len(padded) - 1
    if ">" in padded:
        for lines in _QUOTED_LINES.finditer(padded):
            end = lines.end() - 1
            yield _attribution_start(padded, lines.start()), min(length, end)
    starts = []
    if ("---" in padded or "____" in padded) and (original := _ORIGINAL.search(padded)) is not None:
        starts.append(original.start())
    if by_word and (block := _HEADER_BLOCK.search(padded)) is not None:
        starts.append(block.start())
    if starts:
        yield min(starts), length


def _attribution_start(padded: str, start: int) -> int:
    """The start of the line above a quotation if it names the author; it may be folded into two lines."""
    above = padded[max(0, start - _ATTRIBUTION_CHARS) : start].rstrip()
    if not above.endswith(":"):
        return start
    first = above.rfind("\n")
    line_before = above.rfind("\n", 0, first) if first > 0 else -1
    last = above[first + 1 :]
    if _WROTE.search(last) is None:
        return start
    if line_before >= 0 and above[line_before + 1 : first].lstrip().startswith(
        ("On ", "Am ", "Le ", "El ", "Il ", "Op ", "Em ", "Den ")
    ):
        first = line_before
    return max(0, start - _ATTRIBUTION_CHARS) + first if first >= 0 else start


def _merge(spans: list[_Range]) -> list[_Range]:
    merged: list[_Range] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return merged


def _signatures(padded: str, quotes: list[_Range], by_word: bool) -> Iterator[_Range]:
    """From an unquoted separator to the next quotation or the end, if that is short enough for a signature."""
    length, after = len(padded) - 1, 0
    if "\n--" in padded:
        for found in list(_SIGNATURE.finditer(padded))[-3:]:
            start = found.start()
            if start < after or _within(quotes, start):
                continue
            end = next((quote_start for quote_start, _ in quotes if quote_start > start), length)
            if padded.count("\n", start + 1, end + 1) <= _SIGNATURE_LINES:
                yield start, end
                after = end
    for found in _SENT_FROM.finditer(padded) if by_word else ():
        if found.start() >= after and not _within(quotes, found.start()):
            yield found.start(), found.end() - 1


def _within(quotes: list[_Range], position: int) -> bool:
    index = bisect_right(quotes, (position, len(quotes) + (1 << 62))) - 1
    return index >= 0 and position < quotes[index][1]
