"""`kill -9` in the middle of mixed load, five times: whatever a client received whole is in the ledger, and the
counters are the sum of the ledger to the nano-dollar (contract §10).

Every call carries a number of its own: as a free tag, so that its receipt bears it, and as the name of a header, so
that the provider's journal does. Sums are taken here from the exported lines alone; no code of the gateway is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp

import toolkit as tk
from tests.support.servers import DemoProviderProcess, GatewayProcess
from toolkit.core.chain import ChainCheck

ROUNDS = 5
LOAD_S = 12.0
WORKERS = 14
CUSTOMERS = ("acme", "bolt", "zoë 12", "small", "tight")
KINDS = ("chat", "chat stream", "messages", "messages stream")
FINAL = {"chat stream": b"data: [DONE]\n\n", "messages stream": b"event: message_stop\ndata: "}

CAPS: tuple[dict[str, Any], ...] = (
    {"scope": "organization", "limit_usd": "500"},
    {"scope": "organization", "window": "day", "token_limit": 10**9, "request_limit": 10**6},
    {"scope": "organization", "window": "never", "limit_usd": "0.01", "armed": False},
    {
        "scope": "organization",
        "match": {"model": "claude-haiku-4-5"},
        "limit_usd": "500",
        "admission": "after",
    },
    {"scope": "organization", "match": {"tag": "agent:*"}, "window": "week", "limit_usd": "500"},
    {"scope": "customer", "subject": "*", "limit_usd": "5"},
    {"scope": "customer", "subject": "*", "window": "day", "limit_usd": "5", "admission": "floor"},
    {"scope": "customer", "subject": "small", "limit_usd": "0.05", "admission": "floor"},
    {"scope": "customer", "subject": "tight", "limit_usd": "0.05"},
    {"scope": "customer", "subject": "acme", "window": "year", "limit_usd": "9", "armed": False},
    {"scope": "run", "subject": "*", "window": "never", "limit_usd": "5"},
    {"scope": "key", "subject": "*", "limit_usd": "50", "admission": "floor"},
)
SAME_PERIOD = {"day": 10, "month": 7, "year": 4, "never": 0}
"""How many characters of two instants agree when they lie in one period."""


@dataclass
class Call:
    """One call as its client saw it."""

    number: str
    kind: str
    customer: str | None
    operation_id: str | None = None
    status: int | None = None
    code: str | None = None
    whole: bool = False


class Load:
    """Clients that call without a pause until the gateway dies or the time is over."""

    def __init__(self, gateway: GatewayProcess, secrets: list[str], seed: int) -> None:
        self.calls: list[Call] = []
        self._gateway = gateway
        self._secrets = secrets
        self._seed = seed
        self._random = random.Random(seed)
        self._stopping = False

    async def run(self, seconds: float, *, kill: bool) -> list[Call]:
        """Load for so long; then kill the gateway under it, or let the calls that run end."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            workers = [asyncio.create_task(self._work(session)) for _ in range(WORKERS)]
            await asyncio.sleep(seconds)
            if kill:
                self._gateway.kill()
            self._stopping = True
            await asyncio.gather(*workers)
        return self.calls

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while not self._stopping:
            customer = self._random.choice([*CUSTOMERS, None])
            call = Call(f"{self._seed}-{len(self.calls)}", self._random.choice(KINDS), customer)
            self.calls.append(call)
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                await self._call(session, call)

    async def _call(self, session: aiohttp.ClientSession, call: Call) -> None:
        request = self._request(call)
        leaves = self._random.random() < 0.03
        async with request(session) as reply:
            call.status = reply.status
            call.operation_id = reply.headers["x-capline-request-id"]
            if reply.status == 200 and call.kind in FINAL:
                seen = b""
                async for part in reply.content.iter_any():
                    seen += part
                    call.whole = call.whole or FINAL[call.kind] in seen
                    if leaves:
                        return
            else:
                answer = json.loads(await reply.read())
                call.whole = True
                error = answer.get("error") or {}
                call.code = error.get("code") or error.get("details", {}).get("error_code")

    def _request(self, call: Call) -> Any:
        pick = self._random.choice
        tags = [f"call:{call.number}", *pick([(), ("run:nightly",), ("run:job 7", "agent:a"), ("agent:b",)])]
        if call.customer is not None:
            tags.append(f"customer:{call.customer}")
        is_chat = call.kind.startswith("chat")
        headers = {
            "authorization": f"Bearer {pick(self._secrets)}",
            "x-capline-tags": ",".join(tags),
            f"x-call-{call.number}": "1",
            "x-demo-output-tokens": str(pick((1, 20, 200))),
            "x-demo-chunk-delay-ms": str(pick((0, 0, 15))),
            "x-demo-delay-ms": str(pick((0, 0, 0, 100))),
        }
        body = {
            "model": "gpt-4o-mini" if is_chat else "claude-haiku-4-5",
            "messages": [{"role": "user", "content": "word " * pick((1, 40))}],
            "max_tokens": pick((10, 100, 1_000)),
            "stream": call.kind in FINAL,
        }
        url = self._gateway.url + ("/v1/chat/completions" if is_chat else "/v1/messages")
        return lambda session: session.post(url, json=body, headers=headers)


class Sums:
    """What the counters of caps must say: sums over exported lines, by cap and by who shares a counter."""

    def __init__(self, caps: Iterable[dict[str, Any]], rows: Iterable[dict[str, Any]]) -> None:
        self._caps = {cap["id"]: cap for cap in caps}
        self._sums: Counter[tuple[object, ...]] = Counter()
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        """Take one more line in."""
        for cap in self._caps.values():
            if (shared := self._shared(cap, row)) is not None:
                self._sums[*shared, "usd"] += row["counted_nano_usd"]
                self._sums[*shared, "tokens"] += row["counted_tokens"] or 0
                self._sums[*shared, "requests"] += row["status"] in ("served", "abandoned")

    def of(self, cap_id: int, row: dict[str, Any], unit: str) -> int:
        """What is spent on the counter that a call shares."""
        shared = self._shared(self._caps[cap_id], row)
        assert shared is not None, f"cap {cap_id} does not match this call"
        return self._sums[*shared, unit]

    def _shared(self, cap: dict[str, Any], row: dict[str, Any]) -> tuple[object, ...] | None:
        subject = row["key_id" if cap["scope"] == "key" else cap["scope"]]
        tag = next((tag for tag in row["tags"] if tag.startswith("agent:")), None)
        if subject is None or cap["subject"] not in ("*", subject):
            return None
        if cap["match"]["model"] not in (None, row["model_requested"]):
            return None
        if cap["match"]["tag"] is not None and tag is None:
            return None
        admitted = row["admitted_at"]
        period = week_of(admitted) if cap["window"] == "week" else admitted[: SAME_PERIOD[cap["window"]]]
        return cap["id"], period, subject, tag if cap["match"]["tag"] else None


def week_of(instant: str) -> str:
    """The ISO week of an instant."""
    year, week, _ = datetime.fromisoformat(instant).isocalendar()
    return f"{year}-W{week}"


def check_counters(gateway: GatewayProcess, sums: Sums, secrets: list[str]) -> None:
    """Ask calls of every kind, and compare what their traces say of the counters with the sums."""
    compared = 0
    for index, customer in enumerate([*CUSTOMERS, None]):
        tags = ["run:nightly,agent:a", "run:job 7,agent:b"][index % 2]
        if customer is not None:
            tags += f",customer:{customer}"
        model, path = (("gpt-4o-mini", "/v1/chat/completions"), ("claude-haiku-4-5", "/v1/messages"))[
            index % 2
        ]
        body = {"model": model, "messages": [{"role": "user", "content": "probe"}], "max_tokens": 5}
        reply = gateway.post(path, body, secret=secrets[index // 2 % 2], tags=tags)
        receipt = gateway.receipt(reply.headers["x-capline-request-id"])
        for look in receipt["trace"]:
            money = "_nano_usd" if look["unit"] == "usd" else ""
            assert look[f"held{money}"] == 0, f"a hold of nobody's under cap {look['cap_id']}"
            assert look[f"spent{money}"] == sums.of(look["cap_id"], receipt, look["unit"]), look
            compared += 1
        sums.add(receipt)
    assert compared > 50


def check_answers(calls: list[Call], by_number: dict[str, list[dict[str, Any]]]) -> None:
    """Every answer that came whole has its receipt, under the id that its client saw."""
    for call in calls:
        found = by_number.get(call.number, [])
        assert len(found) <= 1, f"{call.number} has {len(found)} receipts"
        if call.whole:
            assert found, f"{call.number} was answered whole ({call.status}) and has no receipt"
            expected = ("served", None) if call.status == 200 else ("refused", call.code)
            assert (found[0]["status"], found[0]["refusal_code"]) == expected, call
        if found and call.operation_id is not None:
            assert found[0]["operation_id"] == call.operation_id


def check_cut_off(rows: list[dict[str, Any]], whole: set[str]) -> None:
    """A call that was cut off is abandoned, counted at its hold, and nobody had its answer."""
    for row in rows:
        if row["status"] == "abandoned":
            assert row["cost_nano_usd"] is None
            assert row["counted_nano_usd"] == row["hold_nano_usd"] > 0
            assert row["counted_tokens"] == row["hold_tokens"] > 0
            assert (row["unpriced_reason"], row["basis"]) == ("outcome_unknown", "estimated")
            assert number_of(row) not in whole


def check_journal(provider: DemoProviderProcess, by_number: dict[str, list[dict[str, Any]]]) -> None:
    """Every request that the provider received has a receipt, with the provider's own tokens where it was served."""
    received = Counter[str]()
    for request_id, entry in provider.journal().items():
        number = next((name[7:] for name in entry["header_names"] if name.startswith("x-call-")), None)
        if number is None:
            continue  # A probe; it was answered.
        received[number] += 1
        assert number in by_number, f"the provider received {number}; no receipt tells of it"
        row = by_number[number][0]
        assert row["status"] in ("served", "abandoned")
        if row["status"] == "served":
            assert request_id.removeprefix("req_") == re.split("[-_]", row["upstream_id"])[1]
            meters = ("input_tokens", "cache_read_tokens", "output_tokens")
            assert [row[meter] for meter in meters] == [entry[meter] for meter in meters]
    assert not [number for number, count in received.items() if count > 1]


def number_of(row: dict[str, Any]) -> str | None:
    """The call that a receipt tells of."""
    return next((tag[5:] for tag in row["tags"] if tag.startswith("call:")), None)


def grouped(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Receipts by the call that they tell of."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if (number := number_of(row)) is not None:
            found.setdefault(number, []).append(row)
    return found


def test_no_kill_loses_an_answer_or_a_nano_dollar(
    provider: DemoProviderProcess, gateway: GatewayProcess, tmp_path: Path
) -> None:
    secrets = [gateway.secret, gateway.make_key()["key"]]
    caps = [gateway.make_cap(**fields) for fields in CAPS]
    calls: list[Call] = []
    chain = ChainCheck()
    before: list[dict[str, Any]] = []
    for turn in range(ROUNDS):
        calls += asyncio.run(Load(gateway, secrets, turn).run(LOAD_S, kill=True))
        gateway.start()

        rows = gateway.receipts()
        assert len({row["receipt_id"] for row in rows}) == len(rows)
        by_number = grouped(rows)
        check_answers(calls, by_number)
        whole = {call.number for call in calls if call.whole}
        check_cut_off(rows, whole)
        assert rows[: len(before)] == before, "a receipt of before has changed"
        news = rows[len(before) :]
        before = rows
        cut_off = sum(row["status"] == "abandoned" for row in news)
        assert cut_off > 0, "the kill met no load"
        health = gateway.api("GET", "/health").json()
        assert health["closed_at_start"] == cut_off
        assert (health["counters"]["running"], health["counters"]["held_nano_usd"]) == (0, 0)
        check_journal(provider, by_number)
        for row in news:
            chain.see(row)
        assert chain.faults == []
        check_counters(gateway, Sums(caps, rows), secrets)

    # The counters that were read from the ledger have also counted live since then.
    calls += asyncio.run(Load(gateway, secrets, ROUNDS).run(1.5, kill=False))
    rows = gateway.receipts()
    check_counters(gateway, Sums(caps, rows), secrets)
    check_answers(calls, grouped(rows))

    served = Counter((call.kind, call.code) for call in calls if call.whole)
    assert all(served[kind, None] > 100 for kind in KINDS), served
    assert {code for _, code in served} >= {None, "budget_exceeded", "budget_busy"}, served
    path = tmp_path / "export.jsonl"
    path.write_bytes(gateway.export())
    verdict = tk.verify([path])
    assert (verdict.faults, verdict.first_fault) == (0, None)
    assert verdict.priced_rows > 1_000
