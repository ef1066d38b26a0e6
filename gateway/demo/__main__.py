"""`python -m gateway.demo`: the demo provider on a port of its own, until it is told to end."""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
from pathlib import Path

import uvicorn

from gateway.demo.provider import DemoProvider


class _Server(uvicorn.Server):
    """Says where it listens once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            host, port = listening.getsockname()[:2]
            sys.stdout.write(f"http://{host}:{port}\n")
            sys.stdout.flush()


def main() -> int:
    """Serve. 0 when it ended, 2 when it could not begin."""
    parser = argparse.ArgumentParser(prog="python -m gateway.demo", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8790, help="0 takes a free one")
    parser.add_argument("--journal", type=Path, help="a JSONL file that every request is appended to")
    arguments = parser.parse_args()
    try:
        listening = socket.create_server((arguments.host, arguments.port))
        provider = DemoProvider(journal_path=arguments.journal)
    except OSError as error:
        sys.stderr.write(f"The demo provider cannot start: {error}\n")
        return 2
    config = uvicorn.Config(
        provider,
        access_log=False,
        log_level="critical",
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    with contextlib.suppress(KeyboardInterrupt):
        _Server(config).run(sockets=[listening])
    provider.journal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
