"""The processes that `up` and `demo` start: each in a session of its own, so that Ctrl-C reaches the parent alone.

The parent ends them in order and gives each time to finish what it is doing.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from console.commands.terminal import CannotDo

KEPT_LINES = 20
"""How much of a child's last words is kept."""


class Child:
    """A process and its last lines. `echo` says whether its lines are shown as they come."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        echo: bool = False,
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self.echo = echo
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._process = subprocess.Popen(
            list(command),
            env=dict(environ),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def lines(self) -> list[str]:
        """Its last lines so far."""
        return list(self._lines)

    def last_words(self) -> str:
        """All that it said at the end."""
        self._reader.join(timeout=2)
        return "\n".join(f"  {line}" for line in self._lines) or "  (it said nothing)"

    def terminate(self) -> None:
        """Ask it to end; one that has ended is left alone."""
        if self.exit_code is None:
            self._process.terminate()

    def kill(self) -> None:
        """End it."""
        if self.exit_code is None:
            self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Whether it ended within a time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, source: IO[str]) -> None:
        for line in source:
            self._lines.append(line.rstrip())
            if self.echo:
                sys.stderr.write(f"{self.name:<8} | {line}")
                sys.stderr.flush()


def wait_until(ready: Callable[[], bool], children: Sequence[Child], *, seconds: float, what: str) -> None:
    """Wait for `ready`, no longer than given and no longer than every child lives."""
    end = time.monotonic() + seconds
    while not ready():
        for child in children:
            if child.exit_code is not None:
                raise CannotDo(died(child))
        if time.monotonic() > end:
            raise CannotDo(f"{what} did not answer within {seconds:.0f} seconds")
        time.sleep(0.05)


def died(child: Child) -> str:
    """A child's death, with its last lines."""
    return f"the {child.name} ended (exit code {child.exit_code}); its last lines:\n{child.last_words()}"


def stop(children: Sequence[tuple[Child, float]]) -> None:
    """End children one after the other; whoever needs longer than its seconds is killed."""
    for child, seconds in children:
        child.terminate()
        if not child.wait(seconds):
            child.kill()
            child.wait(5)


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listened on a moment ago."""
    with socket.create_server((host, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def start_provider(environ: Mapping[str, str]) -> tuple[Child, str]:
    """The demo provider on a free port, and its URL."""
    command = (sys.executable, "-m", "gateway.demo", "--port", "0")
    child = Child("provider", command, environ)
    said = "http://"
    wait_until(
        lambda: bool(child.lines) and child.lines[-1].startswith(said),
        [child],
        seconds=30,
        what="the demo provider",
    )
    return child, child.lines[-1]


def demo_environ(
    environ: Mapping[str, str], provider_url: str, database_url: str, spool: str
) -> dict[str, str]:
    """The environment of a gateway whose providers are the demo provider."""
    return {
        **environ,
        "OPENAI_API_KEY": "demo",
        "ANTHROPIC_API_KEY": "demo",
        "CAPLINE_OPENAI_BASE_URL": f"{provider_url}/v1",
        "CAPLINE_ANTHROPIC_BASE_URL": provider_url,
        "CAPLINE_DATABASE_URL": database_url,
        "CAPLINE_SPOOL_DIR": spool,
    }
