"""Limits on the cost of an extraction."""

from typing import Final

SECONDS: Final = 60.0
MESSAGE_SECONDS: Final = 600.0  # for all attachments of one message
HURRIED_SECONDS: Final = 2.0  # for each further attachment, until the total is reached again: most files need less
MEMORY_BYTES: Final = 1 << 30
TEXT_CHARS: Final = 10_000_000
INPUT_BYTES: Final = 512 << 20

ARCHIVE_FILES: Final = 1_000
ARCHIVE_BYTES: Final = 256 << 20  # unpacked, all levels together
ARCHIVE_DEPTH: Final = 5
DOCUMENT_BYTES: Final = 400 << 20  # unpacked size of one office document

OCR_PAGES: Final = 50
OCR_SECONDS: Final = 300.0  # for one file: a page takes a few seconds
OCR_IMAGE_BYTES: Final = 10 << 10  # smaller images are icons, lines and logos
OCR_PIXELS: Final = 40_000_000

PICTURE_WIDTH: Final = 1_240
PICTURE_PIXELS: Final = 4_000_000
