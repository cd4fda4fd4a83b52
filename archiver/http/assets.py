"""Styles and scripts, under a path that changes with their content, so that browsers cache them for good.

Scripts that import each other resolve to the same folder, so that each is loaded once.
"""

from __future__ import annotations

import hashlib
from functools import cache
from os import PathLike, stat_result
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "static"


@cache
def static_path() -> str:
    digest = hashlib.sha256()
    for path in sorted(FOLDER.iterdir()):
        digest.update(path.read_bytes())
    return f"/static/{digest.hexdigest()[:12]}"


class KeptFiles(StaticFiles):
    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
