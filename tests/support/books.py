"""A gateway's books held to what its clients saw and to the provider's own count, to the nano-dollar.

Sums are taken here from exported lines alone; no code of the gateway is asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tests.support.load import Call
from tests.support.servers import DemoProviderProcess, GatewayProcess

Row = dict[str, Any]

PROVIDERS_NANO_USD = {"gpt-4o-mini": (150, 75, 600), "claude-haiku-4-5": (1_000, 100, 5_000)}
"""What the provider charges for a token: of input, read from its cache, of output."""
SAME_PERIOD = {"day": 10, "month": 7, "year": 4, "never": 0}
"""How many characters of two instants agree when they lie in one period."""
PROBES = (("gpt-4o-mini", "/v1/chat/completions"), ("claude-haiku-4-5", "/v1/messages"))


class Sums:
    """What the counters of caps must say: sums over exported lines, by cap and by who shares a counter."""

    def __init__(self, caps: Iterable[Row], rows: Iterable[Row]) -> None:
        self._caps = {cap["id"]: cap for cap in caps}
        self._sums: Counter[tuple[object, ...]] = Counter()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Take one more line in."""
        for cap in self._caps.values():
            if (shared := self._shared(cap, row)) is not None:
                self._sums[*shared, "usd"] += row["counted_nano_usd"]
                self._sums[*shared, "tokens"] += row["counted_tokens"] or 0
                self._sums[*shared, "requests"] += row["status"] in ("served", "abandoned")

    def of(self, cap_id: int, row: Row, unit: str) -> int:
        """What is spent on the counter that a call shares."""
        shared = self._shared(self._caps[cap_id], row)
        assert shared is not None, f"cap {cap_id} does not match this call"
        return self._sums[*shared, unit]

    def _shared(self, cap: Row, row: Row) -> tuple[object, ...] | None:
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


def check_counters(
    gateway: GatewayProcess, sums: Sums, secrets: Sequence[str], customers: Iterable[str | None]
) -> int:
    """Ask calls of every kind, and compare what their traces say of the counters with the sums; how many did."""
    compared = 0
    for index, customer in enumerate(customers):
        tags = ["run:nightly,agent:a", "run:job 7,agent:b"][index % 2]
        if customer is not None:
            tags += f",customer:{customer}"
        model, path = PROBES[index % 2]
        body = {"model": model, "messages": [{"role": "user", "content": "probe"}], "max_tokens": 5}
        reply = gateway.post(path, body, secret=secrets[index // 2 % len(secrets)], tags=tags)
        receipt = gateway.receipt(reply.headers["x-capline-request-id"])
        for look in receipt["trace"]:
            money = "_nano_usd" if look["unit"] == "usd" else ""
            assert look[f"held{money}"] == 0, f"a hold of nobody's under cap {look['cap_id']}"
            expected = sums.of(look["cap_id"], receipt, look["unit"])
            assert look[f"spent{money}"] == expected, f"the ledger says {expected}, the counter {look}"
            compared += 1
        sums.add(receipt)
    return compared


def check_answers(calls: Iterable[Call], rows: Sequence[Row], *, away: bool = False) -> None:
    """Every answer that came whole has its receipt, under the id that its client saw.

    `away`: the store was; then a call that was told so may have left none.
    """
    by_number, by_operation = grouped(rows), {row["operation_id"]: row for row in rows}
    for call in calls:
        assert not call.whole or call.operation_id is not None, f"a whole answer without an id: {call}"
        found = by_number.get(call.number, [])
        assert len(found) <= 1, f"{call.number} has {len(found)} receipts"
        if call.replayed:
            assert not found, f"{call.number} was answered with a kept answer and has a receipt"
            kept = by_operation.get(call.operation_id)
            assert kept is not None, f"{call.number} was answered with a kept answer that has no receipt"
            assert kept["status"] == "served", kept
            continue
        if call.whole and not (away and call.status == 503):
            assert found, f"{call.number} was answered whole ({call.status}) and has no receipt"
            if call.code == "provider_unreachable":
                expected: tuple[str, str | None] = ("failed", None)
            else:
                expected = ("served", None) if call.status == 200 else ("refused", call.code)
            assert (found[0]["status"], found[0]["refusal_code"]) == expected, call
        if found and call.operation_id is not None:
            assert found[0]["operation_id"] == call.operation_id


def lost(calls: Iterable[Call], rows: Iterable[Row]) -> int:
    """How many calls were answered whole with success and have no receipt."""
    known = {row["operation_id"] for row in rows}
    return sum(call.whole and call.status == 200 and call.operation_id not in known for call in calls)


def check_keys(calls: Iterable[Call], provider: DemoProviderProcess, earlier: set[str]) -> None:
    """What was asked under one idempotency key reached the provider once, kills or not."""
    keys = {call.number: call.key for call in calls if call.key is not None}
    entries = [entry for name, entry in provider.journal().items() if name not in earlier]
    received = Counter(keys[number] for entry in entries if (number := sent_as(entry)) in keys)
    assert all(count == 1 for count in received.values()), received.most_common(3)


def check_cut_off(rows: Iterable[Row], whole: set[str]) -> None:
    """A call that was cut off is abandoned, counted at its hold, and nobody had its answer."""
    for row in rows:
        if row["status"] == "abandoned":
            assert row["cost_nano_usd"] is None, row
            assert row["counted_nano_usd"] == row["hold_nano_usd"] > 0, row
            assert row["counted_tokens"] == row["hold_tokens"] > 0, row
            assert (row["unpriced_reason"], row["basis"]) == ("outcome_unknown", "estimated"), row
            assert number_of(row) not in whole, row


def check_journal(provider: DemoProviderProcess, rows: Sequence[Row], earlier: set[str]) -> dict[str, int]:
    """Every request that the provider received has a receipt, with the provider's own tokens where it was served.

    Sums in nano-USD: what was served and what the provider says of the same ids, its whole count, what is counted.
    """
    by_number = grouped(rows)
    received, totals = Counter[str](), Counter[str]()
    for request_id, entry in provider.journal().items():
        number = sent_as(entry)
        if request_id in earlier:
            continue
        totals["provider"] += charged(entry)
        if number is None:
            continue  # A probe; it was answered.
        received[number] += 1
        assert number in by_number, f"the provider received {number}; no receipt tells of it"
        row = by_number[number][0]
        assert row["status"] in ("served", "abandoned"), row
        if row["status"] == "served":
            assert request_id.removeprefix("req_") == re.split("[-_]", row["upstream_id"])[1]
            meters = ("input_tokens", "cache_read_tokens", "output_tokens")
            assert [row[meter] for meter in meters] == [entry[meter] for meter in meters], (row, entry)
            totals["provider_served"] += charged(entry)
            totals["served"] += row["cost_nano_usd"]
        assert row["counted_nano_usd"] >= charged(entry), (row, entry)
    assert not [number for number, count in received.items() if count > 1]
    totals["counted"] = sum(row["counted_nano_usd"] for row in rows)
    assert totals["served"] == totals["provider_served"], dict(totals)
    assert totals["provider"] <= totals["counted"], dict(totals)
    return dict(totals)


def charged(entry: Row) -> int:
    """The provider's own count of a request, in nano-USD."""
    meters = ("input_tokens", "cache_read_tokens", "output_tokens")
    prices = PROVIDERS_NANO_USD[entry["model"]]
    return sum(entry[meter] * price for meter, price in zip(meters, prices, strict=True))


def sent_as(entry: Row) -> str | None:
    """The call that the provider's journal tells of; None for a probe."""
    return next((name[7:] for name in entry["header_names"] if name.startswith("x-call-")), None)


def number_of(row: Row) -> str | None:
    """The call that a receipt tells of."""
    return next((tag[5:] for tag in row["tags"] if tag.startswith("call:")), None)


def grouped(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Receipts by the call that they tell of; a correction settles one and is not another."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["corrects"] is None and (number := number_of(row)) is not None:
            found.setdefault(number, []).append(row)
    return found
