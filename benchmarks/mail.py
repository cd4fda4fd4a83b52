"""How fast mail is read: `python -m benchmarks.mail [CORPUS]`, where CORPUS holds bench.tar.zst and public/.

CPU time of one process, the best of several rounds. The reference beside each figure was measured in the same run on the same
machine, so that the ratio means something on a busy one.
"""

import email
import email.policy
import gc
import io
import os
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import fast_mail_parser
import zstandard
from resiliparse.extract.html2text import extract_plain_text

from archiver.extract.extractor import Extractor
from archiver.mail.canonical import canonical_sha256
from archiver.mail.defects import Defects
from archiver.mail.header.headers import read_headers
from archiver.mail.message import SIDE_BY_SIDE, read_message, read_messages
from archiver.mail.text.html_text import html_to_text

ROUNDS = 5
_COLLECT_AFTER = 20_000
OFFICE = (".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".odt", ".ods", ".odp", ".rtf", ".pdf")
DEFAULT_CORPUS = Path(os.environ.get("ARCHIVER_TEST_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))


def benchmark_set(corpus: Path) -> list[bytes]:
    with (corpus / "bench.tar.zst").open("rb") as packed:
        unpacked = io.BytesIO(zstandard.ZstdDecompressor().stream_reader(packed).read())
    with tarfile.open(fileobj=unpacked) as archive:
        files = (archive.extractfile(entry) for entry in archive if entry.isfile())
        return [file.read() for file in files if file is not None]


def reference_full(raw: bytes) -> None:
    """The Rust parser and the HTML extraction alone: no addresses, dates, marks or fallback."""
    try:
        mail = fast_mail_parser.parse_email(raw)
    except fast_mail_parser.ParseError:
        return
    if not any(text.strip() for text in mail.text_plain):
        for html in mail.text_html:
            extract_plain_text(html, preserve_formatting=True)


def reference_stdlib(raw: bytes) -> None:
    for part in email.message_from_bytes(raw, policy=email.policy.compat32).walk():
        if not part.is_multipart():
            part.get_payload(decode=True)


def full_parse(messages: list[bytes]) -> None:
    """As an indexing worker does it."""
    for start in range(0, len(messages), SIDE_BY_SIDE):
        read_messages(messages[start : start + SIDE_BY_SIDE])


def each(function: Callable[[bytes], object]) -> Callable[[list[bytes]], None]:
    def work(messages: list[bytes]) -> None:
        for raw in messages:
            function(raw)

    return work


def per_second(messages: list[bytes], functions: dict[str, Callable[[list[bytes]], None]]) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            started = time.process_time()
            function(messages)
            best[name] = max(best.get(name, 0.0), len(messages) / (time.process_time() - started))
    return best


def slowest(corpus: Path) -> tuple[float, str]:
    worst = (0.0, "")
    for path in sorted((corpus / "public").rglob("*")):
        if path.is_file() and path.suffix != ".pst":
            raw = path.read_bytes()
            spent = min(cpu_seconds(lambda raw=raw: read_message(raw)) for _ in range(2))  # type: ignore[misc]
            worst = max(worst, (spent, path.name))
    return worst


def cpu_seconds(function: Callable[[], object]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


def documents_per_second(corpus: Path) -> float:
    documents = [path for path in sorted((corpus / "public/attachments").rglob("*")) if path.suffix in OFFICE] * 5
    with Extractor(processes=2) as extractor:
        extractor.extract(b"start the first child")
        left = iter(documents)
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    path = next(left, None)
                if path is None:
                    return
                extractor.extract(path, name=path.name)

        started = time.perf_counter()
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(documents) / (time.perf_counter() - started)


def main() -> None:
    corpus = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_CORPUS
    if not corpus.is_dir():
        sys.exit(f"no corpus at {corpus}")
    messages = benchmark_set(corpus)
    gc.freeze()  # both as a worker does once it has started
    gc.set_threshold(_COLLECT_AFTER)
    rates = per_second(
        messages,
        {
            "full parse incl. text": full_parse,
            "the same, one message at a time": each(read_message),
            "header-only read": each(read_headers),
            "canonical hash": each(canonical_sha256),
            "reference: Rust parser + HTML text": each(reference_full),
            "reference: standard library, parts decoded": each(reference_stdlib),
        },
    )
    print(f"{len(messages)} messages, {sum(map(len, messages)) / 1e6:.0f} MB")
    for name, rate in rates.items():
        print(f"{name:45} {rate:10,.0f} messages/s")
    seconds, name = slowest(corpus)
    print(f"{'slowest message of the corpus':45} {seconds:10.3f} s ({name})")
    nested = cpu_seconds(lambda: html_to_text("<div>" * 200_000 + "words", Defects()))
    print(f"{'1 MB of nested <div>':45} {nested:10.3f} s")
    print(f"{'office documents, two processes':45} {documents_per_second(corpus):10,.0f} documents/s")


if __name__ == "__main__":
    main()
