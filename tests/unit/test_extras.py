"""A small installation: without the extras everything else works, and what needs one names it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from archiver.errors import UsageError
from archiver.sources.kinds import kind_of, validate
from connectors.extras import PACKAGES
from connectors.kinds import KINDS

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        absent = ("boto3", "botocore", "obstore", "msal", "googleapiclient", "httplib2", "google.auth", "google.oauth2")
        if name.startswith((*absent, "typst")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + program], capture_output=True, text=True, cwd=ROOT)


def test_everything_is_imported_without_the_extras() -> None:
    done = run(
        "import archiver.cli.app, archiver.http.serve, workers.__main__, connectors.kinds; print(len(connectors.kinds.KINDS))"
    )
    assert done.stdout == f"{len(KINDS)}\n", done.stderr


@pytest.mark.parametrize("kind", ["google", "gmail", "microsoft", "outlook"])
def test_a_source_names_the_extra_that_it_needs(kind: str) -> None:
    extra = KINDS[kind].extra
    done = run(
        "from archiver.errors import UsageError\n"
        "from archiver.sources.kinds import kind_of, validate\n"
        f"try: validate(kind_of({kind!r}), {{}}, {{}})\n"
        "except UsageError as error: print(error)"
    )
    assert done.stdout.startswith(f"a source of kind {kind} can't be used: it needs packages"), done.stderr
    assert f"install Archiver with the extra {extra!r}" in done.stdout


def test_a_refused_kind_leaves_no_data_folder(tmp_path: Path) -> None:
    program = f"import os; os.environ['ARCHIVER_DATA'] = {str(tmp_path / 'data')!r}\nfrom archiver.cli.app import main\n"
    done = run(program + "sys.argv = ['archiver', 'source', 'add', 'google', '--name', 'x']\nmain()")
    assert "install Archiver with the extra 'google'" in done.stderr
    assert not (tmp_path / "data").exists()


def test_other_kinds_need_none() -> None:
    assert {kind.name for kind in KINDS.values() if kind.extra is None} == {"imap", "jmap", "files", "import", "fake"}
    with pytest.raises(UsageError, match="host"):
        validate(kind_of("imap"), {}, {})


def test_a_bucket_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    done = run(
        "from archiver.config import Settings\n"
        "from archiver.errors import ConfigError\n"
        "from archiver.store import open as opening\n"
        f"settings = Settings(archiver_data={str(tmp_path)!r}, storage_type='s3')\n"
        "try: opening._backend(settings, None, None, None)\n"
        "except ConfigError as error: print(error)"
    )
    assert "STORAGE_TYPE=s3 needs packages that are not installed" in done.stdout, done.stderr
    assert "with the extra 's3'" in done.stdout


def test_an_export_as_pdf_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    done = run(
        "from archiver.access.principal import LOCAL_OPERATOR\n"
        "from archiver.config import Settings\n"
        "from archiver.errors import UsageError\n"
        "from archiver.exports.selection import PackageOptions, Selection\n"
        "from archiver.exports.service import request\n"
        f"settings = Settings(archiver_data={str(tmp_path)!r})\n"
        "try: request(None, settings, LOCAL_OPERATOR, Selection(everything=True), PackageOptions('pdf'))\n"
        "except UsageError as error: print(error)"
    )
    assert "install Archiver with the extra 'pdf' or 'all'" in done.stdout, done.stderr


def test_the_extras_are_those_of_the_project_and_all_names_every_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) - {"dev", "all", "s3", "alerts", "otel", "pdf"} == set(PACKAGES)
    assert extras["all"] == [f"archiver[{','.join(name for name in extras if name not in ('dev', 'all'))}]"]
