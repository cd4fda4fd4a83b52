"""The child process: reads requests on one pipe, answers on another, and dies with its parent.

Run as `python -m archiver.extract.child WATCHED_FD`. Whatever a hostile file does, it does it here, within limits.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import psutil

from archiver.extract import limits, ocr
from archiver.extract.extraction import LENGTH, Extraction, Refused, State
from archiver.extract.pictures import draw_page
from archiver.extract.reading import extract_file

_CPU_SLACK_SECONDS = 5


def main() -> None:
    threading.Thread(target=_die_with_parent, args=(int(sys.argv[1]),), daemon=True).start()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    _limit_memory()
    while (request := _read_request(requests)) is not None:
        header, data = request
        _limit_cpu(float(str(header["seconds"])))
        answer = json.dumps(_answer(header, data)).encode("utf-8", "backslashreplace")
        answers.write(LENGTH.pack(len(answer)) + answer)
        answers.flush()


def _die_with_parent(watched: int) -> None:
    """The parent holds the other end and never writes: the read returns when the parent is gone, however it went."""
    os.read(watched, 1)
    with contextlib.suppress(OSError):
        os.killpg(0, signal.SIGKILL)


def _limit_memory() -> None:
    """On top of what the libraries have mapped by now."""
    mapped = 0
    with contextlib.suppress(OSError, ValueError):
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (mapped + limits.MEMORY_BYTES, resource.RLIM_INFINITY))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_cpu(seconds: float) -> None:
    """A backstop for code that never lets another thread run."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + 2 * seconds) + _CPU_SLACK_SECONDS, resource.RLIM_INFINITY))


def _read_request(requests: BinaryIO) -> tuple[dict[str, object], bytes] | None:
    prefix = requests.read(LENGTH.size)
    if len(prefix) < LENGTH.size:
        return None
    header = json.loads(requests.read(LENGTH.unpack(prefix)[0]))
    if header["path"]:
        return header, b""
    data = requests.read(header["size"])
    return (header, data) if len(data) == header["size"] else None


def _answer(header: dict[str, object], data: bytes) -> dict[str, object]:
    try:
        if header["path"]:
            data = Path(str(header["path"])).read_bytes()
        if header["page"] is not None:
            return {"state": State.OK, "reason": "", **draw_page(data, int(str(header["page"]))), **_size()}
        with_ocr = bool(header["ocr"]) and ocr.is_available()
        extraction = extract_file(data, str(header["name"]), str(header["type"]), with_ocr=with_ocr)
    except Refused as refused:
        extraction = Extraction(refused.state, refused.reason)
    except MemoryError:
        extraction = Extraction(State.TOO_LARGE, "needs more memory than the limit")
    except Exception as error:  # noqa: BLE001 - readers of foreign formats raise anything; the file is broken, we are not
        extraction = Extraction(State.BROKEN, f"{type(error).__name__}: {error}"[:500])
    return {
        "state": extraction.state,
        "reason": extraction.reason,
        "kind": extraction.kind,
        "pages": [(page.number, page.text, page.file) for page in extraction.pages],
        **_size(),
    }


def _size() -> dict[str, object]:
    return {"resident_bytes": psutil.Process().memory_info().rss}


if __name__ == "__main__":
    main()
