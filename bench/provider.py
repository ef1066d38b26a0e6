"""A provider that costs nothing, and the least that a hop can cost: nginx answering, and nginx passing on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from bench import machine

EVENTS = 53
"""Events of the stream: 50 of text, the finish, the usage, and `[DONE]`."""

_MODEL = "gpt-4o-mini"
_USAGE = {
    "prompt_tokens": 510,
    "completion_tokens": 50,
    "total_tokens": 560,
    "prompt_tokens_details": {"cached_tokens": 0},
}
REQUEST = json.dumps(
    {
        "model": _MODEL,
        "max_tokens": 256,
        "messages": [{"role": "user", "content": "word " * 380}],
    }
)
STREAM_REQUEST = json.dumps(
    {**json.loads(REQUEST), "stream": True, "stream_options": {"include_usage": True}}
)


def answer() -> str:
    """A chat completion of 2 kB with its usage."""
    message = {"role": "assistant", "content": "word " * 340}
    return json.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1,
            "model": _MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": _USAGE,
        }
    )


def events() -> list[str]:
    """A stream's events, each with its blank line."""
    deltas = [_chunk({"content": "word "}) for _ in range(EVENTS - 3)]
    usage = {**json.loads(_chunk({})), "choices": [], "usage": _USAGE}
    return [f"data: {text}\n\n" for text in (*deltas, _chunk({}, "stop"), json.dumps(usage), "[DONE]")]


@contextlib.contextmanager
def mock(folder: Path, core: int) -> Iterator[tuple[int, int]]:
    """The provider's two ports: one answers everything in JSON, the other with a whole stream in one write."""
    parts = events()
    pieces = [
        "".join(parts[start : start + 8]) for start in range(0, EVENTS, 8)
    ]  # nginx takes no longer texts
    set_pieces = " ".join(f"set $piece{number} '{piece}';" for number, piece in enumerate(pieces))
    whole = "".join(f"${{piece{number}}}" for number in range(len(pieces)))
    json_port, stream_port = machine.free_port(), machine.free_port()
    answering = f"default_type application/json; return 200 '{answer()}';"
    streaming = f'default_type text/event-stream; {set_pieces} return 200 "{whole}";'
    http = _server(json_port, answering) + _server(stream_port, streaming)
    with _nginx(folder, core, json_port, http):
        yield json_port, stream_port


@contextlib.contextmanager
def hop(folder: Path, core: int, upstream: int) -> Iterator[tuple[int, int]]:
    """(port, process id) of an nginx that passes everything on to a port, unbuffered."""
    port = machine.free_port()
    passing = (
        "proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_buffering off;"
    )
    http = f"upstream mock {{ server 127.0.0.1:{upstream}; keepalive 64; }}\n"
    with _nginx(folder, core, port, http + _server(port, passing)) as pid:
        yield port, pid


def _chunk(delta: dict[str, str], finish: str | None = None) -> str:
    return json.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": _MODEL,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
    )


def _server(port: int, act: str) -> str:
    return f"server {{ listen 127.0.0.1:{port}; location / {{ {act} }} }}\n"


@contextlib.contextmanager
def _nginx(folder: Path, core: int, port: int, http: str) -> Iterator[int]:
    config = folder / f"nginx-{port}.conf"
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind}-{port};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off; master_process off; pid {folder}/nginx-{port}.pid; error_log stderr;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; keepalive_requests 1000000000; client_body_buffer_size 64k;\n{paths}{http}}}\n"
    )
    command = ["nginx", "-p", str(folder), "-c", str(config), "-e", "stderr"]
    with machine.process(command, core=core, port=port, folder=folder) as started:
        yield started.pid
