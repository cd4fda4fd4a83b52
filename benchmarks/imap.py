"""IMAP from a real Dovecot: into the archive against mbsync, a look at what is unchanged, a little new mail among very much.

Dovecot's own files lie in memory where there is such a place, so that both programs are measured, and not its disk.
"""

from __future__ import annotations

import io
import os
import resource
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import zstandard
from imapclient import IMAPClient

from archiver.config import load_settings
from archiver.secrets import credentials_keyring
from archiver.sources import rows as source_rows
from archiver.sources import runs
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from benchmarks.engine import servers, start_worker
from benchmarks.report import figure, load
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings
from connectors.imap.cursor import ImapCursor
from connectors.imap.folders import Status
from tests.support.dovecot import BINARY, PASSWORD, Dovecot, dovecot, message
from tests.support.tcp_proxy import proxy

CORPUS = Path(os.environ.get("ARCHIVER_TEST_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
FOLDERS, KNOWN, NEW = 100, 1_000_000, 10_000


def main() -> None:
    load()
    if BINARY is None:
        print("  skipped: dovecot is not installed (Debian, Ubuntu: apt install dovecot-imapd)")
        return
    with dovecot() as server:
        archive_against_mbsync(server)
        nothing_new(server)
    with dovecot("mail_location = mdbox:~/mdbox\nlogin_greeting = ready\nimap_id_send = name other\n") as server:
        little_among_much(server)


# --- into the archive


def archive_against_mbsync(server: Dovecot) -> None:
    mail = messages()
    server.fill("bench", "INBOX", mail)
    size = sum(map(len, mail)) / 1e6
    print(f"  {len(mail):,} messages, {size:,.0f} MB")
    started, before = time.monotonic(), time.process_time()
    with connector(server.settings("bench")) as opened:
        count = sum(len(batch.messages) for batch in opened.fetch(next(iter(opened.mailboxes())), {}, lambda _: set()))
    assert count == len(mail)
    figure("fetched and thrown away", count / (time.monotonic() - started), "messages/s")
    figure("  our processor time for that", 1e6 * (time.process_time() - before) / count, "µs/message")
    theirs = mbsync(server, len(mail))
    ours = archived(server, len(mail))
    if theirs:
        figure("archive / mbsync", ours / theirs, "×", "≥ 3")


def mbsync(server: Dovecot, count: int) -> float | None:
    if shutil.which("mbsync") is None:
        print("  mbsync is not installed (apt install isync): nothing to compare with")
        return None
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as place:
        config = Path(place, "config")
        config.write_text(
            f"IMAPStore far\nHost localhost\nPort {server.port}\nUser bench\nPass {PASSWORD}\nSSLType None\nAuthMechs PLAIN\n\n"
            f"MaildirStore near\nPath {place}/mail/\nInbox {place}/mail/INBOX\n\n"
            "Channel all\nFar :far:\nNear :near:\nCreate Near\nPatterns INBOX\nSyncState *\n"
        )
        Path(place, "mail").mkdir()
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["mbsync", "-q", "-c", str(config), "all"], check=True)
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        assert len(list(Path(place, "mail/INBOX").glob("*/*:2,*"))) == count
    figure("mbsync into a Maildir, as it comes (with fsync)", count / seconds, "messages/s")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figure("  its processor time", 1e6 * processor / count, "µs/message")
    return count / seconds


def archived(server: Dovecot, count: int) -> float:
    """Through the whole engine, as a running installation does it, in one worker."""
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as place, servers(Path(place)) as (environment, engine, _):
        keyring = credentials_keyring(load_settings(environment, Path("none")))
        with start_worker(environment), _largest() as largest:
            warm = sources.add(engine, keyring, QuietContext(), "fake", "warm", {"messages_per_mailbox": 5}, {})
            _run(engine, warm)
            source = sources.add(
                engine, keyring, QuietContext(), "imap", "bench", server.settings("bench"), {"password": PASSWORD}
            )
            before = _processor_seconds()
            run = _run(engine, source)
            assert (run.archived, run.outcome) == (count, "success"), run
            figure("archived, durable", run.archived / run.seconds, "messages/s")
            figure("  the worker's processor time", 1e6 * (_processor_seconds() - before) / count, "µs/message")
            again = _run(engine, source)
            assert again.archived == 0
            figure("  a second cycle with nothing new", again.seconds, "s", "< 1")
        figure("  the worker's memory at its largest", largest[0] / 2**20, "MiB", "≤ 300")
    return run.archived / run.seconds


def _run(engine: Any, source: Any) -> runs.Run:
    with engine.begin() as connection:
        before = runs.newest_run(connection, source.id)
        current = source_rows.load(connection, source.id)
        assert current is not None
        sources.sync_now(connection, current)
    return runs.wait_for_run(engine, source.id, before, 600, lambda _: None)


def _workers() -> Iterator[psutil.Process]:
    for child in psutil.Process().children(recursive=True):
        try:
            if "workers" in child.cmdline():
                yield child
        except psutil.Error:
            continue


def _processor_seconds() -> float:
    return sum(times.user + times.system for times in (worker.cpu_times() for worker in _workers()))


@contextmanager
def _largest() -> Iterator[list[int]]:
    """How large a worker of ours gets meanwhile."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            for worker in _workers():
                with suppress(psutil.Error):
                    seen[0] = max(seen[0], worker.memory_info().rss)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


# --- what is unchanged


def nothing_new(server: Dovecot) -> None:
    for number in range(FOLDERS):
        server.fill("folders", f"Folder {number}", [message(number)])
    state: dict[str, Any] = {}
    with connector(server.settings("folders")) as opened:
        box = next(iter(opened.mailboxes()))
        for batch in opened.fetch(box, {}, lambda _: set()):
            state |= batch.state
    with proxy(server.port) as line, connector(server.settings("folders", port=line.port)) as opened:
        opened.check()  # logs in, and lists the folders
        login, line.sent = line.turns, b""
        started = time.monotonic()
        assert not list(opened.fetch(box, state, lambda _: set()))
        seconds = time.monotonic() - started
        turns = line.turns - login
    figure(f"a look at {FOLDERS} unchanged folders", seconds, "s", "≤ 0.5")
    figure("  round trips, the login's three included", turns, "", "≤ 5")
    figure("  round trips after the login", turns - 3, "", "≤ 2")


# --- a little among much


def little_among_much(server: Dovecot) -> None:
    """Without ids, which copies would share; and not in a Maildir, which the server itself would have to read through."""
    with IMAPClient("localhost", server.port, ssl=False, timeout=600) as client:
        client.login("much", PASSWORD)
        client.select_folder("INBOX")
        for number in range(100):
            client.append("INBOX", message(number))
        _multiply(client, 100, KNOWN)
    with connector(server.settings("much", timeout_seconds=600)) as opened:
        box = next(iter(opened.mailboxes()))
        key = f"imap:{box.address}:INBOX"
        status = _status(opened, KNOWN)
        today, (rules, ids) = int(time.time() // 86400), _rules(server)
        place_before = ImapCursor(status.uid_validity, KNOWN, KNOWN, KNOWN + 1, status.modseq or 0, rules, ids, today)
        with IMAPClient("localhost", server.port, ssl=False, timeout=600) as client:
            client.login("much", PASSWORD)
            client.select_folder("INBOX")
            _multiply(client, KNOWN, KNOWN + NEW)
        asked: list[str] = []

        def known(keys: Any) -> set[str]:
            asked.extend(keys)
            return set(keys)

        started, before = time.monotonic(), time.process_time()
        list(opened.fetch(box, {key: place_before.as_json()}, known))
        figure(f"{NEW:,} new among {KNOWN:,} found", time.monotonic() - started, "s", "≤ 3")
        figure("  our processor time for that", time.process_time() - before, "s")
        assert len(asked) == NEW
        asked.clear()
        started = time.monotonic()
        lost = replace(place_before, count=KNOWN - 1)
        (*_, last) = opened.fetch(box, {key: lost.as_json()}, lambda keys: set(keys))
        assert sum(len(listing.provider_keys) for listing in last.listings) == KNOWN + NEW
        figure("  the same when counts disagree: all keys compared", time.monotonic() - started, "s")
    figure("  our memory at its largest", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB")


def _multiply(client: IMAPClient, messages: int, wanted: int) -> None:
    while messages < wanted:
        more = min(messages, wanted - messages)
        client.copy(f"1:{more}", "INBOX")
        messages += more


def _status(opened: ImapConnector, messages: int) -> Status:
    """How the inbox stands, once all messages have a number there."""
    box = next(iter(opened.mailboxes()))
    while True:
        with opened._session(opened._account(box)) as session:
            (inbox,) = [folder for folder in session.folders() if folder.name == "INBOX"]
            status = session.examine(inbox)
        if status.messages == messages:
            return status
        time.sleep(1)


def _rules(server: Dovecot) -> tuple[str, str]:
    """As they stand in the state of a folder."""
    with connector(server.settings("nobody")) as opened:
        for batch in opened.fetch(next(iter(opened.mailboxes())), {}, lambda _: set()):
            for value in batch.state.values():
                return value["rules"], value["ids"]
    raise AssertionError("no state")


@contextmanager
def connector(settings: dict[str, Any]) -> Iterator[ImapConnector]:
    made = ImapConnector(
        ImapSettings.model_validate(settings), ImapSecrets.model_validate({"password": PASSWORD}), QuietContext()
    )
    try:
        yield made
    finally:
        made.close()


def messages() -> list[bytes]:
    """Real mail if it is there, as an IMAP server would serve it; else made up."""
    packed = CORPUS / "bench.tar.zst"
    if not packed.is_file():
        print(f"  no mail corpus at {CORPUS} (set ARCHIVER_TEST_CORPUS): made-up messages instead")
        return [message(number, 4000) for number in range(7_500)]
    found = []
    data = zstandard.ZstdDecompressor().decompressobj().decompress(packed.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for entry in filter(tarfile.TarInfo.isfile, tar):
            data = tar.extractfile(entry).read()  # type: ignore[union-attr]
            found.append(data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n").replace(b"\0", b" "))
    return [data for data in found if data]


if __name__ == "__main__":
    main()
