"""Fuzzing for a while: `make fuzz`, or `python tests/unit/mail/fuzz.py SECONDS`. Not collected by pytest.

Mutates the hand-made mail of tests/corpus: cuts, repeats, swaps and flips bytes, and puts in pieces that parsers fear. Nothing
may raise, and nothing may take longer than a bound that grows with the size. What does is written to fuzz-*.eml.
"""

import hashlib
import random
import sys
import time
import traceback
from pathlib import Path

from archiver.extract.kinds import detect_kind
from archiver.mail.canonical import canonical_sha256
from archiver.mail.headers import read_headers
from archiver.mail.message import read_message
from archiver.mail.safe_html import safe_html
from archiver.mail.threads import thread_keys

SEEDS = sorted((Path(__file__).parents[2] / "corpus").glob("*.eml"))
FEARED = [
    b"\0",
    b"\r",
    b"\n",
    b"\r\n\r\n",
    b"=?utf-8?q?",
    b"?=",
    b"<",
    b">",
    b'"',
    b"(",
    b"\\",
    b";",
    b":",
    b"--b",
    b"--b--\n",
    b"=ybegin name=x\n",
    b"begin 644 x\n",
    b"Content-Type: multipart/mixed; boundary=b\n",
    b"Content-Transfer-Encoding: base64\n",
    b"charset=utf-7;",
    b"Content-Type: message/rfc822\n\n",
    b"<div style='display:none'>",
    b"<blockquote>",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\x1b$B",
    b"%00",
    b"\x1a",
]
SECONDS_PER_MEGABYTE = 20
SECONDS_AT_LEAST = 2.0


def mutated(chance: random.Random, seeds: list[bytes]) -> bytes:
    raw = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 8)):
        at = chance.randint(0, len(raw))
        length = chance.randint(0, 60)
        action = chance.randint(0, 5)
        if action == 0:
            del raw[at : at + length]
        elif action == 1:
            raw[at:at] = chance.choice(FEARED) * chance.choice((1, 1, 2, 50, 3000))
        elif action == 2:
            raw[at:at] = raw[at : at + length] * chance.choice((1, 2, 100))
        elif action == 3 and raw:
            raw[at % len(raw)] ^= 1 << chance.randint(0, 7)
        elif action == 4:
            other = chance.choice(seeds)
            raw[at:at] = other[: chance.randint(0, len(other))]
        else:
            raw[at:at] = chance.randbytes(length)
    return bytes(raw[: 1 << 20])


def check(raw: bytes) -> None:
    canonical_sha256(raw)
    thread_keys(read_headers(raw))
    message = read_message(raw)
    safe_html(message.html)
    message.new_text.encode("utf-8", "surrogatepass")
    for attachment in message.attachments:
        assert len(attachment.content) == attachment.size_bytes
        detect_kind(attachment.content, attachment.name)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    chance = random.Random(seed)
    seeds = [path.read_bytes() for path in SEEDS]
    count = failures = 0
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        raw = mutated(chance, seeds)
        count += 1
        started = time.process_time()
        try:
            check(raw)
            allowed = max(SECONDS_AT_LEAST, len(raw) / (1 << 20) * SECONDS_PER_MEGABYTE)
            assert time.process_time() - started < allowed, "took too long"
        except Exception:
            failures += 1
            path = Path(f"fuzz-{hashlib.sha256(raw).hexdigest()[:12]}.eml")
            path.write_bytes(raw)
            print(f"{path}:\n{traceback.format_exc()}")
    print(f"{count} messages, {failures} failures, seed {seed}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
