"""Real processes: a gateway and a demo provider on free ports, started, killed and started again.

Nothing here runs in this process but a scripted provider, for answers that the demo provider does not give. Logs go
to files beside the database, so that a test can read every byte that a gateway left.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

REPOSITORY = Path(__file__).parents[2]
ADMIN_TOKEN = "e2e-admin-token"
UPSTREAM_KEYS = {"OPENAI_API_KEY": "sk-upstream-openai", "ANTHROPIC_API_KEY": "sk-upstream-anthropic"}
START_SECONDS = 30.0
STOP_SECONDS = 30.0
_FOREIGN = ("CAPLINE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OPENROUTER_")


def until(condition: Callable[[], Any], what: str, seconds: float = 10.0) -> Any:
    """Ask until the answer is true; that answer. Fails with `what` after so many seconds."""
    ends_at = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > ends_at:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)
    return found


class Process:
    """One `python -m …` with its output in a file, in a folder of its own."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log_path = folder / f"{name}.log"
        self._arguments = [sys.executable, "-m", *arguments]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        self._env = {**kept, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", **env}
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_starts_at = 0

    @property
    def pid(self) -> int:
        """The process id of the running process."""
        assert self._popen is not None
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    def log(self) -> str:
        """Everything that all starts have written."""
        return self.log_path.read_text("utf-8") if self.log_path.exists() else ""

    def run(self, *more: str, seconds: float = START_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run to its end instead of in the background."""
        return subprocess.run(
            [*self._arguments, *more],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def spawn(self, *more: str) -> None:
        """Start in the background, without waiting for anything."""
        assert not self.running
        self._log_starts_at = len(self.log())
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                [*self._arguments, *more],
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def said(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """The first match in what this start has written; waits for it."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.log()[self._log_starts_at :])
            if found is None and not self.running:
                raise AssertionError(f"{self.log_path.name}: ended early\n{self.log()[-2_000:]}")
            return found

        found: re.Match[str] = until(look, f"{pattern!r} in {self.log_path.name}", seconds)
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        assert self._popen is not None
        self._popen.send_signal(number)

    def kill(self) -> None:
        """`kill -9`, and wait until the kernel has taken everything back."""
        assert self._popen is not None
        self._popen.kill()
        self._popen.wait()

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Its exit code."""
        assert self._popen is not None
        return self._popen.wait(seconds)

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def close(self) -> None:
        """End it however it is."""
        if self.running:
            self.kill()


class DemoProviderProcess(Process):
    """The demo provider; `journal()` is its own count."""

    def __init__(self, folder: Path) -> None:
        self.journal_path = folder / "journal.jsonl"
        super().__init__("provider", ["gateway.demo", "--journal", str(self.journal_path)], folder, {})
        self.url = ""

    def start(self) -> DemoProviderProcess:
        """Start on a free port."""
        self.spawn("--port", "0")
        self.url = self.said(r"http://\S+")[0]
        return self

    def journal(self) -> dict[str, dict[str, Any]]:
        """The last line of every request by its request id."""
        lines = self.journal_path.read_bytes().splitlines()
        return {entry["request_id"]: entry for entry in map(json.loads, lines)}

    def received(self) -> int:
        """How many requests it has received."""
        return len(self.journal())


class GatewayProcess(Process):
    """`python -m gateway serve` over a folder: its database is `var/capline.db`, its port stays the same."""

    def __init__(self, folder: Path, provider_url: str | None, *, name: str = "gateway", **env: str) -> None:
        self.admin_token = env.get("CAPLINE_ADMIN_TOKEN", ADMIN_TOKEN)
        self.database = folder / "var" / "capline.db"
        chosen = {
            "CAPLINE_DATABASE_URL": f"sqlite:///{self.database}",
            "CAPLINE_ADMIN_TOKEN": ADMIN_TOKEN,
        }
        if provider_url is not None:
            chosen |= {
                **UPSTREAM_KEYS,
                "CAPLINE_OPENAI_BASE_URL": f"{provider_url}/v1",
                "CAPLINE_ANTHROPIC_BASE_URL": provider_url,
            }
        super().__init__(name, ["gateway", "serve"], folder, {**chosen, **env})
        self.port = 0
        self.url = ""
        self.secret = ""

    def start(self) -> GatewayProcess:
        """Start, on a free port the first time and on the same one later; ready when it answers."""
        self.spawn("--port", str(self.port))
        self.url = self.said(r"serving on (http://[^,\s]+)")[1]
        self.port = int(self.url.rpartition(":")[2])
        until(self._answers, f"health of {self.url}")
        if not self.secret:
            self.secret = self.make_key()["key"]
        return self

    def client(self) -> httpx.Client:
        """A plain HTTP client of this gateway."""
        return httpx.Client(base_url=self.url, trust_env=False, verify=False, timeout=60)

    def api(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """A call of the operator's plane as the admin."""
        sent = {"authorization": f"Bearer {self.admin_token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        with self.client() as client:
            return client.request(method, path, json=body, headers=sent)

    def make_key(self, **fields: Any) -> dict[str, Any]:
        """A key; its secret is in `key`."""
        made = self.api("POST", "/api/keys", {"name": "e2e", **fields})
        assert made.status_code == 201, made.text
        return dict(made.json())

    def make_cap(self, *, armed: bool = True, **fields: Any) -> dict[str, Any]:
        """A cap, armed unless told otherwise."""
        wanted = {"scope": "customer", "subject": "*", "window": "month", **fields}
        made = self.api("POST", "/api/caps", wanted)
        assert made.status_code == 201, made.text
        cap: dict[str, Any] = made.json()
        if armed:
            path = f"/api/caps/{cap['id']}/arm"
            done = self.api("POST", path, {"reason": "test"}, if_match=str(cap["version"]))
            assert done.status_code == 200, done.text
            cap = done.json()
        return cap

    def delete_cap(self, cap: Mapping[str, Any]) -> None:
        """Take a cap away."""
        done = self.api("DELETE", f"/api/caps/{cap['id']}", if_match=str(cap["version"]))
        assert done.status_code == 204, done.text

    def export(self) -> bytes:
        """The whole ledger as JSONL."""
        reply = self.api("GET", "/v1/ledger/export?format=jsonl")
        assert reply.status_code == 200, reply.text
        return reply.content

    def receipts(self) -> list[dict[str, Any]]:
        """Every receipt, oldest first."""
        return [json.loads(line) for line in self.export().splitlines()[1:-1]]

    def receipt(self, operation_id: str) -> dict[str, Any]:
        """One receipt with its decision trace."""
        reply = self.api("GET", f"/api/receipts/{operation_id}")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def metric(self, name: str, **labels: str) -> int:
        """One Prometheus sample, 0 when it has never been counted."""
        text = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
        sample = f"{name}{{{text}}} " if labels else f"{name} "
        lines = self.api("GET", "/metrics").text.splitlines()
        return next((int(line.removeprefix(sample)) for line in lines if line.startswith(sample)), 0)

    def post(
        self,
        path: str,
        body: Any,
        *,
        secret: str | None = None,
        tags: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """A call of the data plane; a body of bytes is sent as it is."""
        sent = {"authorization": f"Bearer {secret or self.secret}", "content-type": "application/json"}
        raw = {name.encode(): value.encode() for name, value in (sent | dict(headers or {})).items()}
        if tags is not None:
            raw[b"x-capline-tags"] = tags.encode()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        with self.client() as client:
            return client.post(path, content=content, headers=raw)

    def chat(
        self, customer: str | None = None, *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> httpx.Response:
        """A chat call; other fields of its body as given."""
        body = {
            "model": "gpt-4o-mini",
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 20,
            **fields,
        }
        tags = None if customer is None else f"customer:{customer}"
        return self.post("/v1/chat/completions", body, tags=tags, headers=headers)

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.api("GET", "/health").status_code == 200
        return False


@dataclass(frozen=True)
class Request:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first header of a name, given in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass
class Scripted:
    """What a scripted provider answers: pieces of a body, and the pause before each of them."""

    pieces: Iterable[bytes]
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=lambda: [("Content-Type", "application/json")])
    pause_s: float = 0.0
    chunked: bool = False
    cut: bool = False
    """Break the connection off after the last piece."""


class ScriptedHttpProvider:
    """A provider on a real socket that answers what `script` says and keeps what it got, byte for byte."""

    def __init__(self, script: Callable[[Request], Scripted]) -> None:
        self.script = script
        self.seen: list[Request] = []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    while outer._one(self.rfile, self.wfile):
                        pass

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _one(self, rfile: Any, wfile: Any) -> bool:
        line = rfile.readline()
        if not line.strip():
            return False
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers: list[tuple[str, str]] = []
        while (raw := rfile.readline().decode("latin-1").rstrip("\r\n")) != "":
            name, _, value = raw.partition(":")
            headers.append((name, value.strip()))
        request = Request(method, target, headers, b"")
        size = int(request.header("content-length") or 0)
        request = Request(method, target, headers, rfile.read(size))
        self.seen.append(request)
        return self._answer(self.script(request), wfile)

    def _answer(self, reply: Scripted, wfile: Any) -> bool:
        head = [f"HTTP/1.1 {reply.status} Scripted"]
        framing = "Transfer-Encoding: chunked"
        if not reply.chunked:
            framing = f"Content-Length: {sum(map(len, reply.pieces)) + int(reply.cut)}"
        head += [f"{name}: {value}" for name, value in reply.headers]
        wfile.write("\r\n".join([*head, framing, "", ""]).encode("latin-1"))
        wfile.flush()
        for piece in reply.pieces:
            time.sleep(reply.pause_s)
            wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if reply.chunked else piece)
            wfile.flush()
        if reply.chunked and not reply.cut:
            wfile.write(b"0\r\n\r\n")
            wfile.flush()
        return not reply.cut


class CountingRelay:
    """A TCP relay before a gateway that counts the requests which pass, whatever the gateway says of them."""

    _HEAD = re.compile(rb"POST (\S+) HTTP/1\.1\r\n")

    def __init__(self, port: int) -> None:
        self.heads: list[str] = []
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", port)) as onward:
                    back = threading.Thread(target=_pour, args=(onward, self.request), daemon=True)
                    back.start()
                    _pour(self.request, onward, outer._note())
                    back.join()

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def requests(self) -> int:
        """POST requests that have passed so far."""
        return len(self.heads)

    def close(self) -> None:
        """Stop relaying."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _note(self) -> Callable[[bytes], None]:
        """Looks for request lines in one connection's bytes; a line may be cut between two reads."""
        kept = b""

        def note(part: bytes) -> None:
            nonlocal kept
            kept += part
            for head in self._HEAD.finditer(kept):
                self.heads.append(head[1].decode())
                kept = kept[head.end() :]
            kept = kept[-200:]

        return note


def _pour(source: socket.socket, target: socket.socket, note: Callable[[bytes], None] | None = None) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(65_536):
            if note is not None:
                note(part)
            target.sendall(part)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def demo_provider(folder: Path) -> Iterator[DemoProviderProcess]:
    """A running demo provider."""
    process = DemoProviderProcess(folder)
    try:
        yield process.start()
    finally:
        process.close()


@contextlib.contextmanager
def running(folder: Path, provider_url: str | None, **env: str) -> Iterator[GatewayProcess]:
    """A running gateway with one key made."""
    process = GatewayProcess(folder, provider_url, **env)
    try:
        yield process.start()
    finally:
        process.close()


@contextlib.contextmanager
def scripted_provider(script: Callable[[Request], Scripted]) -> Iterator[ScriptedHttpProvider]:
    """A scripted provider in threads of this process."""
    provider = ScriptedHttpProvider(script)
    try:
        yield provider
    finally:
        provider.close()


@contextlib.contextmanager
def counting_relay(port: int) -> Iterator[CountingRelay]:
    """A relay before a port of this machine."""
    relay = CountingRelay(port)
    try:
        yield relay
    finally:
        relay.close()


@dataclass
class ScriptedGateway:
    """A gateway before a scripted provider; `upstream.script` says what comes next."""

    upstream: ScriptedHttpProvider
    gateway: GatewayProcess
