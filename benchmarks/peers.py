"""The same mail through this archive and through the programs that people know, in turns: time, processor, memory, disk.

    python -m benchmarks.peers [--messages N] [--rounds N] [--fsyncs] [--out FOLDER]

A program that is not installed is left out (Debian, Ubuntu: apt install maildir-utils notmuch). Results go to artefacts/bench:
peers.json, peers.md and peers.svg.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from benchmarks.contestants import Contestant, contestants
from benchmarks.mail_set import mail_set, write_maildir
from benchmarks.race_report import RaceReport
from benchmarks.report import load

ARTEFACTS = Path(__file__).parents[1] / "artefacts" / "bench"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=3_000, help="how many messages (default: 3,000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each program has its turn (default: 3)")
    parser.add_argument("--fsyncs", action="store_true", help="one more round under strace, which counts them")
    parser.add_argument("--out", type=Path, default=ARTEFACTS, help=f"where the results go (default: {ARTEFACTS})")
    chosen = parser.parse_args()
    load()
    name, messages = mail_set(chosen.messages)
    size = sum(map(len, messages))
    print(f"  {len(messages):,} messages, {size / 1e6:.1f} MB ({name}); {chosen.rounds} rounds, in turns", flush=True)
    report = RaceReport(mail=name, messages=len(messages), mail_bytes=size)
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder:
        maildir = write_maildir(Path(folder) / "Maildir", messages)
        race(contestants(maildir), Path(folder), chosen.rounds, report)
        if chosen.fsyncs:
            count_fsyncs(contestants(maildir), Path(folder), report)
    report.write(chosen.out)
    print(report.table(), flush=True)


def race(field: list[Contestant], folder: Path, rounds: int, report: RaceReport) -> None:
    for number in range(rounds):
        for one in field:
            place = folder / f"{one.name}-{number}"
            place.mkdir()
            report.add(one.run(place))
            shutil.rmtree(place)


def count_fsyncs(field: list[Contestant], folder: Path, report: RaceReport) -> None:
    if shutil.which("strace") is None:
        print("  no strace: fsyncs are not counted (Debian, Ubuntu: apt install strace)")
        return
    for one in field:
        place = folder / f"{one.name}-traced"
        place.mkdir()
        report.add_fsyncs(one.name, one.run(place, trace=place / "trace").fsyncs)
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
