"""The process as the network sees it: what passes is not touched, what runs is finished, what was spent is kept."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.support.servers import (
    DemoProviderProcess,
    GatewayProcess,
    Request,
    Scripted,
    ScriptedGateway,
    running,
    until,
)
from toolkit.core.chain import check_chain

CHAT = "/v1/chat/completions"
MOST_BYTES = 33_554_432
USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
ANSWER = json.dumps({"id": "chatcmpl-1", "model": "gpt-4o-mini", "choices": [], "usage": USAGE}).encode()
MESSAGE = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "model": "claude-haiku-4-5",
        "content": [],
        "usage": {"input_tokens": 9, "output_tokens": 5},
    }
).encode()


def head(gateway: GatewayProcess, size: int, *lines: str, path: str = CHAT) -> bytes:
    """The head of a request with a body of `size` bytes."""
    own = [f"POST {path} HTTP/1.1", "Host: gateway", f"Authorization: Bearer {gateway.secret}"]
    if size >= 0:
        own.append(f"Content-Length: {size}")
    return "\r\n".join([*own, "Content-Type: application/json", *lines, "", ""]).encode()


def chat_body(*, size: int | None = None, **fields: Any) -> bytes:
    """A chat request, padded to exactly `size` bytes."""
    request = {
        "model": "gpt-4o-mini",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "hi"}],
        **fields,
    }
    body = json.dumps(request).encode()
    if size is None:
        return body
    return body.replace(b'"hi"', b'"hi' + b"x" * (size - len(body)) + b'"')


def connect(gateway: GatewayProcess) -> socket.socket:
    """A connection of its own."""
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=30)


def read_head(answer: BinaryIO) -> tuple[int, list[tuple[str, str]]]:
    """Status and headers of the next answer of a connection."""
    status = int(answer.readline().split(b" ")[1])
    headers = []
    while (line := answer.readline().decode("latin-1").rstrip("\r\n")) != "":
        name, _, value = line.partition(": ")
        headers.append((name.lower(), value))
    return status, headers


def read_chunks(answer: BinaryIO) -> Iterator[bytes]:
    """The chunks of a body until its end; raises when the connection breaks before."""
    while size := int(answer.readline(), 16):
        yield answer.read(size)
        answer.readline()
    assert answer.readline() == b"\r\n"


def read_answer(answer: BinaryIO) -> tuple[int, dict[str, str], bytes]:
    """The next whole answer of a connection."""
    status, headers = read_head(answer)
    named = dict(headers)
    if "content-length" in named:
        return status, named, answer.read(int(named["content-length"]))
    return status, named, b"".join(read_chunks(answer))


def in_threads(*calls: Callable[[], Any]) -> tuple[list[threading.Thread], list[Any]]:
    """Start calls side by side; their results appear in their places."""
    results: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        results[place] = calls[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    return threads, results


# ---- A gateway without caps changes nothing


REQUESTS = {
    "chat": (
        CHAT,
        b'{ "model":"gpt-4o-mini",\n "messages":[{"role":"user","content":"\\u00e9\xc3\xa9 \\/"}],"n":1}',
    ),
    "unknown fields": (CHAT, b'{"model":"gpt-4o-mini","messages":[],"tomorrow":{"a":[1,1.50]},"seed":1}'),
    "stream": (
        CHAT,
        b'{"model":"gpt-4o-mini","messages":[],"stream":true,"stream_options":{"include_usage" : true}}',
    ),
    "messages": ("/v1/messages", b'{"model" : "claude-haiku-4-5","max_tokens":9 ,"messages":[]}\n'),
    "messages with a query": (
        "/v1/messages?beta=true&api-version=2026-11-01",
        b'{"model":"claude-haiku-4-5","max_tokens":9}',
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_reaches_the_provider_byte_for_byte(scripted: ScriptedGateway, name: str) -> None:
    path, body = REQUESTS[name]
    scripted.upstream.script = lambda request: Scripted([MESSAGE if "messages" in request.target else ANSWER])
    sent = {"X-Thing": "a,  b", "anthropic-version": "2023-06-01", "OpenAI-Organization": "org-1"}
    assert scripted.gateway.post(path, body, headers=sent, tags="customer:a").status_code == 200
    request = scripted.upstream.seen[-1]
    assert (request.method, request.target, request.body) == ("POST", path, body)
    for header, value in sent.items():
        assert request.header(header.lower()) == value
    assert not [header for header, _ in request.headers if header.lower().startswith("x-capline")]
    secrets = {"sk-upstream-openai", "sk-upstream-anthropic"}
    given = {request.header("x-api-key"), (request.header("authorization") or "").removeprefix("Bearer ")}
    assert given & secrets
    assert scripted.gateway.secret not in str(request.headers)


ANSWERS: dict[str, Scripted] = {
    "odd json": Scripted([b'\n{"id":"chatcmpl-1", "usage":', json.dumps(USAGE).encode(), b" }\n\n"]),
    "chunked json": Scripted([ANSWER[:20], ANSWER[20:]], chunked=True),
    "no json": Scripted([b"<html>\xff\xfe\x00"], headers=[("Content-Type", "text/html")]),
    "headers": Scripted(
        [ANSWER],
        status=201,
        headers=[
            ("Content-Type", "application/json; charset=utf-8"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("openai-processing-ms", "17"),
        ],
    ),
    "an error": Scripted([b'{"error":{"message":"no","code":null} , "x":1}'], status=418),
    "nothing": Scripted([], status=200),
    "comments and carriage returns": Scripted(
        [
            b": keep-alive\n\n",
            b"data: {\r\ndata: }\r\n\r\n",
            b"event: x\nid: 7\nretry: 5\n\nda",
            b"ta: [DONE]\n\n",
        ],
        headers=[("Content-Type", "text/event-stream; charset=utf-8")],
        chunked=True,
    ),
    "words after the end": Scripted(
        [b'data: {"choices":[{}]}\n\n', b"data: [DONE]\n\n: bye\n\nrest"],
        headers=[("Content-Type", "text/event-stream")],
        chunked=True,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_reaches_the_client_byte_for_byte(scripted: ScriptedGateway, name: str) -> None:
    reply = ANSWERS[name]
    scripted.upstream.script = lambda _: reply
    body = chat_body(stream=True, stream_options={"include_usage": True})
    answer = scripted.gateway.post(CHAT, body)
    assert (answer.status_code, answer.content) == (reply.status, b"".join(reply.pieces))
    ours = {"date", "content-length", "transfer-encoding", "x-capline-request-id", "x-capline-cost-usd"}
    passed = [(key, value) for key, value in answer.headers.multi_items() if key not in ours]
    assert passed == [(key.lower(), value) for key, value in reply.headers]


def test_only_the_usage_that_nobody_asked_for_is_added_and_kept_back(scripted: ScriptedGateway) -> None:
    extra = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"
    events = [b'data: {"choices":[{"index":0}],"usage":null}\n\n', extra, b"data: [DONE]\n\n"]
    scripted.upstream.script = lambda _: Scripted(events, headers=[("Content-Type", "text/event-stream")])
    answer = scripted.gateway.post(CHAT, b'{"model":"gpt-4o-mini", "messages":[], "stream":true}')
    assert answer.content == events[0] + events[2]
    sent = json.loads(scripted.upstream.seen[-1].body)
    assert sent == {
        "model": "gpt-4o-mini",
        "messages": [],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_stream_is_forwarded_as_it_comes(scripted: ScriptedGateway) -> None:
    release = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b'data: {"choices":[{}]}\n\n'
        release.wait(10)
        yield b"data: [DONE]\n\n"

    scripted.upstream.script = lambda _: Scripted(
        pieces(), headers=[("Content-Type", "text/event-stream")], chunked=True
    )
    with connect(scripted.gateway) as connection, connection.makefile("rb") as answer:
        body = chat_body(stream=True)
        connection.sendall(head(scripted.gateway, len(body)) + body)
        status, _ = read_head(answer)
        chunks = read_chunks(answer)
        first = next(chunks)
        release.set()
        assert (status, first, b"".join(chunks)) == (200, b'data: {"choices":[{}]}\n\n', b"data: [DONE]\n\n")


# ---- Bodies


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_may_have_32_mebibytes_and_not_one_more(
    scripted: ScriptedGateway, framing: str, over: int
) -> None:
    scripted.upstream.script = lambda _: Scripted([ANSWER])
    before = len(scripted.upstream.seen)
    body = chat_body(size=MOST_BYTES + over)
    with connect(scripted.gateway) as connection, connection.makefile("rb") as answer:
        if framing == "length":
            connection.sendall(head(scripted.gateway, len(body)))
        else:
            connection.sendall(head(scripted.gateway, -1, "Transfer-Encoding: chunked"))
        # A client that sends all before it reads still gets the answer.
        if framing == "length":
            connection.sendall(body)
        else:
            for start in range(0, len(body), 2**20):
                part = body[start : start + 2**20]
                connection.sendall(b"%x\r\n%b\r\n" % (len(part), part))
            connection.sendall(b"0\r\n\r\n")
        status, headers, said = read_answer(answer)
    receipt = scripted.gateway.receipt(headers["x-capline-request-id"])
    if over:
        assert (status, json.loads(said)["error"]["code"]) == (413, "request_too_large")
        assert (receipt["status"], receipt["refusal_code"]) == ("refused", "request_too_large")
        assert len(scripted.upstream.seen) == before
    else:
        assert (status, receipt["status"]) == (200, "served")
        assert receipt["request_bytes"] == MOST_BYTES
        assert scripted.upstream.seen[-1].body == body


def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(scripted: ScriptedGateway) -> None:
    with connect(scripted.gateway) as connection, connection.makefile("rb") as answer:
        connection.sendall(head(scripted.gateway, MOST_BYTES + 1, "Expect: 100-continue"))
        status, _, said = read_answer(answer)
    assert (status, json.loads(said)["error"]["code"]) == (413, "request_too_large")


def test_a_client_that_leaves_before_its_request_is_whole_owes_nothing(
    provider: DemoProviderProcess, gateway: GatewayProcess
) -> None:
    received, rows = provider.received(), len(gateway.receipts())
    left = gateway.metric("capline_left_early_total")
    with connect(gateway) as connection:
        connection.sendall(head(gateway, 1_000) + b'{"model":')
    until(lambda: gateway.metric("capline_left_early_total") == left + 1, "the gateway has noticed")
    assert (provider.received(), len(gateway.receipts())) == (received, rows)


# ---- Connections


def test_a_connection_carries_many_requests(gateway: GatewayProcess) -> None:
    with connect(gateway) as connection, connection.makefile("rb") as answer:
        for stream in (False, True, False, True):
            body = chat_body(stream=stream)
            connection.sendall(head(gateway, len(body)) + body)
            status, _, said = read_answer(answer)
            assert status == 200
            assert said.endswith(b"data: [DONE]\n\n") == stream
        connection.sendall(head(gateway, 2) + b"{}")
        assert read_answer(answer)[0] == 400
        body = chat_body()
        connection.sendall(head(gateway, len(body), "Connection: close") + body)
        assert read_answer(answer)[0] == 200
        assert answer.read() == b""


def test_pipelined_requests_are_answered_in_order(gateway: GatewayProcess) -> None:
    bodies = [chat_body(max_tokens=tokens, stream=tokens == 3) for tokens in (1, 2, 3, 4)]
    delays = ("X-Demo-Delay-Ms: 150", "X-Demo-Delay-Ms: 0", "X-Demo-Delay-Ms: 50", "X-Demo-Delay-Ms: 0")
    with connect(gateway) as connection, connection.makefile("rb") as answer:
        connection.sendall(
            b"".join(
                head(gateway, len(body), delay) + body for body, delay in zip(bodies, delays, strict=True)
            )
        )
        answers = [read_answer(answer) for _ in bodies]
    receipts = [gateway.receipt(headers["x-capline-request-id"]) for _, headers, _ in answers]
    assert [receipt["output_tokens"] for receipt in receipts] == [1, 2, 3, 4]
    assert {receipt["status"] for receipt in receipts} == {"served"}


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_a_stream_whose_client_left_is_metered_to_its_end(
    provider: DemoProviderProcess, gateway: GatewayProcess, path: str
) -> None:  # X025
    model = "gpt-4o-mini" if path == CHAT else "claude-haiku-4-5"
    body = chat_body(stream=True, model=model, max_tokens=40)
    rows = len(gateway.receipts())
    with connect(gateway) as connection, connection.makefile("rb") as answer:
        connection.sendall(head(gateway, len(body), "X-Demo-Chunk-Delay-Ms: 40", path=path) + body)
        read_head(answer)
        next(read_chunks(answer))
    until(lambda: len(gateway.receipts()) > rows, "its receipt")
    receipt = gateway.receipts()[-1]
    assert (receipt["status"], receipt["client_left"], receipt["stream"]) == ("served", True, True)
    assert receipt["output_tokens"] == 40
    entry = list(provider.journal().values())[-1]
    assert (entry["completed"], entry["output_tokens"]) == (True, 40)
    assert receipt["cost_nano_usd"] == receipt["counted_nano_usd"] > 0


def test_a_json_answer_whose_client_left_is_metered(gateway: GatewayProcess) -> None:
    body = chat_body()
    rows = len(gateway.receipts())
    with connect(gateway) as connection:
        connection.sendall(head(gateway, len(body), "X-Demo-Delay-Ms: 300") + body)
        until(lambda: gateway.metric("capline_in_flight") == 1, "it runs")
    until(lambda: len(gateway.receipts()) > rows, "its receipt")
    receipt = gateway.receipts()[-1]
    assert (receipt["status"], receipt["client_left"]) == ("served", True)
    assert receipt["cost_nano_usd"] == receipt["counted_nano_usd"] > 0


def test_a_slow_reader_gets_every_byte_and_holds_up_nobody(scripted: ScriptedGateway) -> None:
    events = [b'data: {"choices":[{"delta":{"content":"' + b"x" * 60_000 + b'"}}]}\n\n'] * 150
    events.append(b"data: [DONE]\n\n")
    slow = Scripted(events, headers=[("Content-Type", "text/event-stream")], chunked=True)

    def script(request: Request) -> Scripted:
        return slow if b'"stream": true' in request.body else Scripted([ANSWER])

    scripted.upstream.script = script
    gateway = scripted.gateway
    body = chat_body(stream=True, stream_options={"include_usage": True})
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", gateway.port))
        connection.sendall(head(gateway, len(body)) + body)
        with connection.makefile("rb", buffering=4_096) as answer:
            _, headers = read_head(answer)
            time.sleep(0.5)
            started = time.monotonic()
            assert gateway.post(CHAT, chat_body()).status_code == 200
            assert time.monotonic() - started < 2
            assert gateway.metric("capline_in_flight") == 1, "nobody has read the answer yet"
            assert b"".join(read_chunks(answer)) == b"".join(events)
    receipt = gateway.receipt(dict(headers)["x-capline-request-id"])
    assert (receipt["status"], receipt["client_left"]) == ("served", False)
    assert receipt["response_bytes"] == sum(map(len, events))


def test_a_slow_sender_holds_up_nobody(gateway: GatewayProcess) -> None:
    body = chat_body()
    with connect(gateway) as connection, connection.makefile("rb") as answer:
        connection.sendall(head(gateway, len(body)) + body[:10])
        assert gateway.chat("a").status_code == 200
        assert gateway.metric("capline_in_flight") == 0
        for byte in body[10:]:
            connection.sendall(bytes([byte]))
        assert read_answer(answer)[0] == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_http_ends_its_own_connection_alone(gateway: GatewayProcess, raw: bytes) -> None:
    with connect(gateway) as connection, connection.makefile("rb") as answer:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        assert b" 200 " not in answer.read()
    assert gateway.chat("a").status_code == 200


# ---- A ledger that does not take a receipt


def test_an_answer_without_its_receipt_is_withheld_and_its_receipt_follows(
    provider: DemoProviderProcess, tmp_path: Path
) -> None:  # contract §10
    """Another process keeps the database to itself for longer than SQLite waits, while two calls are under way."""
    with running(tmp_path, provider.url) as gateway:
        gateway.make_cap(limit_usd="1")

        def ask(stream: bool) -> tuple[int, bytes, bool]:
            body = chat_body(stream=stream)
            sent = head(gateway, len(body), "X-Demo-Delay-Ms: 1000", "X-Capline-Tags: customer:acme") + body
            with connect(gateway) as connection, connection.makefile("rb") as answer:
                connection.sendall(sent)
                status, _ = read_head(answer)
                got = answer.read()
                return status, got, got.endswith(b"0\r\n\r\n")

        before = provider.received()
        threads, answers = in_threads(lambda: ask(False), lambda: ask(True))
        until(lambda: provider.received() == before + 2, "both calls have reached the provider")
        with closing(sqlite3.connect(gateway.database, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            for thread in threads:
                thread.join()
            assert gateway.api("GET", "/health").json()["status"] == "degraded"
            other.execute("ROLLBACK")
        (_, whole, _), (status, streamed, ended) = answers
        assert whole == b"", "a JSON body leaves when its receipt is on disk"
        assert (status, ended, b"[DONE]" in streamed) == (200, False, False)
        assert b"finish_reason" in streamed

        # The counters took both calls, so the ledger does too, as soon as it can and without another call.
        until(lambda: gateway.api("GET", "/health").json()["status"] == "ok", "the ledger is written again")
        rows = gateway.receipts()
        cost = 4 * 150 + 40 * 600  # tokens of "hi" and of the answer, by the list in nano-USD
        assert [(row["status"], row["cost_nano_usd"]) for row in rows] == [("served", cost)] * 2
        probe = gateway.receipt(gateway.chat("acme").headers["x-capline-request-id"])
        assert [look["spent_nano_usd"] for look in probe["trace"]] == [2 * cost]
        gateway.kill()
        gateway.start()
        assert gateway.api("GET", "/health").json()["closed_at_start"] == 0
        assert check_chain(gateway.receipts()) == []


# ---- Stopping and starting


def test_sigterm_lets_every_running_call_end(provider: DemoProviderProcess, tmp_path: Path) -> None:
    with running(tmp_path, provider.url) as gateway:
        gateway.make_cap(scope="organization", subject="default", limit_usd="5")
        slow = {"X-Demo-Delay-Ms": "1200"}
        paced = {"X-Demo-Chunk-Delay-Ms": "120"}
        claude = {
            "model": "claude-haiku-4-5",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "hi"}],
        }
        idle = connect(gateway)
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: gateway\r\n\r\n")
        idle_answer = idle.makefile("rb")
        assert read_answer(idle_answer)[0] == 200
        threads, answers = in_threads(
            lambda: gateway.post(CHAT, chat_body(), headers=slow),
            lambda: gateway.post(CHAT, chat_body(stream=True), headers=paced),
            lambda: gateway.post("/v1/messages", claude, headers=slow),
            lambda: gateway.post("/v1/messages", {**claude, "stream": True}, headers=paced),
        )
        gone = connect(gateway)
        body = chat_body()
        gone.sendall(head(gateway, len(body), "X-Demo-Delay-Ms: 1500") + body)
        until(lambda: gateway.metric("capline_in_flight") == 5, "all calls run")
        gone.close()

        gateway.signal(signal.SIGTERM)
        assert idle_answer.read() == b"", "an idle connection is closed"
        idle_answer.close()
        idle.close()
        with pytest.raises(OSError):  # noqa: PT011
            connect(gateway).close()
        for thread in threads:
            thread.join()
        assert gateway.wait() == 0

        assert [answer.status_code for answer in answers] == [200] * 4
        assert answers[1].content.endswith(b"data: [DONE]\n\n")
        assert answers[3].content.endswith(b'data: {"type":"message_stop"}\n\n')
        gateway.start()
        assert gateway.api("GET", "/health").json()["closed_at_start"] == 0
        rows = gateway.receipts()
        assert [row["status"] for row in rows] == ["served"] * 5
        operations = {row["operation_id"]: row["client_left"] for row in rows}
        heard = {answer.headers["x-capline-request-id"] for answer in answers}
        assert heard == {operation for operation, left in operations.items() if not left}


def hanging(gateway: GatewayProcess) -> tuple[socket.socket, socket.socket]:
    """A call whose provider never answers, and a stream that has begun and hangs then; both run."""
    calls = connect(gateway), connect(gateway)
    for connection, body, order in zip(
        calls, (chat_body(), chat_body(stream=True)), ("Fault: hang", "Chunk-Delay-Ms: 60000"), strict=True
    ):
        connection.sendall(head(gateway, len(body), f"X-Demo-{order}") + body)
    until(lambda: gateway.metric("capline_in_flight") == 2, "both calls run")
    return calls


def broken(connections: Iterable[socket.socket]) -> bool:
    """Whether each ended without the end of an answer."""
    for connection in connections:
        with connection, connection.makefile("rb") as answer, suppress(ConnectionError):
            got = answer.read()
            if b"[DONE]" in got or got.endswith(b"0\r\n\r\n"):
                return False
    return True


def test_a_stop_waits_no_longer_than_told_and_leaves_every_receipt(
    provider: DemoProviderProcess, tmp_path: Path
) -> None:
    """After CAPLINE_DRAIN_S what still runs breaks off, and its receipt says so before the process ends."""
    with running(tmp_path, provider.url, CAPLINE_DRAIN_S="1") as gateway:
        calls = hanging(gateway)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait(10) == 0
        assert broken(calls)
        gateway.start()
        assert gateway.api("GET", "/health").json()["closed_at_start"] == 0
        rows = gateway.receipts()
        assert [row["status"] for row in rows] == ["abandoned"] * 2
        assert all(row["counted_nano_usd"] == row["hold_nano_usd"] > 0 for row in rows)


@pytest.mark.parametrize("last", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_a_second_signal_ends_it_at_once_and_the_next_start_abandons_what_ran(
    provider: DemoProviderProcess, tmp_path: Path, last: str
) -> None:
    """As a container is stopped whose grace is shorter than its calls: a call that ends in time is whole."""
    with running(tmp_path, provider.url) as gateway:
        gateway.make_cap(scope="organization", subject="default", limit_usd="5")
        calls = hanging(gateway)
        threads, answers = in_threads(
            lambda: gateway.post(CHAT, chat_body(), headers={"X-Demo-Delay-Ms": "700"})
        )
        until(lambda: gateway.metric("capline_in_flight") == 3, "all calls run")
        gateway.signal(signal.SIGTERM)
        threads[0].join()
        assert answers[0].status_code == 200
        gateway.signal(signal.Signals[last])
        assert gateway.wait(5) == (-9 if last == "SIGKILL" else 128 + signal.Signals[last])
        assert broken(calls)
        gateway.start()
        assert gateway.api("GET", "/health").json()["closed_at_start"] == 2
        rows = gateway.receipts()
        assert [row["status"] for row in rows] == ["served", "abandoned", "abandoned"]
        probe = gateway.receipt(gateway.chat().headers["x-capline-request-id"])
        assert probe["trace"][0]["spent_nano_usd"] == sum(row["counted_nano_usd"] for row in rows)


@pytest.mark.parametrize("ending", ["SIGTERM", "kill -9"])
def test_a_restart_keeps_what_is_left(
    provider: DemoProviderProcess, tmp_path: Path, ending: str
) -> None:  # X012
    with running(tmp_path, provider.url) as gateway:
        gateway.make_cap(limit_usd="0.001")
        gateway.make_cap(limit_usd="5", window="day", admission="floor")
        first = gateway.chat("acme")
        other = gateway.chat("bolt")
        before = [gateway.receipt(answer.headers["x-capline-request-id"]) for answer in (first, other)]
        if ending == "kill -9":
            gateway.kill()
        else:
            gateway.signal(signal.Signals[ending])
            assert gateway.wait() == 0
        gateway.start()
        again = gateway.chat("acme")
        hold = before[0]["hold_nano_usd"]
        assert nano_usd(first, "remaining") == floored(1_000_000 - hold)
        assert nano_usd(again, "remaining") == floored(1_000_000 - before[0]["cost_nano_usd"] - hold)
        assert gateway.chat("acme", max_tokens=1_500).status_code == 200
        # 0.6 USD a million output tokens: 1,600 of them alone are 0.00096 USD, more than is left.
        refused = gateway.chat("acme", max_tokens=1_600)
        assert (refused.status_code, refused.json()["error"]["code"]) == (402, "budget_exceeded")
        assert gateway.chat("bolt", max_tokens=1_500).status_code == 200
        rows = gateway.receipts()
        sequence = [seq for row in rows for seq in (row["admit_seq"], row["settle_seq"]) if seq is not None]
        assert len(set(sequence)) == len(sequence), "the order goes on where it ended"
        assert [row["chain_seq"] for row in rows] == list(range(1, len(rows) + 1))


def nano_usd(answer: Any, figure: str) -> int:
    """A budget header in nano-USD."""
    return int(Decimal(answer.headers[f"x-capline-budget-{figure}"]) * 10**9)


def floored(nano: int) -> int:
    """As a header shows it: six decimals, floored."""
    return nano // 1_000 * 1_000
