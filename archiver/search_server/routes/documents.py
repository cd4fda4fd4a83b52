"""/indexes/{uid}/documents."""

from __future__ import annotations

from typing import Any

import orjson
from tantivy import DocAddress, Order, Query

from archiver.search_server.errors import ApiError, document_not_found, not_supported
from archiver.search_server.index.engine import Snapshot
from archiver.search_server.index.settings import kind
from archiver.search_server.payload import format_of, read_documents
from archiver.search_server.query.filters import compile_filter
from archiver.search_server.query.formatting import select
from archiver.search_server.query.ordering import by_keys, parse_sort
from archiver.search_server.request import Call, ServerResponse, count_of
from archiver.search_server.routes.indexes import check_uid

_ADD_PARAMETERS = ("primaryKey", "csvDelimiter", "customMetadata", "skipCreation")


def add_or_replace(call: Call) -> ServerResponse:
    return _add(call, partial=False)


def add_or_update(call: Call) -> ServerResponse:
    return _add(call, partial=True)


def _add(call: Call, *, partial: bool) -> ServerResponse:
    uid = check_uid(call.uid)
    form = format_of(call.headers.get("content-type"))
    for name in call.query:
        if name not in _ADD_PARAMETERS:
            raise ApiError("bad_request", f"Unknown parameter `{name}`: expected one of {', '.join(_ADD_PARAMETERS)}")
    delimiter = call.query.get("csvDelimiter", ",")
    if "csvDelimiter" in call.query and (form != "csv" or len(delimiter) != 1 or not delimiter.isascii()):
        raise ApiError(
            "invalid_document_csv_delimiter",
            f"csv delimiter must be one ASCII character and needs a CSV payload. Found: `{delimiter}`",
        )
    received = len(read_documents(call.content, form, delimiter))
    request = {
        "format": form, "delimiter": delimiter, "partial": partial, "primaryKey": call.query.get("primaryKey"),
        "skipCreation": call.flag("skipCreation", "invalid_skip_creation"),
    }  # fmt: skip
    details = {"receivedDocuments": received, "indexedDocuments": None}
    return call.accept("documentAdditionOrUpdate", uid, request, details, call.content)


def get_document(call: Call) -> ServerResponse:
    entry = call.service.catalog.get(call.uid)
    document = entry.engine.snapshot().get(call.path["document_id"])
    if document is None:
        raise document_not_found(call.path["document_id"])
    fields = call.query.get("fields")
    return ServerResponse(select(document, None if fields in (None, "*") else str(fields).split(",")))


def list_documents(call: Call) -> ServerResponse:
    query: dict[str, Any] = dict(call.query)
    for name in ("fields", "ids"):
        if name in query:
            query[name] = None if query[name] == "*" else query[name].split(",")
    if "sort" in query:
        query["sort"] = query["sort"].split(",")
    return _fetch(call, query)


def fetch_documents(call: Call) -> ServerResponse:
    body = call.json(required=False) or {}
    if not isinstance(body, dict):
        raise ApiError("bad_request", f"Invalid value type: expected an object, but found {kind(body)}")
    return _fetch(call, body)


def _fetch(call: Call, wanted: dict[str, Any]) -> ServerResponse:
    known = ("offset", "limit", "fields", "filter", "ids", "sort", "retrieveVectors")
    for name in wanted:
        if name not in known:
            raise ApiError("bad_request", f"Unknown field `{name}`: expected one of {', '.join(f'`{one}`' for one in known)}")
    entry = call.service.catalog.get(call.uid)
    snapshot = entry.engine.snapshot()
    offset = count_of(wanted.get("offset"), "offset", 0, "invalid_document_offset")
    limit = count_of(wanted.get("limit"), "limit", 20, "invalid_document_limit")
    fields = wanted.get("fields")
    if fields is not None and not isinstance(fields, list):
        raise ApiError(
            "invalid_document_fields", f"Invalid value type at `.fields`: expected an array, but found {kind(fields)}"
        )
    query = compile_filter(entry, snapshot, wanted.get("filter"), "invalid_document_filter") or Query.all_query()
    if wanted.get("ids") is not None:
        ids = Query.term_set_query(snapshot.schema, "id", [str(one) for one in wanted["ids"]])
        query = query.and_must_match(ids)
    total = snapshot.count(query)
    keys = parse_sort(entry, wanted.get("sort"), "invalid_document_sort")
    found: list[DocAddress] = []
    if limit and offset < total:
        if keys:
            found = by_keys(snapshot, query, keys, total, offset, limit)
        else:
            found = [address for _, address in _by_arrival(snapshot, query, offset, limit)]
    documents = [select(snapshot.document(address), fields) for address in found]
    return ServerResponse({"results": documents, "offset": offset, "limit": limit, "total": total})


def _by_arrival(snapshot: Snapshot, query: Query, offset: int, limit: int) -> list[tuple[Any, DocAddress]]:
    return snapshot.searcher.search(query, limit, count=False, order_by_field="seq", order=Order.Asc, offset=offset).hits


def delete_document(call: Call) -> ServerResponse:
    return _delete(
        call, {"ids": [call.path["document_id"]]}, {"providedIds": 1, "originalFilter": None, "deletedDocuments": None}
    )


def delete_all(call: Call) -> ServerResponse:
    return _delete(call, {"all": True}, {"providedIds": 0, "originalFilter": None, "deletedDocuments": None})


def delete_batch(call: Call) -> ServerResponse:
    ids = call.json()
    if not isinstance(ids, list):
        raise ApiError("bad_request", f"Invalid value type: expected an array, but found {kind(ids)}")
    texts = [str(one) for one in ids]
    return _delete(call, {"ids": texts}, {"providedIds": len(ids), "originalFilter": None, "deletedDocuments": None})


def delete_by_filter(call: Call) -> ServerResponse:
    body = call.json()
    if not isinstance(body, dict) or "filter" not in body:
        raise ApiError("missing_document_filter", "Missing field `filter`")
    wanted = body["filter"]
    if not wanted or not isinstance(wanted, (str, list)):
        raise ApiError("invalid_document_filter", "Sending an empty filter is forbidden.")
    entry = call.service.catalog.find(call.uid)
    if entry is not None:  # a filter that can't be read is refused at once
        compile_filter(entry, entry.engine.snapshot(), wanted, "invalid_document_filter")
    shown = orjson.dumps(wanted).decode()
    return _delete(call, {"filter": wanted}, {"providedIds": 0, "originalFilter": shown, "deletedDocuments": None})


def edit_documents(call: Call) -> ServerResponse:
    raise not_supported("Editing documents by function")


def _delete(call: Call, request: dict[str, Any], details: dict[str, Any]) -> ServerResponse:
    return call.accept("documentDeletion", check_uid(call.uid), request, details)
