"""Ports for servers that a test starts a little later.

The system picks the port of an outgoing connection from its ephemeral range, at any moment and for any process. A port from
that range can therefore be taken between choosing it and listening on it. These are below that range on Linux and macOS.
"""

from __future__ import annotations

import itertools
import random
import socket

_FIRST, _END = 10_240, 32_000
_START = random.SystemRandom().randrange(_END - _FIRST)
_ports = (_FIRST + (_START + step) % (_END - _FIRST) for step in itertools.count())


def free_port() -> int:
    """Each one once in this process; several processes start at different places."""
    return next(port for port in _ports if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
