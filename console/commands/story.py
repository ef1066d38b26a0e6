"""What `capline demo` plays: customers spend under a cap, one is refused, another is not, and the books agree.

Every step is held against something that does not depend on the gateway's word: the provider's own count, or the
export's proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from console.commands.connection import Api
from console.formatting import call_usd, cap_usd
from toolkit.core.money import parse_usd

MODEL = "gpt-4o"
OUTPUT_TOKENS = 400
"""What the provider makes of every call; a call may ask for a hundred more."""
LIMIT_USD = "0.05"
LIMIT_NANO_USD = parse_usd(LIMIT_USD)
BURST = 40
SPENDER, OTHER, BURSTING = "acme-042", "globex-007", "initech-131"

_MOST_CALLS = 50
_METERS = ("input_tokens", "cache_read_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the transcript: what happened, whether it holds, and the figures behind it."""

    title: str
    words: str
    holds: bool
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Story:
    """Who takes part: the operator, the callers, and the provider's own count. The ledger goes to `export`."""

    operator: Api
    callers: httpx.Client
    provider: httpx.Client
    export: Path
    key: str = ""

    def told(self) -> Iterator[Step]:
        """The steps in order, each when it has happened."""
        self.provider.post("/__demo__/defaults", json={"output_tokens": OUTPUT_TOKENS, "delay_ms": 120})
        yield self._armed()
        yield self._spent_up()
        refused = self._call(SPENDER)
        yield self._refused(refused)
        yield self._explained(refused.headers["x-capline-request-id"])
        yield self._other()
        yield self._burst()
        yield self._verified()

    def _armed(self) -> Step:
        self.key = self.operator.ask("POST", "/api/keys", {"name": "demo"})["key"]
        rule = {
            "name": "Each customer",
            "scope": "customer",
            "subject": "*",
            "window": "month",
            "limit_usd": LIMIT_USD,
        }
        cap = self.operator.ask("POST", "/api/caps", rule)
        cap = self.operator.ask(
            "POST", f"/api/caps/{cap['id']}/arm", {"reason": "the demo"}, version=cap["version"]
        )
        return Step(
            title="Cap",
            words=f"cap {cap['id']}, customer:* month {cap_usd(cap['limit_nano_usd'])}, is armed",
            holds=cap["hard_stop"],
            figures={"cap_id": cap["id"], "limit_nano_usd": cap["limit_nano_usd"]},
        )

    def _spent_up(self) -> Step:
        """One customer calls until the gateway says no."""
        served = 0
        while served < _MOST_CALLS and self._call(SPENDER).status_code == httpx.codes.OK:
            served += 1
        counted, spent = self._count(), self._spent(SPENDER)
        return Step(
            title="Spend",
            words=f"{SPENDER}: {served} calls served, {call_usd(spent)} spent",
            holds=0 < served == counted and 0 < spent <= LIMIT_NANO_USD,
            figures={
                "customer": SPENDER,
                "served": served,
                "spent_nano_usd": spent,
                "provider_count": counted,
            },
        )

    def _refused(self, answer: httpx.Response) -> Step:
        """The no is final, and the provider never heard of the call."""
        served, counted = self._served(SPENDER), self._count()
        status, code = answer.status_code, (answer.json().get("error") or {}).get("code")
        return Step(
            title="Refused",
            words=f"{SPENDER}: {status} {code}; the provider still counts {counted} calls",
            holds=(status, code) == (402, "budget_exceeded") and counted == served,
            figures={"customer": SPENDER, "status": status, "code": code, "provider_count": counted},
        )

    def _explained(self, operation_id: str) -> Step:
        """The receipt of the no, and the figures that it was decided by."""
        receipt = self.operator.ask("GET", f"/api/receipts/{operation_id}")
        look = receipt["trace"][0]
        spent, hold, limit = (look[f"{name}_nano_usd"] for name in ("spent", "hold", "limit"))
        sum_words = f"spent {call_usd(spent)} + worst case {call_usd(hold)} > {cap_usd(limit)}"
        return Step(
            title="Receipt",
            words=f"{receipt['receipt_id']}: cap {receipt['cap_id']}, {sum_words}",
            holds=receipt["status"] == "refused" and spent + hold > limit,
            figures={
                "receipt_id": receipt["receipt_id"],
                "cap_id": receipt["cap_id"],
                "refusal_code": receipt["refusal_code"],
                "spent_nano_usd": spent,
                "hold_nano_usd": hold,
                "limit_nano_usd": limit,
            },
        )

    def _other(self) -> Step:
        answer, spent = self._call(OTHER), self._spent(OTHER)
        return Step(
            title="Other",
            words=f"{OTHER}: {answer.status_code}, {call_usd(spent)} spent; one customer's cap is nobody else's",
            holds=answer.status_code == httpx.codes.OK and spent > 0,
            figures={"customer": OTHER, "status": answer.status_code, "spent_nano_usd": spent},
        )

    def _burst(self) -> Step:
        """Many calls at the same time: the counters admit what fits and not one more."""
        before = self._count()
        with ThreadPoolExecutor(BURST) as pool:
            statuses = [answer.status_code for answer in pool.map(self._call, [BURSTING] * BURST)]
        served, reached, spent = statuses.count(200), self._count() - before, self._spent(BURSTING)
        outcome = f"{served} served, {BURST - served} refused, {call_usd(spent)} spent"
        return Step(
            title="Burst",
            words=f"{BURSTING}: {BURST} calls at once, {outcome}; the provider saw {reached}",
            holds=0 < served == reached < BURST
            and 0 < spent <= LIMIT_NANO_USD
            and set(statuses) <= {200, 402, 429},
            figures={
                "customer": BURSTING,
                "calls": BURST,
                "served": served,
                "provider_count": reached,
                "spent_nano_usd": spent,
            },
        )

    def _verified(self) -> Step:
        """The export proves itself, and its tokens are those that the provider counted."""
        import toolkit as tk

        with self.operator.stream("/v1/ledger/export", {"format": "jsonl"}) as answer:
            self.export.write_bytes(answer.read())
        found = tk.verify(self.export)
        tokens = tk.load(self.export).frame.select(_METERS).sum().collect().row(0)
        ours, theirs = sum(count or 0 for count in tokens), self._counted(*_METERS)
        proof = f"{found.rows} receipts: every hash, link, sum and {found.priced_rows} costs hold"
        return Step(
            title="Verify",
            words=f"{proof}; {ours:,} tokens, {theirs:,} by the provider's own count"
            if found.first_fault is None
            else found.first_fault,
            holds=found.faults == 0 and found.priced_rows > 0 and ours == theirs,
            figures={
                "rows": found.rows,
                "faults": found.faults,
                "priced_rows": found.priced_rows,
                "cost_nano_usd": found.cost_nano_usd,
                "tokens": ours,
                "provider_tokens": theirs,
            },
        )

    def _call(self, customer: str) -> httpx.Response:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Summarize what a spending cap is for."}],
            "max_tokens": OUTPUT_TOKENS + 100,
        }
        headers = {"authorization": f"Bearer {self.key}", "x-capline-tags": f"customer:{customer}"}
        return self.callers.post("/v1/chat/completions", json=body, headers=headers)

    def _customer(self, customer: str) -> dict[str, Any]:
        items = self.operator.items("/api/customers")
        return next((item for item in items if item["customer"] == customer), {})

    def _spent(self, customer: str) -> int:
        """What the ledger says that a customer spent, in nano-USD."""
        return int(self._customer(customer).get("cost_nano_usd") or 0)

    def _served(self, customer: str) -> int:
        return int(self._customer(customer).get("priced_requests") or 0)

    def _count(self) -> int:
        return self._counted("requests")

    def _counted(self, *meters: str) -> int:
        """What the provider itself says that it served."""
        total = self.provider.get("/__demo__/count").json()["total"]
        return sum(int(total[meter]) for meter in meters)
