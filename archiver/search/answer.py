"""The results of a search as plain values: what `archiver search --json` prints, and what the web process tells a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archiver.search.service import MessageHit, Results


def answer_of(results: Results, page: int) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "total": results.total,
        "total_is_lower_bound": results.total_is_lower_bound,
        "next_page": None if results.next_offset is None else page + 1,
        "similar": results.similar,
        "has_similar": results.has_similar,
        "hits": [_hit(hit) for hit in results.hits],
        "not_searchable": {
            "messages": sum(results.not_searchable.states.values()),
            "states": dict(results.not_searchable.states),
            "reasons": dict(results.not_searchable.reasons),
        },
    }
    if results.facets:
        answer["facets"] = {
            name: [{"value": facet.value, "count": facet.count} for facet in values] for name, values in results.facets.items()
        }
    return answer


def _hit(hit: MessageHit) -> dict[str, Any]:
    return {
        "id": str(hit.id),
        "sha256": hit.sha256,
        "date": hit.date.isoformat(),
        "from": hit.sender,
        "from_name": hit.sender_name,
        "subject": hit.subject.text,
        "subject_marks": [list(mark) for mark in hit.subject.marks],
        "snippet": hit.passage.text,
        "marks": [list(mark) for mark in hit.passage.marks],
        "found_in": hit.found_in,
        "bytes": hit.size_bytes,
        "has_attachments": hit.has_attachments,
        "thread": None if hit.thread_id is None else str(hit.thread_id),
        "copies": [dict(copy) for copy in hit.copies],
        "variants": [str(variant) for variant in hit.variants],
    }
