"""A TCP relay before a database server that can be cut or fall silent, as a process of its own.

    python -m tests.campaigns.relay HOST PORT

Says its own port on the first line, then obeys what it reads, a word a line: `through` passes everything on, `silent`
keeps every connection and passes nothing on, `cut` breaks them and takes no new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


class Relay:
    """All connections of one relay."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._through = asyncio.Event()
        self._through.set()
        self._cut = False
        self._open: set[asyncio.StreamWriter] = set()

    def obey(self, word: str) -> None:
        """One of the words above."""
        self._cut = word == "cut"
        if word == "silent":
            self._through.clear()
        else:
            self._through.set()
        if self._cut:
            for writer in self._open:
                writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from either end's beginning to either end's end."""
        await self._through.wait()
        if self._cut:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            onward_reader, onward = await asyncio.open_connection(self._host, self._port)
            self._open |= {writer, onward}
            await asyncio.gather(self._pour(reader, onward), self._pour(onward_reader, writer))
            self._open -= {writer, onward}

    async def _pour(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(65_536):
                await self._through.wait()
                writer.write(part)
                await writer.drain()
        writer.close()


async def _main(host: str, port: int) -> None:
    relay = Relay(host, port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    words = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    while word := (await words.readline()).decode().strip():
        relay.obey(word)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
