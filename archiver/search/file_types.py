"""Kinds of attached files, by media type and file name extension."""

from __future__ import annotations

# the word of the query language, the media types (or prefixes), the file name extensions
_KINDS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("pdf", ("application/pdf",), ("pdf",)),
    ("image", ("image/",), ("png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "heic", "svg", "ico")),
    ("audio", ("audio/",), ("mp3", "wav", "ogg", "m4a", "flac")),
    ("video", ("video/",), ("mp4", "mov", "avi", "mkv", "webm", "mpg", "mpeg")),
    ("calendar", ("text/calendar",), ("ics",)),
    ("contact", ("text/vcard", "text/x-vcard"), ("vcf",)),
    ("mail", ("message/",), ("eml", "msg", "mbox", "pst")),
    (
        "document",
        (
            "application/msword",
            "application/vnd.openxmlformats-officedocument.wordprocessingml",
            "application/rtf",
            "application/vnd.oasis.opendocument.text",
        ),
        ("doc", "docx", "docm", "rtf", "odt"),
    ),
    (
        "spreadsheet",
        (
            "application/vnd.ms-excel",
            "application/vnd.openxmlformats-officedocument.spreadsheetml",
            "text/csv",
            "application/vnd.oasis.opendocument.spreadsheet",
        ),
        ("xls", "xlsx", "xlsm", "ods", "csv"),
    ),
    (
        "presentation",
        (
            "application/vnd.ms-powerpoint",
            "application/vnd.openxmlformats-officedocument.presentationml",
            "application/vnd.oasis.opendocument.presentation",
        ),
        ("ppt", "pptx", "odp"),
    ),
    (
        "archive",
        (
            "application/zip",
            "application/x-zip",
            "application/gzip",
            "application/x-tar",
            "application/x-7z",
            "application/x-gzip",
            "application/x-rar",
            "application/vnd.rar",
            "application/x-compressed",
        ),
        ("zip", "gz", "tgz", "tar", "7z", "rar", "bz2", "xz", "zst"),
    ),
    (
        "signature",
        ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature", "application/pgp-keys"),
        ("asc", "p7s", "sig"),
    ),
    ("html", ("text/html",), ("html", "htm")),
    ("text", ("text/",), ("txt", "md", "log", "patch", "diff")),
)
KINDS = (*(kind for kind, _, _ in _KINDS), "other")
_BY_ENDING = {ending: kind for kind, _, endings in _KINDS for ending in endings}
_MAX_ENDING = 10


def ending_of(name: str) -> str:
    """`pdf` for `Invoice.PDF`; empty if there is no extension."""
    _, dot, ending = name.rpartition(".")
    return ending.lower() if dot and ending.isalnum() and len(ending) <= _MAX_ENDING else ""


def kind_of(media_type: str, name: str) -> str:
    """One word of KINDS. For an unspecific media type, the file name decides."""
    for kind, types, _ in _KINDS:
        if media_type.startswith(types) and kind != "text":
            return kind
    return _BY_ENDING.get(ending_of(name)) or ("text" if media_type.startswith("text/") else "other")
