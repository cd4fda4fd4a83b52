"""Checks that the port of the web process is free."""

from __future__ import annotations

import socket

from archiver.config import Settings
from archiver.errors import InUse


def check_port_free(settings: Settings) -> None:
    """Raises InUse with the variable, the address and, if the system reveals it, the process that uses it."""
    host, port = settings.archiver_host, settings.archiver_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            holder = _holder(port)
            raise InUse(
                f"ARCHIVER_PORT={port}: can't listen on {host}:{port} ({error.strerror}){holder}; set another ARCHIVER_PORT"
            ) from error


def _holder(port: int) -> str:
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            address = tuple(connection.laddr)
            if connection.status == psutil.CONN_LISTEN and address[1:] == (port,) and connection.pid:
                return f", used by pid {connection.pid} ({psutil.Process(connection.pid).name()})"
    except (psutil.Error, OSError):
        pass  # no permission to see other users' sockets
    return ""
