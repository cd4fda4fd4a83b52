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
from archiver.errors import NotReady
from archiver.http.invitations import describe_event
from archiver.http.mail_route import field_name, steps_of
from archiver.http.mail_view import fold_quotes, frame_height, is_plain, passages_of
from archiver.http.pages.base import Form, Posted, View, Viewed, redirect
from archiver.http.pages.change_notice import describe_change
from archiver.http.pages.files import FILE_HEADERS, has_picture, visible
from archiver.indexing import splitting, texts
from archiver.marks import notes, tags
from archiver.reading import messages
from archiver.reading.content import FileInfo, MailContent
from archiver.reading.messages import ConversationWindow, MessageDetail, ThreadRow
from archiver.retention import holds, labels
from archiver.retention.keeping import explain

router = APIRouter(include_in_schema=False)

_SOURCE_BYTES = 512 << 10
_SANDBOX = "allow-same-origin allow-popups allow-popups-to-escape-sandbox"
"""Never with allow-scripts. The page that shows the frame may measure it (docs/decisions/0017-the-height-of-a-mail.md)."""
_FRAME = (
    f"sandbox {_SANDBOX}; default-src 'none'; script-src 'none'; style-src 'unsafe-inline'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
_STYLE = (
    "body{margin:16px;font:15px/1.5 system-ui,sans-serif;color:#1d2129;background:#fff;overflow-wrap:anywhere}"
    "img{max-width:100%;height:auto}table{max-width:100%}"
    "a[href]:hover::after{content:' ⟨' attr(href) '⟩';color:#767676;font-size:.85em}"
    "summary{cursor:pointer;color:#767676;font-size:.9em}"
    "blockquote{margin:8px 0 8px 8px;padding-left:12px;border-left:2px solid #8888}"
)
_THEMES = {
    "light": "",
    "dark": "body{color:#e4e8ee;background:#161b21}a{color:#7db8f0}",
}
_THEMES["auto"] = f"@media (prefers-color-scheme:dark){{{_THEMES['dark']}}}"
_PRINT_STYLE = (
    "body{max-width:44em;margin:24px auto;padding:0 16px}h1{font-size:1.4em;margin:0 0 12px}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0 0 16px;padding-bottom:12px}"
    "dt{color:#666}dd{margin:0}.text{white-space:pre-wrap;unicode-bidi:plaintext}footer{margin-top:24px;color:#666;font-size:.8em}"
    "@media print{body{margin:0;max-width:none;padding:0}a[href]:hover::after{content:none}}"
)
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
        own_labels = labels.on_messages(connection, [message_id])
        known_labels = labels.list_labels(connection) if Right.LABEL in view.principal.rights else []
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
        "labels": own_labels,
        "known_labels": known_labels,
        "kept": kept,
        "people": _people(detail),
        "show": "text" if show == "text" or not content.html else "html",
        "passages": passages_of(content.text, q),
        "frame_height": frame_height(content.html, content.text),
        "sandbox": _SANDBOX,
        "is_plain": is_plain(content.html),
        "files": _listed_files(content),
        "has_picture": has_picture,
        "calendar": [describe_event(view.t, event, view.zone) for event in content.events],
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


@router.get("/messages/{message_id}/prepare")
def prepare(view: Viewed, message_id: UUID) -> Response:
    """Parses the message that a reader will probably open next. Nothing of it is sent, so the audit log has nothing of it."""
    sha256, size = visible(view, message_id)
    view.context.opener.read(view.principal.user_id, sha256, size, "cid")
    return Response(status_code=204)


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
    sha256, size = visible(view, message_id)
    html = view.context.opener.frame(view.principal.user_id, sha256, size, keep_remote=remote)
    if remote:
        audit.record_look(view.context.engine, view.principal, "message.remote_images", "message", message_id)
        html = view.context.remote_images.embed(html, sha256, view.principal.user_id)
    theme = _THEMES[view.user.settings.get("theme") or "auto"] if is_plain(html) else ""
    page = (
        '<!doctype html><html dir="auto"><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f"<title>mail</title><style>{_STYLE}{theme}</style>{fold_quotes(html, escape(view.t('message.quoted')))}"
    )
    return HTMLResponse(page, headers={**FILE_HEADERS, "Content-Security-Policy": f"{_FRAME}; img-src data:"})


@router.get("/messages/{message_id}/print")
def print_page(view: Viewed, message_id: UUID, remote: bool = False) -> Response:
    """The whole message on one sheet, to print or to save as PDF: a frame would be cut at its height. In the same sandbox."""
    with view.context.reading() as connection:
        detail = messages.detail(connection, scope_of(connection, view.principal), message_id)
    message, reader = detail.message, view.principal.user_id
    audit.record_look(view.context.engine, view.principal, "message.read", "message", message_id, how="print")
    content = view.context.opener.read(reader, bytes.fromhex(message.sha256), message.size_bytes, "cid")
    html = ""
    if content.html:
        html = view.context.opener.frame(reader, bytes.fromhex(message.sha256), message.size_bytes, keep_remote=False)
    values = {"message": message, "people": _people(detail), "content": content, "body": html, "detail": detail}
    page = view.page("print.html", **values, files=_listed_files(content), style=f"{_STYLE}{_PRINT_STYLE}")
    page.headers.update({**FILE_HEADERS, "Content-Security-Policy": f"{_FRAME}; img-src data:"})
    return page


@router.get("/messages/{message_id}/header")
def header_page(view: Viewed, message_id: UUID) -> Response:
    """All header fields, decoded, with the path of the mail and what servers reported about its authenticity."""
    sha256, size = visible(view, message_id)
    audit.record_look(view.context.engine, view.principal, "message.read", "message", message_id, how="header")
    header = view.context.opener.header(view.principal.user_id, sha256, size)
    return view.page("header.html", message_id=message_id, header=header, steps=steps_of(header.hops), field_name=field_name)


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


def _listed_files(content: MailContent) -> list[FileInfo]:
    """Without the images that the text itself shows."""
    return [file for file in content.attachments if not (file.inline and file.content_id)]


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
