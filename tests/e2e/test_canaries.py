"""Words that must not be found: prompts and answers in no file that a gateway leaves, customers in nothing that
leaves it but exports, secrets nowhere (R003-R006, contract §5 and §8).

One gateway sees every way in which a call can end, and is killed while two run. Then its files are searched byte by
byte, and all that it said over the wire is searched too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers import (
    ADMIN_TOKEN,
    UPSTREAM_KEYS,
    GatewayProcess,
    Request,
    Scripted,
    ScriptedHttpProvider,
    running,
    scripted_provider,
    until,
)

PROMPT = "canary-prompt-5f1d"
ANSWER = "canary-answer-9c2e"
CUSTOMER = "canary-customer-77ab"
WRONG_KEY = "cap_canary-wrong-key-31"
UPSTREAM_ERROR = "canary-upstream-error-6d"
EVENTS = [("Content-Type", "text/event-stream")]
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def answer(request: Request) -> Scripted:
    """Whole answers, streams and faults, each full of what it was asked and of what it says."""
    wanted = request.header("x-fault")
    asked = json.loads(request.body)
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    text = f"{ANSWER} {PROMPT}"
    if request.target == CHAT:
        message = {"role": "assistant", "content": text}
        whole = {
            "id": "chatcmpl-1",
            "model": "gpt-4o-mini",
            "choices": [{"message": message}],
            "usage": usage,
        }
        chunk = {"id": "chatcmpl-1", "choices": [{"delta": message}]}
        events = [f"data: {json.dumps(chunk)}\n\n".encode(), b"data: [DONE]\n\n"]
    else:
        content = [{"type": "text", "text": text}]
        counts = {"input_tokens": 9, "output_tokens": 5}
        whole = {"id": "msg_1", "model": "claude-haiku-4-5", "content": content, "usage": counts}
        start = {"type": "message_start", "message": whole}
        events = [f"data: {json.dumps(start)}\n\n".encode(), b'data: {"type": "message_stop"}\n\n']
    if wanted == "error":
        said = {"error": {"message": f"{UPSTREAM_ERROR} {PROMPT}", "code": UPSTREAM_ERROR}}
        return Scripted([json.dumps(said).encode()], status=int(request.header("x-status") or 400))
    if wanted == "no json":
        return Scripted([f"<p>{text}".encode()])
    if wanted == "odd usage":
        return Scripted([json.dumps({**whole, "usage": {"prompt_tokens": text}}).encode()])
    pieces = events if asked.get("stream") else [json.dumps(whole).encode()]
    return Scripted(
        pieces[:1] if wanted == "cut" else pieces,
        headers=EVENTS if asked.get("stream") else [("Content-Type", "application/json")],
        pause_s=30.0 if wanted == "hang" else 0.0,
        cut=wanted == "cut",
    )


@dataclass
class Heard:
    """What the gateway said, by what kind of thing said it."""

    refusals: list[httpx.Response] = field(default_factory=list)
    answers: list[httpx.Response] = field(default_factory=list)
    operator: dict[str, httpx.Response] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    log: bytes = b""


def request_of(path: str, **more: Any) -> dict[str, Any]:
    """A request whose every text is a canary."""
    model = "gpt-4o-mini" if path == CHAT else "claude-haiku-4-5"
    tool = {"name": PROMPT, "input_schema": {"type": "object", "description": PROMPT}}
    return {
        "model": model,
        "max_tokens": 20,
        "messages": [{"role": "user", "content": f"{PROMPT} {'ä' * 50}"}],
        "metadata": {"user_id": PROMPT},
        "tools": [tool],
        "user": PROMPT,
        **more,
    }


def exercise(gateway: GatewayProcess, heard: Heard) -> None:
    """Every way in which a call can end."""
    tags = f"customer:{CUSTOMER}, run:7"
    for path in (CHAT, MESSAGES):
        for stream in (False, True):
            heard.answers.append(gateway.post(path, request_of(path, stream=stream), tags=tags))
        for fault in ("error", "no json", "odd usage", "cut"):
            for status in ("400", "429", "500") if fault == "error" else ("",):
                sent = {"x-fault": fault, "x-status": status}
                heard.answers.append(gateway.post(path, request_of(path), tags=tags, headers=sent))
        try:
            gateway.post(path, request_of(path, stream=True), tags=tags, headers={"x-fault": "cut"})
        except httpx.TransportError:
            pass
        else:
            pytest.fail("a stream that broke off must not end well")
        heard.refusals += [
            gateway.post(path, json.dumps(request_of(path)).encode()[:-5], tags=tags),
            gateway.post(path, request_of(path, max_tokens=f"{PROMPT}"), tags=tags),
            gateway.post(path, request_of(path, messages=[PROMPT], n=PROMPT, stream=PROMPT), tags=tags),
            gateway.post(path, b'"' + PROMPT.encode() + b"\xff", tags=tags),
            gateway.post(path, request_of(path), tags=tags, secret=WRONG_KEY),
            gateway.post(path, request_of(path), tags=f"customer:{CUSTOMER * 10}"),
            gateway.post(path, request_of(path), tags=f"customer:{CUSTOMER}-poor"),
            gateway.post(path, request_of(path, max_tokens=10_000), tags=f"customer:{CUSTOMER}-small"),
            gateway.post(path, request_of(path, model="unheard-of"), tags=tags),
            gateway.post(f"{path}/{PROMPT}", request_of(path), tags=tags),
            gateway.post("/v1/batches", request_of(path), tags=tags),
            gateway.post(path, b"{" + b" " * 40_000_000, tags=tags),
        ]
    assert all(refusal.status_code >= 400 for refusal in heard.refusals)
    # The operator's plane answers wrong values without repeating a secret.
    for body in (
        {"name": ADMIN_TOKEN, "role": "nobody"},
        {"scope": "customer", "subject": "*", "limit_usd": "x"},
    ):
        for path in ("/api/keys", "/api/caps"):
            heard.refusals.append(gateway.api("POST", path, body))
    for token in (WRONG_KEY, gateway.secret):
        with gateway.client() as client:
            sent = {"authorization": f"Bearer {token}"}
            heard.refusals.append(client.get("/api/caps", headers=sent))
            heard.refusals.append(client.get(f"/api/caps?token={token}", headers=sent))


def cut_off(gateway: GatewayProcess, upstream: ScriptedHttpProvider) -> None:
    """Kill it while a whole answer and a stream are on their way."""
    sent = {"x-fault": "hang"}
    before = len(upstream.seen)

    def ask(stream: bool) -> None:
        with pytest.raises(httpx.TransportError):
            gateway.post(CHAT, request_of(CHAT, stream=stream), tags=f"customer:{CUSTOMER}", headers=sent)

    threads = [threading.Thread(target=ask, args=(stream,)) for stream in (False, True)]
    for thread in threads:
        thread.start()
    until(lambda: len(upstream.seen) == before + 2, "both calls have reached the provider")
    gateway.kill()
    for thread in threads:
        thread.join()


def files_of(folder: Path) -> dict[str, bytes]:
    """Every byte below a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def gateway_and_heard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, Heard]]:
    """A gateway that has been through it all, and what it said."""
    heard = Heard()
    folder = tmp_path_factory.mktemp("canaries")
    with scripted_provider(answer) as upstream, running(folder, upstream.url) as gateway:
        gateway.make_cap(limit_usd="5")
        gateway.make_cap(subject=f"{CUSTOMER}-poor", limit_usd="0", name="poor")
        gateway.make_cap(subject=f"{CUSTOMER}-small", limit_usd="0.001", name="small")
        exercise(gateway, heard)
        # While it runs its last commits lie in the write-ahead log alone.
        heard.files = {f"running/{name}": content for name, content in files_of(folder).items()}
        cut_off(gateway, upstream)
        heard.files |= {f"killed/{name}": content for name, content in files_of(folder).items()}
        gateway.start()
        with gateway.client() as client:
            heard.operator = {path: client.get(path) for path in ("/health", "/metrics")}
        upstream.script = lambda _: Scripted([b"{}"])
        yield gateway, heard
        gateway.stop()


@pytest.fixture
def gateway(gateway_and_heard: tuple[GatewayProcess, Heard]) -> GatewayProcess:
    """The gateway, running again."""
    return gateway_and_heard[0]


@pytest.fixture
def heard(gateway_and_heard: tuple[GatewayProcess, Heard]) -> Heard:
    """What it said; its files are read anew."""
    gateway, heard = gateway_and_heard
    heard.files |= {f"again/{name}": content for name, content in files_of(gateway.folder).items()}
    heard.log = gateway.log_path.read_bytes()
    return heard


def holding(files: dict[str, bytes], word: str) -> list[str]:
    """Files that hold a word as UTF-8 or UTF-16, in any case."""
    forms = (word.encode(), word.encode("utf-16-le"))
    return [name for name, content in files.items() if any(form in content.lower() for form in forms)]


def said(response: httpx.Response) -> str:
    """Everything of an answer: status line, headers and body."""
    return "\n".join(
        [response.reason_phrase, *(f"{k}: {v}" for k, v in response.headers.multi_items()), response.text]
    )


def test_the_canaries_sang(gateway: GatewayProcess, heard: Heard) -> None:
    """The search below would find nothing in an empty folder."""
    codes = {refusal.json()["error"].get("code") for refusal in heard.refusals if "error" in refusal.json()}
    assert {"invalid_request", "invalid_api_key", "budget_exceeded", "invalid_customer_tag"} <= codes
    assert {"model_unpriced", "unsupported_route", "request_too_large"} <= codes
    assert all(ANSWER in response.text or UPSTREAM_ERROR in response.text for response in heard.answers[:2])
    rows = gateway.receipts()
    statuses = {(row["status"], row["stream"]) for row in rows}
    assert statuses >= {("served", False), ("served", True), ("abandoned", True), ("abandoned", False)}
    assert {"served", "refused", "failed", "abandoned"} == {row["status"] for row in rows}
    assert {row["unpriced_reason"] for row in rows} >= {"usage_missing", "usage_invalid"}
    assert gateway.api("GET", "/health").json()["closed_at_start"] == 2
    assert "2 calls were cut off" in heard.log.decode()
    names = {Path(name).name for name in heard.files}
    assert names >= {"capline.db", "capline.db-wal", "gateway.log"}


@pytest.mark.parametrize("word", [PROMPT, ANSWER, UPSTREAM_ERROR, "ä" * 50])
def test_no_prompt_and_no_answer_is_in_any_file(heard: Heard, word: str) -> None:  # R006
    assert holding(heard.files, word) == []


def test_no_prompt_is_in_a_refusal_or_a_metric(heard: Heard) -> None:
    for response in [*heard.refusals, *heard.operator.values()]:
        assert PROMPT not in said(response).replace(f"/{PROMPT}", "")


def test_a_customer_is_in_the_records_on_purpose(gateway: GatewayProcess, heard: Heard) -> None:  # R005
    assert {row["customer"] for row in gateway.receipts()} >= {CUSTOMER, f"{CUSTOMER}-poor"}
    assert "killed/var/capline.db-wal" in holding(heard.files, CUSTOMER)


def test_a_customer_is_in_no_log_refusal_header_or_metric(heard: Heard) -> None:  # R003, R004
    assert CUSTOMER.encode() not in heard.log
    assert {Path(name).name for name in holding(heard.files, CUSTOMER)} <= {"capline.db", "capline.db-wal"}
    for refusal in heard.refusals:
        assert CUSTOMER not in said(refusal)
    for response in heard.answers:
        assert CUSTOMER not in str(response.headers)
    for response in heard.operator.values():
        assert CUSTOMER not in said(response)


def test_a_customer_is_found_by_reference_not_by_name(gateway: GatewayProcess) -> None:
    """URLs carry `customer_ref`; a URL that carries the value finds nothing and repeats nothing."""
    listed = gateway.api("GET", "/api/customers").json()["items"]
    ref = next(item["customer_ref"] for item in listed if item["customer"] == CUSTOMER)
    found = gateway.api("GET", f"/api/receipts?customer_ref={ref}&limit=5").json()["items"]
    assert {row["customer"] for row in found} == {CUSTOMER}
    assert ref not in (CUSTOMER, "")
    for path in (f"/api/receipts?customer_ref={CUSTOMER}", f"/api/customers/{CUSTOMER}", f"/{CUSTOMER}"):
        reply = gateway.api("GET", path)
        assert CUSTOMER not in said(reply), path
    assert CUSTOMER.encode() not in gateway.log_path.read_bytes()


def test_secrets_are_in_no_file_error_header_or_metric(gateway: GatewayProcess, heard: Heard) -> None:
    secrets = [gateway.secret, ADMIN_TOKEN, WRONG_KEY, *UPSTREAM_KEYS.values()]
    for secret in secrets:
        assert holding(heard.files, secret) == []
        for response in [*heard.refusals, *heard.answers, *heard.operator.values()]:
            if secret == ADMIN_TOKEN and response.request.url.path == "/api/keys":
                continue  # It was sent as a name, to be told what is wrong with the role.
            assert secret not in said(response), response.request.url


def test_settings_are_shown_without_secrets(gateway: GatewayProcess) -> None:
    shown = gateway.run("--check")
    assert shown.returncode == 0
    for secret in (ADMIN_TOKEN, *UPSTREAM_KEYS.values()):
        assert secret not in shown.stdout + shown.stderr
