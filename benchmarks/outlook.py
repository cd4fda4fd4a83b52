"""Outlook files: items per second of processor time, and the memory of the process that reads them."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import psutil

from archiver.outlook.reader import OutlookReader
from benchmarks.report import figure, load
from connectors.outlook import PST

ROUNDS = 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path, help="PST or OST files; without any, those of ARCHIVER_TEST_CORPUS")
    corpus = Path(os.environ.get("ARCHIVER_TEST_CORPUS", "shared/corpus"))
    files = parser.parse_args().files or sorted((corpus / "public" / "pst").rglob("*.pst"))
    load()
    if not files:
        print("  no files: name some, or set ARCHIVER_TEST_CORPUS")
    for path in files:
        _measure(path)


def _measure(path: Path) -> None:
    with path.open("rb") as file:
        opened = OutlookReader(file.fileno(), PST, recover=False)
        assert opened._child is not None
        child = psutil.Process(opened._child._process.pid)
        before, items, size = sum(child.cpu_times()[:2]), 0, 0
        began = time.process_time()
        for _ in range(ROUNDS):
            for entry in opened.entries():
                items, size = items + 1, size + len(entry.data or b"")
        spent = sum(child.cpu_times()[:2]) - before + time.process_time() - began
        figure(f"{path.name}: items per CPU second", items / max(spent, 0.01), "items/s", "≥ 300")
        figure(f"{path.name}: built", size / max(spent, 0.01) / 1e6, "MB/s")
        figure(f"{path.name}: memory of the reader", child.memory_info().rss / (1 << 20), "MiB", "≤ 300")
        opened.close()


if __name__ == "__main__":
    main()
