"""What a change of several messages has done, or how far it is."""

from __future__ import annotations

from typing import Any

from archiver.http.pages.base import View, parse_id
from archiver.marks import changes
from archiver.marks.changes import MailChange


def describe_change(view: View, change_id: str) -> dict[str, Any]:
    """For the notice above the results: what was done, or how far it is."""
    with view.context.reading() as connection:
        change = changes.load(connection, view.principal, parse_id(change_id))
        done = changes.progress(connection, change)
    return {
        "id": str(change.id),
        "text": _text(view, change),
        "is_open": change.finished_at is None,
        "done": done.done,
        "total": max(done.chosen, change.chosen),
        "can_be_undone": change.can_be_undone,
        "is_bad": bool(change.error),
    }


def _text(view: View, change: MailChange) -> str:
    t, values = view.t, {"subject": change.subject}
    if change.undone_at is not None:
        return t("change.undone", n=change.changed)
    if change.finished_at is None:
        return t(f"change.doing_{change.action}", **values)
    text = t(f"change.did_{change.action}", n=change.changed, **values)
    if change.error:
        text = f"{text} {t('change.stopped')}"
    return f"{text} {t('change.kept', n=change.refused)}" if change.refused else text
