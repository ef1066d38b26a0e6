"""What `python -m gateway` does: `serve`, and `offline` for the command line while no gateway runs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.settings import Settings, SettingsError
from toolkit.core.errors import CaplineError

_log = logging.getLogger("capline")

CONFIG_FILE = Path("capline.toml")
CANNOT = 2
"""The exit code of a command that could not do what it was asked."""


class CannotServe(CaplineError, RuntimeError):
    """A gateway that cannot start as asked; says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. What an operator can fix is one line on standard error."""
    chosen = _parser().parse_args(arguments)
    try:
        settings = load_settings(os.environ)
        if chosen.command == "offline":
            from gateway.offline import answer_requests

            log_to_stderr(logging.WARNING)
            return asyncio.run(answer_requests(settings, may_create=not chosen.existing))
        settings = _with_flags(settings, chosen)
        if chosen.check:
            sys.stdout.write(_checked(settings, as_json=chosen.json) + "\n")
            return 0
        log_to_stderr(logging.INFO)
        return serve(settings)
    except CaplineError as error:
        sys.stderr.write(f"capline: {error}\n")
        return CANNOT


def load_settings(environ: Mapping[str, str]) -> Settings:
    """The settings of an environment and of the capline.toml beside it, where there is one."""
    return Settings.load(environ, CONFIG_FILE if CONFIG_FILE.is_file() else None)


def serve(settings: Settings) -> int:
    """Serve until told to stop: calls that run are finished first, for at most CAPLINE_DRAIN_S.

    Told so again, the process ends at once; what it leaves open the next start records as abandoned.
    """
    import uvloop

    listener = _listener(settings.host, settings.port)
    try:
        uvloop.run(_serve(settings, listener))
    finally:
        listener.close()
    return 0


async def _serve(settings: Settings, listener: socket.socket) -> None:
    import uvicorn

    from gateway.app import create_app
    from gateway.server import OneWriteProtocol

    class Server(uvicorn.Server):
        """uvicorn would end the process by the signal that stopped it, before the ledger is closed."""

        def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
            return contextlib.nullcontext()

    gateway = create_app(settings)
    config = uvicorn.Config(
        gateway,
        http=OneWriteProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_config=None,
        timeout_graceful_shutdown=settings.drain_s,
    )
    server = Server(config)

    def stop(number: signal.Signals) -> None:
        running = gateway.running.plane.in_flight
        if server.should_exit:
            _log.warning("ended at once, %d calls are abandoned by the next start", running)
            os._exit(128 + number)
        _log.info("stopping, %d calls are still running", running)
        server.handle_exit(number, None)

    async with gateway.lifespan(gateway.api):
        database = gateway.running.database
        url = _url(listener)
        database.note_address(url)
        _log.info(
            "serving on %s, ledger %s, providers: %s", url, database.ledger_id, _provider_names(settings)
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        _spare_the_collector()
        await server.serve(sockets=[listener])
        await gateway.running.plane.cut_off()
        database.note_address("")


def _spare_the_collector() -> None:
    """What has been imported and opened by now lives as long as the process: the collector need not walk it again.

    It would, many times a second under load, and take a tenth of each call's time. What a call makes goes with it,
    so looking for cycles less often than Python does by itself leaves nothing behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000)


def _listener(host: str, port: int) -> socket.socket:
    """The listening socket, bound before the database is opened: a second gateway fails without touching it."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise CannotServe(
            f"cannot listen on {host} port {port}: {error.strerror or error}; stop what uses it, or choose "
            "another with --port or CAPLINE_PORT"
        ) from error


def _url(listener: socket.socket) -> str:
    """Where this machine reaches the listener; a wildcard address is no place to go."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _provider_names(settings: Settings) -> str:
    names = ", ".join(provider.name for provider in settings.providers)
    return names or "none, so every call is unknown_provider; set OPENAI_API_KEY or [providers.NAME]"


def _with_flags(settings: Settings, chosen: argparse.Namespace) -> Settings:
    if chosen.workers > 1 and settings.counters_url.startswith("memory:"):
        raise SettingsError(
            f"--workers {chosen.workers} needs shared counters: with {settings.counters_url} each worker would "
            "spend the whole cap by itself; run one worker"
        )
    given = {name: getattr(chosen, name) for name in ("host", "port") if getattr(chosen, name) is not None}
    return replace(settings, **given)


def _checked(settings: Settings, *, as_json: bool) -> str:
    """The effective settings; as JSON also whether any provider or database has been chosen at all."""
    shown = settings.effective()
    if as_json:
        chosen = bool(settings.providers) or "CAPLINE_DATABASE_URL" in os.environ
        chosen = chosen or settings.database_url != Settings().database_url
        return json.dumps({"settings": shown, "configured": chosen}, ensure_ascii=False)
    return "\n".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in _flat(shown))


def _flat(shown: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in shown.items():
        if name != "providers":
            yield name, value
    for provider in shown["providers"]:
        for name, value in provider.items():
            if name != "name":
                yield f"providers.{provider['name']}.{name}", value


def log_to_stderr(level: int) -> None:
    """One line an event. Our own log carries no customer's values; a library speaks up for warnings alone."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("capline").setLevel(level)


class _OneLine(logging.Formatter):
    """A traceback becomes the exception's type and place: its text may hold what a customer sent."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", " ")

    def formatException(self, ei: Any) -> str:
        kind, _, place = ei
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f" at {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else ""
        return f"({kind.__name__}{where})"


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; write 0 to 65535")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gateway", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="run the gateway")
    serving.add_argument("--host", help="the address to listen on")
    serving.add_argument("--port", type=_port, help="the port to listen on; 0 takes a free one")
    serving.add_argument(
        "--workers", type=int, default=1, help="processes; more than one needs shared counters"
    )
    serving.add_argument("--check", action="store_true", help="print the effective settings and stop")
    serving.add_argument("--json", action="store_true", help="with --check: as JSON")
    offline = commands.add_parser("offline", help="answer operator requests on standard input")
    offline.add_argument("--existing", action="store_true", help="refuse to make a database")
    return parser
