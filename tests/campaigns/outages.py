"""The ways in which a ledger's database goes away, each the real thing: a full disk, a lock, a network, a server.

Each is a context that gives an `Outage`: where the ledger is, and how it begins and ends.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from tests.support.servers import REPOSITORY, until
from tests.support.stores import stores

_FLAP_S = 0.4


@dataclass(frozen=True)
class Outage:
    """`url` is for CAPLINE_DATABASE_URL, `env` for what else the gateway needs to be told."""

    url: str
    begin: Callable[[], None]
    end: Callable[[], None]
    env: dict[str, str]
    tick: Callable[[], None] = lambda: None
    """Called over and over while it lasts."""


@contextlib.contextmanager
def full(folder: Path, _server: str) -> Iterator[Outage]:
    """The disk of an SQLite ledger has no room left; the spool has."""
    with _small_disk(folder / "disk") as disk:
        yield _filled(disk, {})


@contextlib.contextmanager
def full_spool(folder: Path, _server: str) -> Iterator[Outage]:
    """Ledger and spool share a disk that has no room left: nothing can be served."""
    with _small_disk(folder / "disk") as disk:
        yield _filled(disk, {"CAPLINE_SPOOL_DIR": str(disk / "spool")})


@contextlib.contextmanager
def locked(folder: Path, _server: str) -> Iterator[Outage]:
    """Another process holds the SQLite file's write lock."""
    path = folder / "capline.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA busy_timeout=30000")
        yield Outage(
            f"sqlite:///{path}",
            lambda: other.execute("BEGIN IMMEDIATE").close(),
            lambda: other.execute("ROLLBACK").close(),
            {},
        )


@contextlib.contextmanager
def cut(folder: Path, server: str) -> Iterator[Outage]:
    """Every connection to PostgreSQL breaks, and new ones are not taken."""
    with _relayed(folder, server) as (url, say):
        yield Outage(url, lambda: say("cut"), lambda: say("through"), {})


@contextlib.contextmanager
def silent(folder: Path, server: str) -> Iterator[Outage]:
    """Nothing passes between the gateway and PostgreSQL; what was on its way arrives when it is over."""
    with _relayed(folder, server) as (url, say):
        yield Outage(url, lambda: say("silent"), lambda: say("through"), {})


@contextlib.contextmanager
def flapping(folder: Path, server: str) -> Iterator[Outage]:
    """Connections to PostgreSQL break over and over, some of them between a COMMIT and its answer."""
    with _relayed(folder, server) as (url, say):

        def flap() -> None:
            say("cut")
            say("through")
            time.sleep(_FLAP_S)

        yield Outage(url, lambda: None, lambda: say("through"), {}, flap)


@contextlib.contextmanager
def stopped(folder: Path, _server: str) -> Iterator[Outage]:
    """A PostgreSQL of our own is stopped without warning, and started again."""
    home = folder / "cluster"
    home.mkdir()
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "postgres", str(home)], check=True)
        folder.chmod(0o755)
    _cluster("initdb", "-D", f"{home}/data", "-A", "trust", "-U", "capline")
    options = f"-c listen_addresses= -c unix_socket_directories={home}"

    def start() -> None:
        _cluster("pg_ctl", "-D", f"{home}/data", "-w", "-l", f"{home}/log", "-o", options, "start")

    def stop() -> None:
        _cluster("pg_ctl", "-D", f"{home}/data", "-w", "-m", "immediate", "stop")

    start()
    try:
        yield Outage(f"postgresql+psycopg://capline@/postgres?host={home}", stop, start, {})
    finally:
        stop()


OUTAGES: dict[str, Callable[[Path, str], AbstractContextManager[Outage]]] = {
    "full": full,
    "full-spool": full_spool,
    "locked": locked,
    "cut": cut,
    "silent": silent,
    "flapping": flapping,
    "stopped": stopped,
}


@contextlib.contextmanager
def _small_disk(disk: Path) -> Iterator[Path]:
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _filled(disk: Path, env: dict[str, str]) -> Outage:
    def fill() -> None:
        with contextlib.suppress(OSError), (disk / "filler").open("ab", buffering=0) as file:
            for size in (1 << 20, 4_096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    return Outage(f"sqlite:///{disk}/capline.db", fill, (disk / "filler").unlink, env)


@contextlib.contextmanager
def _relayed(folder: Path, server: str) -> Iterator[tuple[str, Callable[[str], None]]]:
    """The URL of a new schema through a relay, and how to talk to the relay."""
    with stores.on("postgresql", server):
        direct = make_url(stores.url(folder))
        relay = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.campaigns.relay",
                direct.host or "127.0.0.1",
                str(direct.port or 5432),
            ],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert relay.stdin is not None
        assert relay.stdout is not None
        words = relay.stdin

        def say(word: str) -> None:
            words.write(f"{word}\n")
            words.flush()

        try:
            port = int(relay.stdout.readline())
            url = direct.set(host="127.0.0.1", port=port)
            yield url.render_as_string(hide_password=False), say
        finally:
            relay.kill()
            relay.wait()
            until(lambda: _nobody_is_in(server, stores.schema(folder)), "PostgreSQL let go of the schema")


def _nobody_is_in(server: str, schema: str) -> bool:
    with psycopg.connect(server) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
            " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s",
            (schema,),
        ).fetchone()
    return found == (0,)


def _cluster(program: str, *arguments: str) -> None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    command = [str(folders[-1] / program) if folders else program, *arguments]
    if os.geteuid() == 0:
        command = ["runuser", "-u", "postgres", "--", *command]
    subprocess.run(command, check=True, capture_output=True, cwd="/")
