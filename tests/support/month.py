"""Feeds recorded traffic to a live gateway, event by event: the same calls, in the order the counters saw them.

Each receipt becomes one real request of its size and output limit; its answer is held back until the step at which
history settled it, so calls overlap as they did. The clock is set to each event's instant.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gateway.app import Gateway
from tests.support.clock import ManualClock
from tests.support.provider import Reply, ScriptedProvider, Seen
from tests.support.raw_client import RawClient

MARK = "x-month-receipt"
JSON = [(b"content-type", b"application/json")]
SSE = [(b"content-type", b"text/event-stream")]


@dataclass
class Outcome:
    """What the live gateway did with one recorded call."""

    operation_id: str
    status: int
    code: str | None


@dataclass
class MonthDriver:
    """Replays receipts (rows as dicts) against `gateway`; `outcomes` is by receipt_id of the recorded row.

    It waits for the counters, not for the disk: an event is over when its reservation, settlement or refusal is made.
    """

    gateway: Gateway
    clock: ManualClock
    provider: ScriptedProvider
    secret: str
    prefix: str = "x-capline"
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _gates: dict[str, asyncio.Event] = field(default_factory=dict)
    _live: dict[str, str] = field(default_factory=dict)
    _settled: set[str] = field(default_factory=set)
    _step: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, rows: Iterable[dict[str, Any]]) -> None:
        """Drive every event of these rows in the order of their steps."""
        self._rows = {row["receipt_id"]: row for row in rows}
        self.provider.script = self._reply
        self._listen()
        events = [(row["admit_seq"], "admit", row) for row in self._rows.values()]
        events += [(row["settle_seq"], "settle", row) for row in self._rows.values()]
        calls: dict[str, asyncio.Task[None]] = {}
        for _, kind, row in sorted(events, key=lambda event: event[0]):
            name = row["receipt_id"]
            if kind == "admit":
                self.clock.at = row["admitted_at"]
                self._gates[name] = asyncio.Event()
                await self._admit(name, calls)
            elif name in self._live:
                self.clock.at = max(row["settled_at"], self.clock.at)
                self._gates[name].set()
                await self._settle(self._live[name])
        await asyncio.gather(*calls.values())

    async def _admit(self, name: str, calls: dict[str, asyncio.Task[None]]) -> None:
        """Start a call and wait for its decision; one that is refused has no settlement to wait for."""
        self._step.clear()
        self._admitting = name
        calls[name] = asyncio.create_task(self._call(self._rows[name]))
        await self._step.wait()

    async def _settle(self, live_id: str) -> None:
        while live_id not in self._settled:
            self._step.clear()
            await self._step.wait()

    def _listen(self) -> None:
        """Hear every reservation, settlement and refusal at the moment the counters take it."""
        ledger = self.gateway.running.services.ledger
        reserve, settle, record = ledger.reserve, ledger.settle, ledger.record

        def reserved(receipt_id: str, *rest: Any) -> Any:
            grant = reserve(receipt_id, *rest)
            if grant.granted:
                self._live[self._admitting] = receipt_id
            self._step.set()
            return grant

        def settled(receipt_id: str, *rest: Any) -> Any:
            self._settled.add(receipt_id)
            self._step.set()
            return settle(receipt_id, *rest)

        def recorded(receipt: Any, *rest: Any, **more: Any) -> Any:
            self._step.set()
            return record(receipt, *rest, **more)

        ledger.reserve, ledger.settle, ledger.record = reserved, settled, recorded  # type: ignore[method-assign]

    async def _call(self, row: dict[str, Any]) -> None:
        client = RawClient()
        headers = [
            (b"authorization", f"Bearer {self.secret}".encode()),
            (MARK.encode(), row["receipt_id"].encode()),
        ]
        if row["customer"] is not None:
            headers.append((f"{self.prefix}-tags".encode(), f"customer:{row['customer']}".encode()))
        await client.post(self.gateway, row["route"], request_body(row), headers)
        start = client.messages[0]
        sent = dict(start["headers"])
        status = start["status"]
        code = None
        if b"x-should-retry" in sent or (status in (402, 429) and b"x-request-id" in sent):
            error = json.loads(client.body)["error"]
            code = error.get("code") or error.get("details", {}).get("error_code")
        self.outcomes[row["receipt_id"]] = Outcome(
            sent[f"{self.prefix}-request-id".encode()].decode(), status, code
        )

    def _reply(self, seen: Seen) -> Reply:
        name = seen.header(MARK)
        assert name is not None
        return reply_of(self._rows[name], self._gates[name])


def request_body(row: dict[str, Any]) -> bytes:
    """A request of exactly the recorded size that asks for the recorded model and output limit.

    The month's Anthropic calls were all held as ones that mark their prompt for an hour's cache.
    """
    body: dict[str, Any] = {"model": row["model_requested"], "messages": [{"role": "user", "content": ""}]}
    if row["dialect"] == "anthropic":
        body["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    if row["output_limit"] is not None:
        body["max_tokens"] = row["output_limit"]
    if row["stream"]:
        body["stream"] = True
    bare = len(json.dumps(body))
    body["messages"][0]["content"] = "x" * (row["request_bytes"] - bare)
    content = json.dumps(body).encode()
    assert len(content) == row["request_bytes"]
    return content


def reply_of(row: dict[str, Any], gate: asyncio.Event) -> Reply:
    """The provider's part: the recorded usage, refusal or failure."""
    if row["status"] == "failed":
        if row["http_status"] == 502:
            return Reply(fault="unreached", gate=gate)
        return Reply(body=b"{}", status=row["http_status"], gate=gate)
    if row["status"] == "abandoned" and row["usage_source"] == "none":
        return Reply(body=b"{}", status=500, gate=gate)
    usage = None if row["usage_source"] == "none" else usage_of(row)
    if row["stream"] or row["status"] == "abandoned":
        return Reply(chunks=_events(row, usage), headers=SSE, gate=gate)
    answer = {"id": "x", "model": row["model_served"], "usage": usage}
    return Reply(body=json.dumps(answer).encode(), headers=JSON, gate=gate)


def usage_of(row: dict[str, Any]) -> dict[str, Any]:
    """The recorded meters in the provider's own convention."""
    read, short, long = (
        row[name] for name in ("cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
    )
    if row["dialect"] == "anthropic":
        return {
            "input_tokens": row["input_tokens"],
            "cache_read_input_tokens": read,
            "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
            "output_tokens": row["output_tokens"],
            "service_tier": row["service_tier"],
        }
    prompt = row["input_tokens"] + (read or 0) + (short or 0) + (long or 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": row["output_tokens"],
        "total_tokens": prompt + (row["output_tokens"] or 0),
        "prompt_tokens_details": {
            "cached_tokens": read,
            "cache_write_tokens": None if short is None else short + (long or 0),
            "cache_write_tokens_details": None if long is None else {"ttl_12h_tokens": long},
        },
        "completion_tokens_details": {"reasoning_tokens": row["reasoning_tokens"]},
    }


def _events(row: dict[str, Any], usage: dict[str, Any] | None) -> list[bytes]:
    """A stream with this usage; an abandoned one breaks off before its end."""
    whole = row["status"] == "served"
    if row["dialect"] == "anthropic":
        start = {
            "type": "message_start",
            "message": {"id": "x", "model": row["model_served"], "usage": usage},
        }
        delta = {"type": "message_delta", "usage": {"output_tokens": (usage or {}).get("output_tokens")}}
        events = [start, *([delta, {"type": "message_stop"}] if whole else [])]
        return [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    chunk = {"id": "x", "model": row["model_served"], "choices": [], "usage": usage}
    if not whole:
        chunk["error"] = {"message": "broke off"}
    return [f"data: {json.dumps(chunk)}\n\n".encode(), *([b"data: [DONE]\n\n"] if whole else [])]
