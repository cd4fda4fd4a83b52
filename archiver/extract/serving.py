"""The child process: reads requests from one pipe, writes responses to another, and ends with its parent.

Run as `python -m archiver.extract.serving MODULE WATCHED_FD [SCRATCH]`. MODULE has `ANSWERS`, a table from the name of a
request to a function of its header and its pieces. Whatever a hostile file does, it does it here, confined and within limits.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from archiver.extract import confinement, limits, wire

Answer = tuple[dict[str, Any], Sequence[bytes]]
Answers = dict[str, Callable[[dict[str, Any], list[bytes]], Answer]]

_CPU_SLACK_SECONDS = 5
_COLLECT_AFTER = 20_000  # as in our other processes: mail gives many small values without cycles
_BUFFER_BYTES = 256 << 10
_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    module, watched, *scratch = sys.argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent ends us on purpose, so this is not a crash caused by the input
    sizes = _open_sizes()
    _go_first()
    in_force = confinement.confine(Path(scratch[0]) if scratch else None)
    threading.Thread(target=_die_with_parent, args=(int(watched),), daemon=True).start()
    requests, answers = os.fdopen(os.dup(0), "rb", _BUFFER_BYTES), os.fdopen(os.dup(1), "wb", _BUFFER_BYTES)
    os.dup2(2, 1)  # output of a library must not mix with the responses
    known: Answers = {**importlib.import_module(module).ANSWERS, "confinement": _confinement(in_force)}
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    limit_memory(sizes)
    _write(answers, {}, (), sizes)  # ready: from now on, only the input can end this process
    serve(known, requests, answers, sizes)


def serve(known: Answers, requests: BinaryIO, answers: BinaryIO, sizes: int | None) -> None:
    while (request := wire.read(requests)) is not None:
        header, pieces = request
        _limit_cpu(float(header["seconds"]))
        response, given = _answered(known[header["op"]], header, pieces)
        del request, pieces
        _write(answers, response, given, sizes)


def _write(answers: BinaryIO, response: dict[str, Any], given: Sequence[bytes], sizes: int | None) -> None:
    answers.write(wire.encode({**response, "sizes": [len(piece) for piece in given], "resident_bytes": _resident_bytes(sizes)}))
    for piece in given:
        answers.write(piece)
    answers.flush()


def _answered(answer: Callable[..., Answer], header: dict[str, Any], pieces: list[bytes]) -> Answer:
    try:
        return answer(header, pieces)
    except MemoryError:
        return {"error": "needs more memory than the limit"}, ()
    except RecursionError:
        return {"error": "is nested too deeply"}, ()
    except Exception as error:  # noqa: BLE001 - readers of foreign formats raise anything; the file is broken, we are not
        return {"error": f"{type(error).__name__}: {error}"[:500]}, ()


def _confinement(in_force: list[str]) -> Callable[[dict[str, Any], list[bytes]], Answer]:
    return lambda header, pieces: ({"in_force": in_force, "refused": confinement.refused(), "user": os.geteuid()}, ())


def _die_with_parent(watched: int) -> None:
    """The parent holds the other end and never writes, so the read returns as soon as the parent is gone, for whatever
    reason."""
    os.read(watched, 1)
    with contextlib.suppress(OSError):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _open_sizes() -> int | None:
    """Opened before the confinement, because afterwards there is no other way to measure our memory."""
    with contextlib.suppress(OSError):
        return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    return None


def _go_first() -> None:
    """If memory runs out, the kernel shall kill the child that reads untrusted data, not its parent."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _resident_bytes(sizes: int | None) -> int:
    return _pages(sizes, 1) * _PAGE


def _pages(sizes: int | None, column: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(os.pread(sizes, 200, 0).split()[column]) if sizes is not None else 0
    return 0


def limit_memory(sizes: int | None) -> None:
    """In addition to what the libraries have mapped so far."""
    most = _pages(sizes, 0) * _PAGE + limits.MEMORY_BYTES
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _limit_cpu(seconds: float) -> None:
    """A backstop for code that never releases the interpreter lock."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + 2 * seconds) + _CPU_SLACK_SECONDS, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
