"""Errors in Meilisearch's form: `message`, `code`, `type`, `link`, and an HTTP status."""

from __future__ import annotations

from typing import Any

DOCS = "https://docs.meilisearch.com/errors#"

# codes whose status or type is not the usual 400 / invalid_request
_STATUS = {
    "index_not_found": 404,
    "document_not_found": 404,
    "task_not_found": 404,
    "batch_not_found": 404,
    "api_key_not_found": 404,
    "webhook_not_found": 404,
    "not_found": 404,
    "missing_authorization_header": 401,
    "missing_master_key": 401,
    "invalid_api_key": 403,
    "index_already_exists": 409,
    "api_key_already_exists": 409,
    "payload_too_large": 413,
    "invalid_content_type": 415,
    "missing_content_type": 415,
    "unsupported_media_type": 415,
    "no_space_left_on_device": 422,
    "too_many_search_requests": 503,
    "internal": 500,
    "method_not_allowed": 405,
}
_AUTH = {"missing_authorization_header", "missing_master_key", "invalid_api_key"}
_SYSTEM = {"no_space_left_on_device", "too_many_search_requests"}


class ApiError(Exception):
    """The error of a rejected request or a failed task."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return _STATUS.get(self.code, 400)

    def body(self) -> dict[str, Any]:
        return {"message": self.message, "code": self.code, "type": self._type(), "link": DOCS + self.code}

    def _type(self) -> str:
        if self.code in _AUTH:
            return "auth"
        if self.code in _SYSTEM:
            return "system"
        return "internal" if self.code == "internal" else "invalid_request"


def index_not_found(uid: str) -> ApiError:
    return ApiError("index_not_found", f"Index `{uid}` not found.")


def document_not_found(document_id: str) -> ApiError:
    return ApiError("document_not_found", f"Document `{document_id}` not found.")


def not_supported(what: str) -> ApiError:
    """For a feature of Meilisearch that this server does not have."""
    return ApiError(
        "feature_not_enabled", f"{what} is not available in the embedded search server; it needs a real Meilisearch."
    )
