"""A ledger of many receipts: its start, its exports, and what a reader of them needs.

    python -m bench.build_ledger --rows 10000000 sqlite:///big.db
    python -m bench.ledger sqlite:///big.db

The gateway starts on it with armed caps of every kind; then the whole ledger is exported in each format, and every
export verified. Times are seconds of the clock, memory is the most that the process ever held. It takes about an hour,
so it is not a part of `make bench`; docs/performance.md has its figures.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench import machine
from bench.figures import Figure, table

FORMATS = ("jsonl", "csv", "parquet")
CAPS = (
    ("organization", "month", None),
    ("organization", "year", None),
    ("organization", "never", None),
    ("organization", "week", "agent:*"),
    ("key", "day", None),
    ("customer", "day", None),
    ("customer", "month", None),
    ("customer", "year", None),
    ("run", "never", None),
)
"""Scope, window and matched tag of the caps that a start finds armed."""

_ADMIN = "bench-admin-token"


@dataclass(frozen=True, slots=True)
class _Gateway:
    pid: int
    port: int
    start_s: float
    """From the process to its first answer."""

    def api(self) -> httpx.Client:
        url, token = f"http://127.0.0.1:{self.port}", {"authorization": f"Bearer {_ADMIN}"}
        return httpx.Client(base_url=url, headers=token, timeout=600)


@contextlib.contextmanager
def _gateway(url: str, folder: Path) -> Iterator[_Gateway]:
    port = machine.free_port()
    environ = {**os.environ, "CAPLINE_DATABASE_URL": url, "CAPLINE_ADMIN_TOKEN": _ADMIN}
    command = [sys.executable, "-m", "gateway", "serve", "--port", str(port)]
    with (folder / "log").open("ab") as log:
        began = time.monotonic()
        started = subprocess.Popen(command, cwd=machine.ROOT, env=environ, stdout=log, stderr=log)
        try:
            while not _answers(port):
                if started.poll() is not None:
                    raise RuntimeError(f"the gateway stopped:\n{(folder / 'log').read_text()[-2000:]}")
                time.sleep(0.01)
            yield _Gateway(started.pid, port, time.monotonic() - began)
        finally:
            started.terminate()
            started.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=1).status_code == httpx.codes.OK
    return False


def _start(url: str, folder: Path) -> Sequence[Figure]:
    """A start on the ledger beside one on an empty one: the difference is what the receipts cost."""
    empty = f"sqlite:///{folder}/empty.db"
    starts: dict[str, float] = {}
    for name, database in (("empty", empty), ("full", url)):
        with _gateway(database, folder) as gateway:
            arming = _arm(gateway)
        with _gateway(database, folder) as gateway:
            starts[name] = gateway.start_s
            held = machine.resident_mb(gateway.pid)
    added = starts["full"] - starts["empty"]
    return [
        Figure(what="the slowest of the caps armed, its counters hydrated", figure=f"{arming:.2f} s"),
        Figure(what="start on an empty ledger", figure=f"{starts['empty']:.2f} s"),
        Figure(what=f"start on this one, {len(CAPS)} caps armed", figure=f"{starts['full']:.2f} s"),
        Figure(what="of it for hydration", figure=f"{added:.2f} s", bar="under 1 s", met=added < 1),
        Figure(what="memory then", figure=f"{held:.0f} MB"),
    ]


def _arm(gateway: _Gateway) -> float:
    """Arm what is not armed yet; the longest that one took, in seconds."""
    slowest = 0.0
    with gateway.api() as api:
        there = {cap["name"] for cap in api.get("/api/caps").raise_for_status().json()["items"]}
        for scope, window, tag in CAPS:
            name = f"bench {scope} {window}"
            if name in there:
                continue
            subject = "default" if scope == "organization" else "*"
            fields = {
                "name": name,
                "scope": scope,
                "subject": subject,
                "window": window,
                "limit_usd": "1000000",
            }
            if tag is not None:
                fields["match"] = {"tag": tag}  # type: ignore[assignment]
            began = time.monotonic()
            cap = api.post("/api/caps", json=fields).raise_for_status().json()
            sent = {"if-match": str(cap["version"])}
            api.post(f"/api/caps/{cap['id']}/arm", json={"reason": "bench"}, headers=sent).raise_for_status()
            slowest = max(slowest, time.monotonic() - began)
    return slowest


def _export(url: str, folder: Path, form: str) -> Figure:
    with _gateway(url, folder) as gateway, gateway.api() as api, (folder / f"all.{form}").open("wb") as file:
        before = _peak_mb(gateway.pid)
        began = time.monotonic()
        first = 0.0
        with api.stream("GET", f"/v1/ledger/export?format={form}") as answer:
            answer.raise_for_status()
            for part in answer.iter_bytes():
                first = first or time.monotonic() - began
                file.write(part)
        took = time.monotonic() - began
        added = _peak_mb(gateway.pid) - before
        size = file.tell() / 1e9
    said = f"{took:.0f} s, {size:.2f} GB, first byte after {first:.1f} s, {added:.0f} MB more memory"
    return Figure(what=f"export, {form}", figure=said)


def _read(what: str, code: str) -> Figure:
    """Run some analysis in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, "-c", f"import resource, toolkit as tk\n{code}\n{_PEAK}"]
    said = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=True).stdout
    shown, _, peak = said.strip().rpartition("\n")
    return Figure(
        what=what,
        figure=f"{time.monotonic() - began:.0f} s, {int(peak) * 1024 / 1e6:.0f} MB at most; {shown}",
    )


_PEAK = "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"process {pid} has no memory")


def main() -> None:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.ledger", description=__doc__)
    parser.add_argument("url", help="of the ledger's database")
    parser.add_argument("--formats", nargs="*", choices=FORMATS, default=FORMATS)
    parser.add_argument("--folder", help="where the exports may lie; they are tens of gigabytes")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="capline-ledger-", dir=chosen.folder) as name:
        folder = Path(name)
        print(table(_start(chosen.url, folder)), flush=True)
        for form in chosen.formats:
            print(table([_export(chosen.url, folder, form)]).splitlines()[-1], flush=True)
            path = folder / f"all.{form}"
            verified = f"v = tk.verify({str(path)!r}); print(f'{{v.rows:,}} rows, {{v.faults}} faults')"
            print(table([_read(f"verify, {form}", verified)]).splitlines()[-1], flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
