"""The ledger's database goes away under load and comes back: no wrong number, no lost receipt, no hand needed.

    python -m tests.campaigns.outage full --seed 1
    python -m tests.campaigns.outage silent --seconds 30

Prints what clients saw before, meanwhile, in the ten seconds after and later; then the books are held to that and to
the provider's own count, the gateway is killed, and its counters are compared once more. Exit code 1 and the first
difference when something does not agree.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import toolkit as tk
from tests.campaigns.outages import OUTAGES, Outage
from tests.conftest import POSTGRES_URL
from tests.support import books
from tests.support.load import Call, Load, Traffic
from tests.support.servers import DemoProviderProcess, GatewayProcess, demo_provider, running, until

CUSTOMERS = ("capped", "acme", "bolt", None)
CAPS: tuple[dict[str, Any], ...] = (
    {"scope": "organization", "limit_usd": "500", "armed": False},
    {
        "scope": "organization",
        "match": {"tag": "agent:*"},
        "window": "week",
        "limit_usd": "9",
        "armed": False,
    },
    {"scope": "customer", "subject": "*", "limit_usd": "5", "armed": False},
    {"scope": "customer", "subject": "*", "window": "day", "token_limit": 10**9, "armed": False},
    {"scope": "customer", "subject": "capped", "limit_usd": "500"},
    {"scope": "customer", "subject": "capped", "window": "day", "limit_usd": "500", "admission": "floor"},
    {"scope": "key", "subject": "*", "limit_usd": "500", "admission": "after", "armed": False},
)
SETTLING_S = 10.0


@dataclass(frozen=True)
class Phase:
    """The calls that began in one stretch of time."""

    name: str
    seconds: float
    calls: Sequence[Call]

    @property
    def p99_ms(self) -> float:
        """What the slowest hundredth of the answered calls waited at least."""
        return statistics.quantiles(self._waits, n=100)[98] if len(self._waits) > 1 else 0.0

    @property
    def _waits(self) -> list[float]:
        return [1000 * (call.ended - call.began) for call in self.calls if call.status is not None]

    def line(self) -> str:
        """One line of the table."""
        served = sum(call.whole and call.status == 200 for call in self.calls)
        refused = Counter(call.code for call in self.calls if call.code)
        broken = sum(not call.whole and not call.leaves for call in self.calls)
        p50 = statistics.median(self._waits) if self._waits else 0.0
        said = ", ".join(f"{count} {code}" for code, count in sorted(refused.items())) or "-"
        rate = len(self.calls) / self.seconds
        return f"{self.name:10} {rate:8.0f} {p50:8.1f} {self.p99_ms:8.1f} {served:7d} {broken:7d}  {said}"


HEAD = "phase       calls/s   p50 ms   p99 ms  served  broken  refused"


class Campaign:
    """One gateway, its provider, and one outage under load."""

    def __init__(
        self,
        provider: DemoProviderProcess,
        gateway: GatewayProcess,
        outage: Outage,
        *,
        seed: int,
        rate: float,
    ) -> None:
        self._provider, self._gateway, self._outage = provider, gateway, outage
        self._earlier = set(provider.journal())
        secrets = [gateway.secret, gateway.make_key()["key"]]
        self.traffic = Traffic(secrets, list(CUSTOMERS), rate, random.Random(seed), hurried=True)
        self._caps = [gateway.make_cap(**fields) for fields in CAPS]

    def run(self, before_s: float, away_s: float, after_s: float) -> list[Phase]:
        """Load through all of it; then wait until the ledger has taken in what was spooled."""
        marks = asyncio.run(self._under_load(before_s, away_s, after_s))
        began, away, back, settled, over = marks
        stretches = {
            "before": (began, away),
            "away": (away, back),
            "recovering": (back, settled),
            "after": (settled, over),
        }
        until(lambda: self._is_well(), "the ledger is back with all that was spooled", 60)
        calls = self.traffic.calls
        for call in calls:
            if call.began < away < call.ended:
                call.began = away  # it was caught by the outage
        return [
            Phase(name, end - start, [call for call in calls if start <= call.began < end])
            for name, (start, end) in stretches.items()
        ]

    async def _under_load(self, before_s: float, away_s: float, after_s: float) -> tuple[float, ...]:
        load = Load(self._gateway, self.traffic)
        await load.run(3, kill=False)  # connections, caches
        loading = asyncio.create_task(load.run(before_s + away_s + after_s, kill=False))
        began = time.monotonic()
        await asyncio.sleep(before_s)
        away = time.monotonic()
        await asyncio.to_thread(self._outage.begin)
        while time.monotonic() < away + away_s:
            await asyncio.to_thread(self._outage.tick)
            await asyncio.sleep(0.1)
        await asyncio.to_thread(self._outage.end)
        back = time.monotonic()
        await loading
        return began, away, back, back + SETTLING_S, time.monotonic()

    def check(self, folder: Path) -> str:
        """Hold the books to what was seen, before and after a kill; a line that says what was compared."""
        rows = self._gateway.receipts()
        calls = self.traffic.calls
        whole = {call.number for call in calls if call.whole and call.status == 200}
        assert len({row["receipt_id"] for row in rows}) == len(rows), "two receipts have one id"
        assert books.lost(calls, rows) == 0
        books.check_answers(calls, rows, away=True)
        books.check_cut_off(rows, whole)
        books.check_keys(calls, self._provider, self._earlier)
        totals = books.check_journal(self._provider, rows, self._earlier)
        self._check_counters(rows)
        path = folder / "export.jsonl"
        path.write_bytes(self._gateway.export())
        verdict = tk.verify([path])
        assert (verdict.faults, verdict.first_fault) == (0, None), verdict.first_fault
        self._gateway.kill()
        self._gateway.start()
        self._check_counters(self._gateway.receipts())
        unverified = sum(not row["verified"] for row in rows)
        return (
            f"{len(calls)} calls, {len(rows)} receipts, {unverified} of them spooled; lost 0, wrong 0; served"
            f" {totals['served']:,d} = the provider's; its whole {totals['provider']:,d} <= {totals['counted']:,d}"
        )

    def _check_counters(self, rows: Sequence[books.Row]) -> None:
        sums = books.Sums(self._caps, rows)
        assert books.check_counters(self._gateway, sums, self.traffic.secrets, CUSTOMERS) > 10
        agreed = self._gateway.api("GET", "/api/ledger/check").json()
        assert (agreed["ok"], agreed["difference"]) == (True, None), agreed

    def _is_well(self) -> bool:
        store = self._gateway.api("GET", "/health").json()["store"]
        return bool(store["state"] == "ok" and store["spooled"] == 0)


def check_phases(phases: Sequence[Phase]) -> None:
    """Meanwhile nothing under an armed cap was served and nothing broke for long; later all is as before."""
    before, away, _, after = phases
    refusing = [call for call in away.calls if call.customer == "capped" and call.status == 503]
    assert refusing, "nothing was refused while the store was away"
    for phase in (before, after):
        assert not any(call.status == 503 for call in phase.calls), f"refusals in phase {phase.name}"
    assert after.p99_ms <= 2 * before.p99_ms, f"p99 {before.p99_ms:.0f} ms, then {after.p99_ms:.0f} ms"


def main() -> int:
    """Run one outage and print its table; 1 when something did not agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.outage", description=__doc__)
    parser.add_argument("outage", choices=OUTAGES)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=150, help="calls a second")
    parser.add_argument("--postgres", default=POSTGRES_URL, help="where a schema may be made")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="capline-outage-") as name:
        folder = Path(name)
        with (
            demo_provider(folder / "provider") as provider,
            OUTAGES[chosen.outage](folder, chosen.postgres) as outage,
            running(folder, provider.url, CAPLINE_DATABASE_URL=outage.url, **outage.env) as gateway,
        ):
            print(f"{chosen.outage} for {chosen.seconds:g} s, seed {chosen.seed}\n{HEAD}", flush=True)
            campaign = Campaign(provider, gateway, outage, seed=chosen.seed, rate=chosen.rate)
            try:
                phases = campaign.run(15, chosen.seconds, SETTLING_S + 15)
                print("\n".join(phase.line() for phase in phases), flush=True)
                print(campaign.check(folder), flush=True)
                check_phases(phases)
            except AssertionError as error:
                print(
                    f"{chosen.outage}, seed {chosen.seed}: {error}\n\nthe gateway said:\n{gateway.log()[-4_000:]}"
                )
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
