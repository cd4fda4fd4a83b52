"""Attachments: thumbnails, the viewer, all files of a conversation or a search, and who else has a file."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from archiver.access import audit
from archiver.access.scope import scope_of
from archiver.errors import NotFound
from archiver.http.api.downloads import attachment_name
from archiver.http.file_view import find_in_pages, honest_name, is_pdf, mark, neighbours
from archiver.http.pages.base import View, Viewed
from archiver.http.pages.search import Text, link
from archiver.indexing import texts
from archiver.indexing.texts import KnownText
from archiver.reading import attached_files, messages
from archiver.reading.attached_files import AttachedFile
from archiver.reading.content import IMAGE_TYPES, File, FileInfo
from archiver.reading.previews import PreviewPage
from archiver.search.query.errors import QueryError

router = APIRouter(include_in_schema=False)

FILE_HEADERS = {"X-Frame-Options": "SAMEORIGIN", "Cache-Control": "private, no-store", "Referrer-Policy": "no-referrer"}
_PICTURE_POLICY = "sandbox; default-src 'none'; img-src 'self'"
_PREVIEW_CHARS = 500_000
_HOLDERS = 50
_GRID_MESSAGES = 100
_GRID_FILES = 300
_THUMBNAIL_WIDTH = 320
_THUMBNAIL_BYTES = 4 << 20
"""A larger image has no thumbnail: the browser would have to load all of it."""

Words = Annotated[str, Query(max_length=200)]


@router.get("/messages/{message_id}/files/{number}")
def show_file(view: Viewed, message_id: UUID, number: int) -> Response:
    """An image attachment, inline. All other types can only be downloaded."""
    sha256, size = visible(view, message_id)
    file = view.context.opener.file(view.principal.user_id, sha256, size, number)
    _record(view, message_id, number=number, name=file.name)
    return _image(file, number)


def _image(file: File, number: int) -> Response:
    if file.content_type not in IMAGE_TYPES:
        raise NotFound(f"attachment {number} is not an image: download it instead")
    name = attachment_name(file.name).replace("attachment", "inline", 1)
    headers = {**FILE_HEADERS, "Content-Disposition": name, "Content-Security-Policy": _PICTURE_POLICY}
    return Response(file.data, media_type=file.content_type, headers=headers)


@router.get("/messages/{message_id}/files/{number}/pages/{page}")
def draw_page(view: Viewed, message_id: UUID, number: int, page: int) -> Response:
    """A PDF page as an image, rendered in a separate process. The file itself never reaches the browser."""
    sha256, size = visible(view, message_id)
    _record(view, message_id, number=number, page=page)
    return _drawn(view, sha256, size, PreviewPage(sha256, number, page))


@router.get("/messages/{message_id}/files/{number}/thumbnail")
def thumbnail(view: Viewed, message_id: UUID, number: int) -> Response:
    """A small picture of an image or of the first page of a PDF. Part of reading the message, which the audit log has."""
    sha256, size = visible(view, message_id)
    tag = f'"{sha256.hex()}-{number}"'
    if view.request.headers.get("If-None-Match") == tag:
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "private, no-cache"})
    file = view.context.opener.file(view.principal.user_id, sha256, size, number)
    if is_pdf(file.content_type, file.name):
        answer = _drawn(view, sha256, size, PreviewPage(sha256, number, 1, _THUMBNAIL_WIDTH))
    elif len(file.data) <= _THUMBNAIL_BYTES:
        answer = _image(file, number)
    else:
        raise NotFound(f"attachment {number} is too large for a thumbnail")
    answer.headers["ETag"], answer.headers["Cache-Control"] = tag, "private, no-cache"  # rights are checked each time
    return answer


def _drawn(view: View, sha256: bytes, size: int, page: PreviewPage) -> Response:
    picture = view.context.drawings.draw(
        view.principal.user_id,
        page,
        lambda: view.context.opener.file(view.principal.user_id, sha256, size, page.attachment).data,
    )
    if not picture.png:
        raise NotFound(picture.reason or f"attachment {page.attachment} has no page {page.page}")
    headers = {**FILE_HEADERS, "Content-Security-Policy": _PICTURE_POLICY}
    return Response(picture.png, media_type="image/png", headers=headers)


@router.get("/messages/{message_id}/files/{number}/text")
@router.get("/messages/{message_id}/files/{number}/view")
def view_file(view: Viewed, message_id: UUID, number: int, page: int = 1, find: Words = "") -> Response:
    """A preview that does not open the file: an image, rendered pages of a PDF, and the text from the index."""
    sha256, size = visible(view, message_id)
    file = view.context.opener.file(view.principal.user_id, sha256, size, number)
    _record(view, message_id, number=number, name=file.name)
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        is_read = messages.is_read(connection, scope, message_id)
        known = texts.known_texts(connection, [file.sha256]).get(file.sha256) if is_read else None
        others = attached_files.holders(connection, scope, file.sha256, message_id, _HOLDERS + 1) if is_read else []
        listed = attached_files.of_messages(connection, scope, [message_id], _GRID_FILES)
    drawn = None
    if is_pdf(file.content_type, file.name):
        drawn = view.context.drawings.draw(view.principal.user_id, PreviewPage(sha256, number, 0), lambda: file.data)
    has_pages = drawn is not None and drawn.pages > 0
    before, after = neighbours([one.number for one in listed], number)
    values: dict[str, Any] = {
        "message_id": message_id,
        "number": number,
        "file": file,
        "name": honest_name(file.name),
        "before": before,
        "after": after,
        "drawn": drawn if has_pages else None,
        "is_image": file.content_type in IMAGE_TYPES,
        "page": page,
        "find": find,
        "holders": others[:_HOLDERS],
        "more_holders": len(others) > _HOLDERS,
        "reason": (known.reason if known else None) or (drawn.reason if drawn else None),
        "is_read": known is not None,
        **_text_of(view, known, page if has_pages else None, find),
    }
    return view.page("file_view.html", **values)


def _text_of(view: View, known: KnownText | None, page: int | None, find: str) -> dict[str, Any]:
    """The text of a page, or of all, with what the reader looks for marked, and the pages that have it."""
    pages = texts.read_pages(view.context.archive, known) if known else ()
    shown, left = [], _PREVIEW_CHARS
    for one in pages:
        if page is not None and one.number != page:
            continue
        shown.append((one.file, one.number, mark(one.text[: max(left, 0)], find)))
        left -= len(one.text)
        if left <= 0:
            break
    return {"pages": shown, "is_cut": left <= 0, "hits": find_in_pages(pages, find)}


@router.get("/messages/{message_id}/files")
def conversation_files(view: Viewed, message_id: UUID) -> Response:
    """All attachments of the conversation of a message."""
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        detail = messages.detail(connection, scope, message_id)
        listed = [one.id for one in messages.around(connection, scope, detail.message, _GRID_MESSAGES).messages]
        found = attached_files.of_messages(connection, scope, listed, _GRID_FILES)
    _record(view, message_id, how="conversation", files=len(found))
    title = detail.message.subject or view.t("message.no_subject")
    return view.page(
        "files.html", files=found, title=title, back=f"/messages/{message_id}", after=None, error=None, has_picture=has_picture
    )


@router.get("/files")
def search_files(view: Viewed, q: Text = "", page: int = 1) -> Response:
    """All attachments of the messages that a search finds, some messages at a time."""
    wanted, page = q.strip(), min(max(page, 1), 10_000)
    offset = (page - 1) * _GRID_MESSAGES
    values: dict[str, Any] = {"files": [], "title": wanted, "q": wanted, "back": link(wanted), "after": None, "error": None}
    values["has_picture"] = has_picture
    try:
        results = view.context.search.search_as(
            view.principal, f"{wanted} has:attachment".strip(), offset=offset, limit=_GRID_MESSAGES, zone=view.zone
        )
    except QueryError as error:
        return view.page("files.html", **values | {"error": error})
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        ids = [UUID(str(hit.id)) for hit in results.hits]
        values["files"] = attached_files.of_messages(connection, scope, ids, _GRID_FILES)
    values["after"] = page + 1 if results.total > offset + _GRID_MESSAGES else None
    return view.page("files.html", **values)


def has_picture(file: FileInfo | AttachedFile) -> bool:
    """Whether a thumbnail can be shown."""
    if is_pdf(file.content_type, file.name):
        return True
    return file.content_type in IMAGE_TYPES and file.size_bytes <= _THUMBNAIL_BYTES


def visible(view: View, message_id: UUID) -> tuple[bytes, int]:
    """SHA-256 and size of a message that this reader may see."""
    with view.context.reading() as connection:
        return messages.visible_hash(connection, scope_of(connection, view.principal), message_id)


def _record(view: View, message_id: UUID, **detail: object) -> None:
    audit.record_look(view.context.engine, view.principal, "attachment.read", "message", message_id, **detail)
