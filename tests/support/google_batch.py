"""Google's batches: many requests in one, as `multipart/mixed` in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable
from email.parser import BytesParser
from typing import Any

Answer = Callable[[str, str], tuple[int, Any, dict[str, str]]]
_BOUNDARY = "batch_of_the_tests"


def answer_batch(content_type: str, body: bytes, answer: Answer) -> tuple[int, bytes, dict[str, str]]:
    """`answer` gets the method and the target of each request."""
    whole = BytesParser().parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    parts = []
    for part in whole.get_payload():
        assert not isinstance(part, str)
        first = str(part.get_payload()).lstrip().split("\n", 1)[0]
        method, target, _ = first.split(" ")
        status, said, headers = answer(method, target)
        named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        name = str(part["Content-ID"]).strip("<>")
        parts.append(
            f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <response-{name}>\r\n\r\n"
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{named}\r\n{json.dumps(said)}\r\n"
        )
    return 200, f"{''.join(parts)}--{_BOUNDARY}--\r\n".encode(), {"Content-Type": f"multipart/mixed; boundary={_BOUNDARY}"}
