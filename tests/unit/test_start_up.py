"""How much a command loads before it does anything: most of the time of a short one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from alembic.script import ScriptDirectory

from archiver.db.schema import _config, _folder

FOR_OTHERS = {
    "alembic", "archiver.extract", "archiver.mail.body", "archiver.mail.message", "archiver.store", "boto3", "bullmq",
    "connectors.base", "connectors.kinds", "croniter", "cryptography", "fastapi", "kreuzberg", "mako", "numpy", "structlog",
    "tantivy",
}  # fmt: skip
PROGRAM = """
import sys
from archiver.cli.app import build
build(("search",))
import archiver.access.audit, archiver.db.schema, archiver.search.service
from archiver.config import load_settings
load_settings({})
print(*sys.modules)
"""


def test_a_search_does_not_load_what_it_does_not_use(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, check=True)
    found = set(done.stdout.split())
    assert "sqlalchemy" in found
    assert FOR_OTHERS.intersection(found) == set()


def test_the_newest_migration_is_known_by_its_name() -> None:
    """Which saves loading Alembic where there is nothing to migrate."""
    newest = max(path.name[1:5] for path in (_folder() / "versions").glob("m[0-9][0-9][0-9][0-9]_*.py"))
    assert ScriptDirectory.from_config(_config()).get_current_head() == newest
