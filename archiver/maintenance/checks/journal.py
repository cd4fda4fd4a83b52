"""Whether journaling works: its certificate, its port, and what waits in its spool."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cryptography import x509

from archiver.config import Settings
from archiver.errors import ConfigError
from archiver.journal.activity import spool_folder
from archiver.journal.server import tls_context
from archiver.journal.spool import read_backlog, read_oldest
from archiver.maintenance.checks.findings import DoctorFinding, Verdict
from archiver.quantity import quantity

_SECONDS = 5.0
_LATE = timedelta(minutes=10)
_ENDS_SOON = timedelta(days=14)


def journal_findings(settings: Settings) -> Iterator[DoctorFinding]:
    if not settings.has_journal:
        return
    yield from _certificate(settings)
    if settings.journal_port is not None:
        yield _answer(settings.journal_host, settings.journal_port)
    yield _spool(settings)
    if not settings.journal_domains:
        text = "JOURNAL_DOMAINS is not set: all journalled mail goes to the mailbox “unassigned”"
        yield DoctorFinding("journal domains", Verdict.WARNING, text)


def _certificate(settings: Settings) -> Iterator[DoctorFinding]:
    if settings.journal_tls_certificate is None:
        return
    try:
        tls_context(settings)
        certificate = x509.load_pem_x509_certificate(settings.journal_tls_certificate.read_bytes())
    except (ConfigError, ValueError) as error:
        yield DoctorFinding("journal certificate", Verdict.FAILED, str(error))
        return
    ends = certificate.not_valid_after_utc
    soon = ends < datetime.now(UTC) + _ENDS_SOON
    verdict = Verdict.WARNING if soon else Verdict.OK
    advice = ": renew it, and restart `archiver journal`" if soon else ""
    yield DoctorFinding("journal certificate", verdict, f"valid until {ends:%Y-%m-%d}{advice}")


def _answer(host: str, port: int) -> DoctorFinding:
    place = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
    try:
        with socket.create_connection((place, port), _SECONDS) as connection:
            connection.settimeout(_SECONDS)
            greeting = connection.recv(200).decode("ascii", "replace").strip()
    except OSError as error:
        reason = error.strerror or str(error)
        return DoctorFinding(
            "journal", Verdict.WARNING, f"nothing answers on {place}:{port} ({reason}): does `archiver journal` run?"
        )
    is_ours = greeting.startswith(("220", "421"))
    return DoctorFinding("journal", Verdict.OK if is_ours else Verdict.WARNING, f"{place}:{port} answers: {greeting[:80]}")


def _spool(settings: Settings) -> DoctorFinding:
    folder = spool_folder(settings.archiver_data)
    backlog, oldest = read_backlog(folder), read_oldest(folder)
    if backlog.set_aside:
        text = f"{quantity(backlog.set_aside, 'file')} in {folder} (*.failed) can't be read: restore the disk, or remove them"
        return DoctorFinding("journal spool", Verdict.FAILED, text)
    if oldest is not None and datetime.now(UTC) - oldest > _LATE:
        text = f"{quantity(backlog.files, 'file')} ({backlog.bytes / 1e6:,.1f} MB) wait since {oldest:%Y-%m-%d %H:%M} UTC"
        return DoctorFinding("journal spool", Verdict.WARNING, f"{text}: see the log of the journal")
    return DoctorFinding("journal spool", Verdict.OK, f"{quantity(backlog.files, 'file')} to archive")
