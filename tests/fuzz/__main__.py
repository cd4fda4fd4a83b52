"""`make fuzz`, or `python -m tests.fuzz [SECONDS] [SEED]`.

Half of the time is guided by coverage where atheris is installed (`pip install atheris`); else all of it is chance, as is the
other half: mail from the grammar, and mutations of tests/corpus. What is read wrongly, too slowly or with too much memory goes
to tests/fuzz/found, where a test reads it from then on.
"""

import hashlib
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.chance import GivenChance, RandomChance
from tests.fuzz.grammar import Grammar
from tests.fuzz.limited import Reader
from tests.fuzz.mutations import mutated

FOUND = Path(__file__).parent / "found"
SEEDS = sorted((Path(__file__).parents[1] / "corpus").glob("*.eml"))


class Findings:
    """Each kind of complaint once: the first message that gives rise to it."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def add(self, raw: bytes, complaint: str) -> None:
        place = [line.strip() for line in complaint.splitlines() if line.strip().startswith("File ")][-1:]
        key = "".join(place) or complaint
        if key in self._seen:
            return
        self._seen.add(key)
        FOUND.mkdir(exist_ok=True)
        path = FOUND / f"{hashlib.sha256(raw).hexdigest()[:16]}.eml"
        path.write_bytes(raw)
        print(f"{path}:\n{complaint[-1500:]}", flush=True)

    def __len__(self) -> int:
        return len(self._seen)


def by_chance(seconds: float, seed: int, reader: Reader, findings: Findings) -> int:
    seeds = [path.read_bytes() for path in SEEDS]
    ends_at, count = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        chance = RandomChance(seed + count)
        raw = Grammar(chance).message() if count % 3 else mutated(chance, seeds)
        count += 1
        complaint = reader.complaint(raw)
        if complaint:
            findings.add(raw, f"seed {seed + count - 1}: {complaint}")
    return count


def by_coverage(seconds: float, seed: int, reader: Reader, findings: Findings) -> None:
    """libFuzzer ends at the first thing that it finds; then it goes on with another seed and with what it has learned."""
    ends_at = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        learned, artefacts = Path(folder, "learned"), Path(folder, "artefacts")
        learned.mkdir()
        artefacts.mkdir()
        while (left := int(ends_at - time.monotonic())) > 0:
            options = ["-timeout=60", "-rss_limit_mb=2048", "-max_len=4096", "-verbosity=0", "-print_final_stats=1"]
            command = [
                sys.executable,
                "-m",
                "tests.fuzz.guided",
                str(learned),
                f"-max_total_time={left}",
                f"-seed={seed}",
                *options,
            ]
            done = subprocess.run([*command, f"-artifact_prefix={artefacts}/"], capture_output=True, text=True, check=False)
            print("\n".join(line for line in done.stderr.splitlines() if "number_of_executed" in line or "new_units" in line))
            for path in artefacts.iterdir():
                raw = Grammar(GivenChance(path.read_bytes())).message()
                findings.add(raw, reader.complaint(raw) or f"guided: {done.stderr[-1500:]}")
                path.unlink()
            seed += 1


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1, 1 << 30)
    reader, findings = Reader(), Findings()
    if importlib.util.find_spec("atheris") is not None:
        seconds /= 2
        by_coverage(seconds, seed, reader, findings)
    count = by_chance(seconds, seed, reader, findings)
    reader.close()
    print(f"{count} messages by chance, {len(findings)} findings, seed {seed}")
    sys.exit(1 if len(findings) else 0)


if __name__ == "__main__":
    main()
