"""One message: headers, sanitised HTML in a sandboxed frame, text, attachments, conversation, copies and hash."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from archiver.access import audit
from archiver.access.principal import Right
from archiver.access.scope import scope_of
from archiver.errors import NotFound, NotReady
from archiver.http.api.downloads import attachment_name
from archiver.http.mail_view import fold_quotes, frame_height, is_plain, passages_of
from archiver.http.pages.base import Form, Posted, View, Viewed, redirect
from archiver.http.pages.change_notice import describe_change
from archiver.indexing import splitting, texts
from archiver.marks import notes, tags
from archiver.reading import messages
from archiver.reading.content import IMAGE_TYPES, MailContent
from archiver.reading.messages import ConversationWindow, MessageDetail, ThreadRow
from archiver.reading.previews import PreviewPage
from archiver.retention import holds
from archiver.retention.keeping import explain

router = APIRouter(include_in_schema=False)

_SOURCE_BYTES = 512 << 10
_PREVIEW_CHARS = 500_000
_SANDBOX = "allow-same-origin allow-popups allow-popups-to-escape-sandbox"
"""Never with allow-scripts. The page that shows the frame may measure it (docs/decisions/0017-the-height-of-a-mail.md)."""
_FRAME = (
    f"sandbox {_SANDBOX}; default-src 'none'; script-src 'none'; style-src 'unsafe-inline'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
_FRAME_HEADERS = {"X-Frame-Options": "SAMEORIGIN", "Cache-Control": "private, no-store", "Referrer-Policy": "no-referrer"}
_STYLE = (
    "body{margin:16px;font:15px/1.5 system-ui,sans-serif;color:#1d2129;background:#fff;overflow-wrap:anywhere}"
    "img{max-width:100%;height:auto}table{max-width:100%}"
    "a[href]:hover::after{content:' ⟨' attr(href) '⟩';color:#767676;font-size:.85em}"
    "summary{cursor:pointer;color:#767676;font-size:.9em}"
    "blockquote{margin:8px 0 8px 8px;padding-left:12px;border-left:2px solid #8888}"
)
_THEMES = {
    "light": "",
    "dark": "body{color:#e4e8ee;background:#12161c}a{color:#7db8f0}",
}
_THEMES["auto"] = f"@media (prefers-color-scheme:dark){{{_THEMES['dark']}}}"
_EACH_SIDE = 50
"""Messages of a conversation before and after the opened one."""
_NEAR = 2
"""Of these, how many are not folded away in a long conversation."""


@router.get("/messages/{message_id}")
def message_page(view: Viewed, message_id: UUID, q: str = "", part: str = "", show: str = "", change: str = "") -> Response:
    """`part=pane` returns the conversation with the message opened, without the frame of the page, for scripts."""
    with view.context.reading() as connection:
        scope = scope_of(connection, view.principal)
        detail = messages.detail(connection, scope, message_id)
        thread = messages.around(connection, scope, detail.message, _EACH_SIDE)
        held, kept, divided = [], [], None
        own_tags = tags.tags_on(connection, scope, [message_id]).get(message_id, [])
        own_notes = notes.notes_on(connection, scope, message_id)
        known_tags = tags.list_tags(connection, scope)
        if Right.ADMIN in view.principal.rights:
            divided = splitting.split_of(connection, message_id, detail.internet_message_id)
        if Right.AUDIT in view.principal.rights:
            held = holds.names_on_message(connection, message_id)
            kept = explain(connection, view.context.engine, message_id, scope.mailboxes)
    message = detail.message
    audit.record_look(view.context.engine, view.principal, "message.read", "message", message_id)
    content = view.context.opener.read(view.principal.user_id, bytes.fromhex(message.sha256), message.size_bytes, "cid")
    values: dict[str, Any] = {
        "q": q[:2000],
        "detail": detail,
        "message": message,
        "content": content,
        "thread": thread,
        "sections": _sections(thread.messages, message_id),
        "beginnings": _beginnings(view, thread, message_id),
        "divided": divided,
        "tags": own_tags,
        "notes": own_notes,
        "known_tags": known_tags,
        "change": describe_change(view, change) if change else None,
        "held": held,
        "kept": kept,
        "people": _people(detail),
        "show": "text" if show == "text" or not content.html else "html",
        "passages": passages_of(content.text, q),
        "frame_height": frame_height(content.html, content.text),
        "sandbox": _SANDBOX,
        "is_plain": is_plain(content.html),
        "files": [file for file in content.attachments if not (file.inline and file.content_id)],
        "image_types": IMAGE_TYPES,
        "is_pdf": _is_pdf,
        "with_text": _with_text(view, content) if message.search_state in ("full", "partial") else set(),
    }
    return view.page("message_pane.html" if part == "pane" else "message.html", **values)


def _sections(listed: Sequence[ThreadRow], opened: UUID) -> list[tuple[bool, Sequence[ThreadRow]]]:
    """The messages of a conversation in order. Those far from its ends and from the opened one are folded (True)."""
    here = next((number for number, one in enumerate(listed) if one.id == opened), 0)
    last = len(listed) - 1
    near = [number in (0, last) or abs(number - here) <= _NEAR for number in range(len(listed))]
    sections: list[tuple[bool, Sequence[ThreadRow]]] = []
    for is_near, group in groupby(range(len(listed)), key=lambda number: near[number]):
        numbers = list(group)
        is_folded = not is_near and len(numbers) > _NEAR
        sections.append((is_folded, listed[numbers[0] : numbers[-1] + 1]))
    return sections


def _beginnings(view: View, thread: ConversationWindow, opened: UUID) -> dict[UUID, str]:
    """What the other messages begin with. Reading does without it while the search server is away."""
    try:
        return view.context.search.beginnings([one.id for one in thread.messages if one.id != opened])
    except NotReady:
        return {}


@router.post("/messages/{message_id}/conversation")
def change_conversation(view: Posted, form: Form, message_id: UUID) -> Response:
    """Splits the conversation before this message, or joins it again."""
    change = splitting.rejoin if form.get("do") == "rejoin" else splitting.split
    with view.context.engine.begin() as connection:
        change(connection, view.principal, scope_of(connection, view.principal), message_id)
    view.context.save_config()
    return redirect(f"/messages/{message_id}")


@router.get("/messages/{message_id}/body")
def body_frame(view: Viewed, message_id: UUID, remote: bool = False) -> Response:
    """The HTML of a message in a sandbox: no scripts, no forms, no network.

    With `remote`, this server fetches external images and embeds them.
    """
    sha256, size = _visible(view, message_id)
    html = view.context.opener.frame(view.principal.user_id, sha256, size, keep_remote=remote)
    if remote:
        audit.record_look(view.context.engine, view.principal, "message.remote_images", "message", message_id)
        html = view.context.remote_images.embed(html, sha256, view.principal.user_id)
    theme = _THEMES[view.user.settings.get("theme") or "auto"] if is_plain(html) else ""
    page = (
        '<!doctype html><html dir="auto"><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f"<title>mail</title><style>{_STYLE}{theme}</style>{fold_quotes(html, escape(view.t('message.quoted')))}"
    )
    return HTMLResponse(page, headers={**_FRAME_HEADERS, "Content-Security-Policy": f"{_FRAME}; img-src data:"})


@router.get("/messages/{message_id}/files/{number}")
def show_file(view: Viewed, message_id: UUID, number: int) -> Response:
    """An image attachment, inline. All other types can only be downloaded."""
    sha256, size = _visible(view, message_id)
    file = view.context.opener.file(view.principal.user_id, sha256, size, number)
    audit.record_look(
        view.context.engine, view.principal, "attachment.read", "message", message_id, number=number, name=file.name
    )
    if file.content_type not in IMAGE_TYPES:
        raise NotFound(f"attachment {number} is not an image: download it instead")
    name = attachment_name(file.name).replace("attachment", "inline", 1)
    headers = {
        **_FRAME_HEADERS,
        "Content-Disposition": name,
        "Content-Security-Policy": "sandbox; default-src 'none'; img-src 'self'",
    }
    return Response(file.data, media_type=file.content_type, headers=headers)


@router.get("/messages/{message_id}/files/{number}/pages/{page}")
def draw_page(view: Viewed, message_id: UUID, number: int, page: int) -> Response:
    """A PDF page as an image, rendered in a separate process. The file itself never reaches the browser."""
    sha256, size = _visible(view, message_id)
    audit.record_look(view.context.engine, view.principal, "attachment.read", "message", message_id, number=number, page=page)
    picture = view.context.drawings.draw(
        view.principal.user_id,
        PreviewPage(sha256, number, page),
        lambda: view.context.opener.file(view.principal.user_id, sha256, size, number).data,
    )
    if not picture.png:
        raise NotFound(picture.reason or f"attachment {number} has no page {page}")
    headers = {**_FRAME_HEADERS, "Content-Security-Policy": "sandbox; default-src 'none'; img-src 'self'"}
    return Response(picture.png, media_type="image/png", headers=headers)


@router.get("/messages/{message_id}/files/{number}/text")
def file_text(view: Viewed, message_id: UUID, number: int, page: int = 1) -> Response:
    """A preview that does not open the file: rendered pages of a PDF, and the text that was extracted for the index."""
    sha256, size = _visible(view, message_id)
    file = view.context.opener.file(view.principal.user_id, sha256, size, number)
    audit.record_look(
        view.context.engine, view.principal, "attachment.read", "message", message_id, number=number, name=file.name
    )
    with view.context.reading() as connection:
        is_read = messages.is_read(connection, scope_of(connection, view.principal), message_id)
        known = texts.known_texts(connection, [file.sha256]).get(file.sha256) if is_read else None
    drawn = None
    if _is_pdf(file.content_type, file.name):
        drawn = view.context.drawings.draw(view.principal.user_id, PreviewPage(sha256, number, 0), lambda: file.data)
    has_pages = drawn is not None and drawn.pages > 0
    shown, left = [], _PREVIEW_CHARS
    for one in texts.read_pages(view.context.archive, known) if known else ():
        if has_pages and one.number != page:
            continue
        shown.append((one.file, one.number, one.text[:left]))
        left -= len(one.text)
        if left <= 0:
            break
    values: dict[str, Any] = {
        "message_id": message_id,
        "number": number,
        "file": file,
        "pages": shown,
        "is_cut": left <= 0,
        "drawn": drawn if has_pages else None,
        "page": page,
        "reason": (known.reason if known else None) or (drawn.reason if drawn else None),
        "is_read": known is not None,
    }
    return view.page("file_text.html", **values)


@router.get("/messages/{message_id}/source")
def source_page(view: Viewed, message_id: UUID) -> Response:
    """The original bytes as text."""
    with view.context.reading() as connection:
        detail = messages.detail(connection, scope_of(connection, view.principal), message_id)
    audit.record_look(view.context.engine, view.principal, "message.read", "message", message_id, how="source")
    taken = bytearray()
    for piece in view.context.archive.stream(bytes.fromhex(detail.message.sha256)):
        taken += piece[: _SOURCE_BYTES - len(taken)]  # reads all pieces, so that damage anywhere is detected
    shown = bytes(taken).decode("utf-8", "replace")
    return view.page("message_source.html", message=detail.message, source=shown, is_cut=detail.message.size_bytes > len(taken))


def _is_pdf(content_type: str, name: str) -> bool:
    return content_type == "application/pdf" or name.lower().endswith(".pdf")


def _visible(view: View, message_id: UUID) -> tuple[bytes, int]:
    with view.context.reading() as connection:
        return messages.visible_hash(connection, scope_of(connection, view.principal), message_id)


def _with_text(view: View, content: MailContent) -> set[str]:
    """Hashes of the attachments whose text has been extracted."""
    if not content.attachments:
        return set()
    with view.context.reading() as connection:
        read = texts.known_texts(connection, [bytes.fromhex(file.sha256) for file in content.attachments])
    return {sha256.hex() for sha256, known in read.items() if known.text_sha256 is not None}


def _people(detail: MessageDetail) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for one in detail.participants:
        found.setdefault(one.role, []).append(one)
    return found
