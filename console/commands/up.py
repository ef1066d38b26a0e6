"""`capline up`, `serve` and `console`: the gateway and the console, together or alone.

With nothing configured `up` runs the demo: a provider of its own, and a month of invented history.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import httpx

from console import launch
from console.commands.children import Child, demo_environ, died, is_free, start_provider, stop, wait_until
from console.commands.connection import URL_VARIABLE, answers, gateway_environ, likely_url
from console.commands.terminal import DONE, CannotDo, Commands, command, printer, say, working

DEMO = Path("var/demo")
CONSOLE_DIRECTORY = Path("var/console")
CONSOLE_PORT = 8501
_FINISHING_S = 600.0
"""How long a gateway may finish calls that run; a second Ctrl-C does not wait."""


def add(commands: Commands) -> None:
    """Add the commands."""
    up = command(commands, "up", _up, "run the gateway and the console; with nothing configured, a demo")
    up.add_argument(
        "--port", type=_port, metavar="PORT", help="the gateway's port (else CAPLINE_PORT, else 8787)"
    )
    up.add_argument(
        "--console-port",
        type=_port,
        metavar="PORT",
        default=os.environ.get("CAPLINE_CONSOLE_PORT", str(CONSOLE_PORT)),
        help=f"the console's port (else CAPLINE_CONSOLE_PORT, else {CONSOLE_PORT})",
    )
    serve = command(commands, "serve", _serve, "run the gateway alone")
    serve.add_argument("--host", help="the address to listen on (else CAPLINE_HOST, else 127.0.0.1)")
    serve.add_argument(
        "--port", type=_port_or_any, help="the port to listen on (else CAPLINE_PORT, else 8787)"
    )
    serve.add_argument("--workers", type=int, help="processes; more than one needs shared counters")
    serve.add_argument("--check", action="store_true", help="print the effective settings and stop")
    serve.add_argument("--json", action="store_true", help="with --check: as JSON")
    console = command(commands, "console", _console, "run the console alone")
    console.add_argument("--host", default="127.0.0.1")
    console.add_argument("--port", type=_port, default=CONSOLE_PORT)
    console.add_argument("--base-path", default="", help="the path of a proxy that it is under")
    console.add_argument("--gateway", metavar="URL", help=f"the gateway (else {URL_VARIABLE})")


def _serve(chosen: argparse.Namespace) -> int:
    arguments = [sys.executable, "-m", "gateway", "serve"]
    for name in ("host", "port", "workers"):
        if getattr(chosen, name) is not None:
            arguments += [f"--{name}", str(getattr(chosen, name))]
    arguments += [f"--{name}" for name in ("check", "json") if getattr(chosen, name)]
    _become(arguments, gateway_environ(os.environ))


def _console(chosen: argparse.Namespace) -> int:
    _need_streamlit()
    url = chosen.gateway or os.environ.get(URL_VARIABLE) or likely_url(os.environ)
    environ = launch.environment(_safe(os.environ), gateway_url=url, host=chosen.host)
    _become(launch.command(chosen.host, chosen.port, chosen.base_path), environ)


def _up(chosen: argparse.Namespace) -> int:
    _need_streamlit()
    run = _Run.plan(chosen)
    run.check_ports()
    stopping = _Stopping(run)
    try:
        run.start(stopping)
        run.tell()
        while not stopping.asked.wait(0.2):
            for child in run.children:
                if child.exit_code is not None:
                    raise CannotDo(died(child))
    except _Stopped:
        pass
    finally:
        run.end()
    return DONE


class _Stopped(Exception):
    """Someone asked to stop before everything had started."""


@dataclass(slots=True)
class _Run:
    """One `up`: what it starts, where, and the children that it has started so far."""

    settings: Mapping[str, Any]
    demo: bool
    console_port: int
    children: list[Child] = field(default_factory=list)

    @classmethod
    def plan(cls, chosen: argparse.Namespace) -> _Run:
        """Read the gateway's settings from the gateway itself."""
        arguments = [sys.executable, "-m", "gateway", "serve", "--check", "--json"]
        if chosen.port is not None:
            arguments += ["--port", str(chosen.port)]
        done = subprocess.run(
            arguments, env=gateway_environ(os.environ), capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["python -m gateway did not start"]
            raise CannotDo(said[-1].removeprefix("capline: "))
        found = json.loads(done.stdout)
        return cls(settings=found["settings"], demo=not found["configured"], console_port=chosen.console_port)

    @property
    def url(self) -> str:
        """Where the gateway answers, on this machine."""
        return f"http://{self.settings['host']}:{self.settings['port']}".replace("//0.0.0.0", "//127.0.0.1")

    @property
    def console_url(self) -> str:
        """Where the console answers."""
        return f"http://127.0.0.1:{self.console_port}"

    def check_ports(self) -> None:
        """Say which port is taken, before anything is started."""
        if not is_free(self.settings["host"], self.settings["port"]):
            by = "a running gateway" if answers(self.url) else "another program"
            raise CannotDo(
                f"port {self.settings['port']} is taken by {by}; stop it, or choose another with --port"
            )
        if not is_free("127.0.0.1", self.console_port):
            raise CannotDo(
                f"port {self.console_port} is taken; stop what uses it, or choose another with --console-port"
            )

    def start(self, stopping: _Stopping) -> None:
        """Start everything and wait until it answers."""
        environ = gateway_environ(os.environ)
        directory = DEMO / "console" if self.demo else CONSOLE_DIRECTORY
        console = launch.environment(_safe(os.environ), gateway_url=self.url, directory=directory)
        self.children.append(Child("console", launch.command(port=self.console_port), console, echo=False))
        if self.demo:
            environ = self._start_demo(environ, stopping)
        arguments = [sys.executable, "-m", "gateway", "serve", "--port", str(self.settings["port"])]
        self.children.append(Child("gateway", arguments, environ, echo=True))
        with working("Starting the gateway and the console"):
            for ready, what in (
                (lambda: stopping.check() or answers(self.url), "the gateway"),
                (lambda: stopping.check() or _console_answers(self.console_url), "the console"),
            ):
                wait_until(ready, self.children, seconds=120, what=what)
        self.children[0].echo = True

    def _start_demo(self, environ: Mapping[str, str], stopping: _Stopping) -> dict[str, str]:
        say(
            "Nothing is configured, so this is the demo: a built-in provider, no key, no cost, all under var/demo."
        )
        DEMO.mkdir(parents=True, exist_ok=True)
        database = DEMO / "capline.db"
        words = "Opening the demo ledger" if database.exists() else "Loading a month of demo history"
        arguments = ("--database-url", f"sqlite:///{database}", "--key-file", str(DEMO / "key"))
        history = Child("history", (sys.executable, "-m", "gateway.demo.history", *arguments), environ)
        self.children.append(history)
        provider, url = start_provider(environ)
        self.children.append(provider)
        with working(words):
            while history.exit_code is None:
                stopping.check()
                time.sleep(0.05)
        if history.exit_code:
            raise CannotDo(died(history))
        self.children.remove(history)
        return demo_environ(environ, url, f"sqlite:///{database}", str(DEMO / "spool"))

    def tell(self) -> None:
        """The two addresses, and a first call."""
        out = printer()
        out.print()
        out.print(f"  console   {self.console_url}", markup=False)
        out.print(f"  gateway   {self.url}", markup=False)
        out.print()
        key = f"$(cat {DEMO / 'key'})" if self.demo else "$KEY"
        if not self.demo:
            out.print("  A first call, with a key from `capline key create NAME`:", markup=False)
        out.print(first_call(self.url, key, self.settings["header_prefix"]), markup=False, soft_wrap=True)
        out.print()
        out.print("  Ctrl-C stops everything.", markup=False)

    def end(self) -> None:
        """The console first, then the gateway, which may be finishing calls, then the provider that they go to."""
        waits = {"console": 5.0, "history": 5.0, "gateway": _FINISHING_S, "provider": 5.0}
        stop([(child, waits[name]) for name in waits for child in self.children if child.name == name])


class _Stopping:
    """Ctrl-C, SIGTERM, a closed terminal: the first asks for an end, the second kills what is still there."""

    def __init__(self, run: _Run) -> None:
        self.asked = threading.Event()
        self._run = run
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def check(self) -> bool:
        """False; raises when an end was asked for."""
        if self.asked.is_set():
            raise _Stopped
        return False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            for child in self._run.children:
                child.kill()
        self.asked.set()


def first_call(url: str, key: str, prefix: str) -> str:
    """A curl that works as it stands."""
    return f"""\
  curl -i {url}/v1/chat/completions \\
    -H "authorization: Bearer {key}" \\
    -H "{prefix}-tags: customer:acme-042" \\
    -H "content-type: application/json" \\
    -d '{{"model": "gpt-5-mini", "messages": [{{"role": "user", "content": "Hello"}}]}}'"""


def _console_answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/_stcore/health", timeout=2, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; write 1 to 65535")
    return int(text)


def _port_or_any(text: str) -> int:
    return 0 if text == "0" else _port(text)


def _need_streamlit() -> None:
    if importlib.util.find_spec("streamlit") is None:
        raise CannotDo(
            "the console is not installed; pip install 'capline[console]', or run `capline serve` alone"
        )


def _safe(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which no module of the current directory stands in for one of ours."""
    return {**environ, "PYTHONSAFEPATH": "1"}


def _become(arguments: list[str], environ: Mapping[str, str]) -> NoReturn:
    """Go on as another program: it gets the signals, and its exit code is ours."""
    sys.stdout.flush()
    os.execve(arguments[0], arguments, dict(environ))
