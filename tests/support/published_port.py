"""What `ports:` does: listens on a port of this machine and hands each connection to one in another network namespace.

`python published_port.py NETWORK OUTSIDE INSIDE`
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

from tests.support.contain import enter_network


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(listening: socket.socket, inside: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", inside)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    server = await asyncio.start_server(connected, sock=listening)
    await server.serve_forever()


if __name__ == "__main__":
    opened = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    enter_network(sys.argv[1])  # the socket stays where it was opened
    asyncio.run(serve(opened, int(sys.argv[3])))
