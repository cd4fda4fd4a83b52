"""`python -m archiver.supervisor.guard SIGNAL -- COMMAND…`: sends SIGNAL to COMMAND when the parent process dies.

Where the kernel can't do it (PR_SET_PDEATHSIG is Linux only), this small process runs between the two: it detects that it was
reparented, forwards signals, and exits with the command's exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 20


def main(arguments: list[str]) -> int:
    death_signal, command = signal.Signals[arguments[0]], arguments[2:]
    parent = os.getppid()
    child = subprocess.Popen(command, close_fds=False)
    for forwarded in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(forwarded, lambda number, _: child.send_signal(number))
    while True:
        try:
            code = child.wait(_POLL_SECONDS)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                return _stop(child, death_signal)


def _stop(child: subprocess.Popen[bytes], death_signal: signal.Signals) -> int:
    child.send_signal(death_signal)
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
