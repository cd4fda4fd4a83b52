"""Small PDF files: pages of text, and pages that are nothing but a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pypdfium2

_FONT = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_IMAGE = "<< /Type /XObject /Subtype /Image /Width 2 /Height 2 /ColorSpace /DeviceGray /BitsPerComponent 8 /Length 4 >>"


def pdf_with_scans(pages: Sequence[str | None]) -> bytes:
    """A line of text for each page; None: a picture."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        _IMAGE.encode() + b"\nstream\n\x00\xff\xff\x00\nendstream",
    ]
    for number, text in enumerate(pages):
        resources = f"<< /Font << /F1 {_FONT} >> /XObject << /I1 3 0 R >> >>"
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents {5 + 2 * number} 0 R /Resources {resources} >>"
        stream = f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET" if text is not None else "200 0 0 200 20 20 cm /I1 Do"
        objects += [page.encode(), f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream".encode()]
    out, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\n"
    return out + f"{end}startxref\n{len(out)}\n%%EOF".encode()


def scanned(lines: Sequence[str]) -> bytes:
    """A page for each line, as a scanner makes it: one large picture, without text."""
    drawn, made = pypdfium2.PdfDocument(pdf_with_scans(lines)), pypdfium2.PdfDocument.new()
    for number in range(len(lines)):
        picture = pypdfium2.PdfImage.new(made)
        picture.set_bitmap(drawn[number].render(scale=5))
        picture.set_matrix(pypdfium2.PdfMatrix().scale(300, 300))
        page = made.new_page(300, 300)
        page.insert_obj(picture)
        page.gen_content()
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()
