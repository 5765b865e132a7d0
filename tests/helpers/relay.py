"""Relay connections: `relay.py FROM TO`, each a TCP port of the loopback or the path of a Unix socket.

A Unix socket is reached from each network namespace that sees its path, so that two relays connect a port of one
namespace with a port of another.
"""

import asyncio
import contextlib
import sys


async def relay(listen: str, connect: str) -> None:
    """Accept connections, and open one to the other side for each, until the program is ended."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(2**16):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if connect.isdecimal():
            other, sent = await asyncio.open_connection("127.0.0.1", int(connect))
        else:
            other, sent = await asyncio.open_unix_connection(connect)
        await asyncio.gather(copy(reader, sent), copy(other, writer))

    if listen.isdecimal():
        server = await asyncio.start_server(accept, "127.0.0.1", int(listen))
    else:
        server = await asyncio.start_unix_server(accept, listen)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(*sys.argv[1:]))
