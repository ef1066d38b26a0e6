"""`capline demo`: a short story on a throw-away gateway and a provider that counts for itself."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import httpx

from console.commands.children import Child, demo_environ, free_port, start_provider, stop, wait_until
from console.commands.connection import Api, answers
from console.commands.story import BURST, LIMIT_USD, Step, Story
from console.commands.terminal import DONE, NO, Commands, add_json, command, print_json, printer, working

_SETTINGS = ("CAPLINE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OPENROUTER_")
"""Variables of a real gateway, which a throw-away one must not see."""


def add(commands: Commands) -> None:
    """Add the command."""
    add_json(
        command(commands, "demo", _demo, "watch a cap refuse one customer and not another, in ten seconds")
    )


def _demo(chosen: argparse.Namespace) -> int:
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # So that the children are ended then, too.
    steps: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="capline-demo-") as folder, _stage(Path(folder)) as story:
        if not chosen.json:
            _print(
                "",
                f"A cap of ${LIMIT_USD} a month for each customer, and a provider that counts for itself:",
                "",
            )
        for step in story.told():
            steps.append(step)
            if not chosen.json:
                _print_step(step)
    holds = all(step.holds for step in steps)
    if chosen.json:
        seconds = f"{time.monotonic() - began:.1f}"
        print_json({"holds": holds, "seconds": seconds, "steps": [asdict(step) for step in steps]})
    else:
        verdict = "Everything held." if holds else "Something did not hold."
        _print("", f"{verdict} Nothing of this is kept; `capline up` starts a gateway to try yourself.", "")
    return DONE if holds else NO


def _print(*lines: str) -> None:
    for line in lines:
        printer().print(f"  {line}" if line else "", markup=False, soft_wrap=True)


def _print_step(step: Step) -> None:
    out = printer()
    mark = "[green]✓[/green]" if step.holds else "[red]✗[/red]"
    out.print(f"  {mark} [bold]{step.title:<10}[/bold]", end="")
    out.print(step.words, markup=False, soft_wrap=True)


@contextlib.contextmanager
def _stage(folder: Path) -> Iterator[Story]:
    """A gateway and a provider in `folder`, gone afterwards."""
    token = secrets.token_urlsafe(24)
    clean = {name: text for name, text in os.environ.items() if not name.startswith(_SETTINGS)}
    environ = {**clean, "PYTHONSAFEPATH": "1", "CAPLINE_ADMIN_TOKEN": token}
    children: list[Child] = []
    try:
        with working("Starting a throw-away gateway and its provider"):
            provider, provider_url = start_provider(environ)
            children.append(provider)
            url = f"http://127.0.0.1:{(port := free_port())}"
            environ = demo_environ(
                environ, provider_url, f"sqlite:///{folder / 'capline.db'}", str(folder / "spool")
            )
            serve = (sys.executable, "-m", "gateway", "serve", "--port", str(port))
            children.insert(0, Child("gateway", serve, environ, directory=folder))
            wait_until(lambda: answers(url), children, seconds=60, what="the gateway")
        with (
            httpx.Client(
                base_url=url, headers={"authorization": f"Bearer {token}"}, trust_env=False
            ) as operator,
            httpx.Client(
                base_url=url, timeout=30, limits=httpx.Limits(max_connections=BURST), trust_env=False
            ) as callers,
            httpx.Client(base_url=provider_url, trust_env=False) as counting,
        ):
            yield Story(Api(operator), callers, counting, folder / "ledger.jsonl")
    finally:
        stop([(child, 5.0) for child in children])
