"""What `archiver doctor` says about the journal."""

from __future__ import annotations

from pathlib import Path

from archiver.config import Settings, load_settings
from archiver.journal.activity import spool_folder
from archiver.maintenance.checks.findings import Verdict
from archiver.maintenance.checks.journal import journal_findings
from tests.support.ports import free_port


def _settings(tmp_path: Path, **more: str) -> Settings:
    return load_settings({"ARCHIVER_DATA": str(tmp_path), **more}, Path("none"))


def _verdicts(settings: Settings) -> dict[str, Verdict]:
    return {one.check: one.verdict for one in journal_findings(settings)}


def test_nothing_is_said_while_it_is_off(tmp_path: Path) -> None:
    assert _verdicts(_settings(tmp_path)) == {}


def test_a_silent_port_old_files_and_missing_domains_are_named(tmp_path: Path) -> None:
    settings = _settings(tmp_path, JOURNAL_PORT=str(free_port()))
    assert _verdicts(settings) == {"journal": Verdict.WARNING, "journal spool": Verdict.OK, "journal domains": Verdict.WARNING}
    folder = spool_folder(tmp_path)
    folder.mkdir()
    (folder / "01900000-0000-7000-8000-000000000000.mail").touch()
    assert _verdicts(settings)["journal spool"] is Verdict.WARNING
    (folder / "01900000-0000-7000-8000-000000000001.failed").touch()
    assert _verdicts(settings)["journal spool"] is Verdict.FAILED


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nothing")
    files = {"JOURNAL_TLS_CERTIFICATE": str(tmp_path / "x.pem"), "JOURNAL_TLS_KEY": str(tmp_path / "x.pem")}
    assert _verdicts(_settings(tmp_path, JOURNAL_PORT=str(free_port()), **files))["journal certificate"] is Verdict.FAILED
