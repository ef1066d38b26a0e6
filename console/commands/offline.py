"""Requests to the operator's routes without a gateway: an httpx transport over `python -m gateway offline`.

That process opens the database under the lock that a gateway would hold and answers on its standard output (its module
says in which form), so a command cannot tell the difference.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any

import httpx

from console.commands.terminal import CannotDo


class HeldByGateway(Exception):
    """A gateway holds the database's lock. `url` is where it answers, None when it did not say."""

    def __init__(self, url: str | None, words: str) -> None:
        super().__init__(words)
        self.url = url


class OfflineTransport(httpx.BaseTransport):
    """Starts the process and waits until it holds the database. Raises HeldByGateway or CannotDo."""

    def __init__(self, environ: Mapping[str, str], *, may_create: bool) -> None:
        arguments = [sys.executable, "-m", "gateway", "offline", *([] if may_create else ["--existing"])]
        self._process = subprocess.Popen(
            arguments,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        greeting = self._greeting()
        if not greeting.get("ready"):
            self.close()
            if "held" in greeting:
                raise HeldByGateway(greeting["held"], greeting["error"])
            raise CannotDo(greeting["error"])

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request; its answer's body may be read as it comes."""
        asked = {
            "method": request.method,
            "path": request.url.raw_path.decode(),
            "headers": {
                name: value for name, value in request.headers.items() if name in ("content-type", "if-match")
            },
            "body": request.read().decode(),
        }
        stdin, stdout = self._pipes()
        try:
            stdin.write(json.dumps(asked).encode() + b"\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
        except (OSError, ValueError) as error:
            raise httpx.ReadError("the ledger's process ended", request=request) from error
        return httpx.Response(answer["status"], headers=answer["headers"], stream=_Pieces(stdout))

    def close(self) -> None:
        """Let the process finish; it frees the lock."""
        stdin, _ = self._pipes()
        stdin.close()
        self._process.wait()

    def _greeting(self) -> dict[str, Any]:
        _, stdout = self._pipes()
        line = stdout.readline()
        if line:
            greeting: dict[str, Any] = json.loads(line)
            return greeting
        assert self._process.stderr is not None
        said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return {
            "error": said[-1].removeprefix("capline: ") if said else "python -m gateway offline did not start"
        }

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


class _Pieces(httpx.SyncByteStream):
    """The body of one answer. Closing reads what is left of it, so that the next answer begins where it should."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        while not self._ended:
            size = int(self._source.readline() or b"-1")
            self._ended = size <= 0
            if size < 0:
                raise httpx.RemoteProtocolError("the answer broke off")
            if size:
                yield self._source.read(size)

    def close(self) -> None:
        """Skip the rest."""
        for _ in self:
            pass
