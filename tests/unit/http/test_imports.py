"""What the web process holds in memory."""

from __future__ import annotations

import subprocess
import sys

FOR_OTHERS = {"alembic", "boto3", "kreuzberg", "numpy", "obstore", "PIL", "playwright", "pypdfium2", "tantivy", "workers"}


def test_what_only_other_processes_need_is_not_imported() -> None:
    program = (
        "import sys, archiver.cli.start.servers, archiver.http.serve; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "fastapi" in found
    assert not FOR_OTHERS.intersection(found)
