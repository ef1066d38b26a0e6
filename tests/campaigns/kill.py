"""`kill -9` in the middle of mixed load, over and over: no delivered answer without its receipt, and counters, receipts
and the provider's own count agree to the nano-dollar (contract §10).

    python -m tests.campaigns.kill --store sqlite --kills 10 --seed 1
    python -m tests.campaigns.kill --store postgresql --kills 10 --seed 1

The seed decides the calls, their order and the instants of the kills; how far each call has come by then is the
machine's. Exit code 1 and the first difference when the books do not agree.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import toolkit as tk
from tests.conftest import POSTGRES_URL
from tests.support import books
from tests.support.load import FINAL, Call, Load, Traffic
from tests.support.servers import DemoProviderProcess, GatewayProcess, demo_provider, running
from tests.support.stores import KINDS, stores
from toolkit.core.chain import ChainCheck

CUSTOMERS = ("acme", "bolt", "zoë 12", "small", "tight", None)
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
    {"scope": "customer", "subject": "*", "limit_usd": "50"},
    {"scope": "customer", "subject": "*", "window": "day", "limit_usd": "50", "admission": "floor"},
    {"scope": "customer", "subject": "small", "limit_usd": "0.05", "admission": "floor"},
    {"scope": "customer", "subject": "tight", "limit_usd": "0.05"},
    {"scope": "customer", "subject": "acme", "window": "year", "limit_usd": "9", "armed": False},
    {"scope": "run", "subject": "*", "window": "never", "limit_usd": "50"},
    {"scope": "key", "subject": "*", "limit_usd": "50", "admission": "floor"},
)


@dataclass
class Campaign:
    """One gateway and its provider under load and kills; `table` has a line for each kill."""

    provider: DemoProviderProcess
    gateway: GatewayProcess
    seed: int
    rate: float
    calls: list[Call] = field(default_factory=list)
    table: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._earlier = set(self.provider.journal())
        secrets = [self.gateway.secret, self.gateway.make_key()["key"]]
        self.traffic = Traffic(secrets, list(CUSTOMERS), self.rate, self._random)
        self._caps = [self.gateway.make_cap(**fields) for fields in CAPS]
        self._chain, self._before = ChainCheck(), list[books.Row]()

    def kill(self, shortest_s: float, longest_s: float) -> None:
        """Load, kill at a random instant, start again, and hold the books to what was seen."""
        seconds = self._random.uniform(shortest_s, longest_s)
        calls = asyncio.run(Load(self.gateway, self.traffic).run(seconds, kill=True))
        self.gateway.start()
        rows = self.gateway.receipts()
        news = self._only_more(rows)
        cut_off = sum(row["status"] == "abandoned" for row in news)
        assert cut_off > 0, "the kill met no load"
        health = self.gateway.api("GET", "/health").json()
        assert health["closed_at_start"] == cut_off, health
        assert (health["counters"]["running"], health["counters"]["held_nano_usd"]) == (0, 0), health
        self._agree(rows, calls, seconds, cut_off)

    def go_on(self, seconds: float) -> None:
        """Load without a kill: counters that were read from the ledger have also counted live since then."""
        calls = asyncio.run(Load(self.gateway, self.traffic).run(seconds, kill=False))
        rows = self.gateway.receipts()
        self._only_more(rows)
        self._agree(rows, calls, seconds, 0)

    def verify(self, folder: Path) -> tk.Verification:
        """The verdict on the whole ledger's export, which must have no fault."""
        path = folder / "export.jsonl"
        path.write_bytes(self.gateway.export())
        verdict = tk.verify([path])
        assert (verdict.faults, verdict.first_fault) == (0, None), verdict.first_fault
        return verdict

    def kinds(self) -> Counter[tuple[str, str | None]]:
        """Answers that came whole, by kind of call and refusal code."""
        return Counter((call.kind, call.code) for call in self.calls if call.whole)

    def _only_more(self, rows: list[books.Row]) -> list[books.Row]:
        assert len({row["receipt_id"] for row in rows}) == len(rows), "two receipts have one id"
        assert rows[: len(self._before)] == self._before, "a receipt of before has changed"
        news = rows[len(self._before) :]
        self._before = rows
        for row in news:
            self._chain.see(row)
        assert self._chain.faults == []
        return news

    def _agree(self, rows: list[books.Row], calls: list[Call], seconds: float, cut_off: int) -> None:
        self.calls += calls
        whole = {call.number for call in self.calls if call.whole}
        books.check_answers(self.calls, rows)
        books.check_cut_off(rows, whole)
        books.check_keys(self.calls, self.provider, self._earlier)
        totals = books.check_journal(self.provider, rows, self._earlier)
        compared = books.check_counters(
            self.gateway, books.Sums(self._caps, rows), self.traffic.secrets, CUSTOMERS
        )
        assert compared > 50, f"only {compared} counters were compared"
        agreed = self.gateway.api("GET", "/api/ledger/check").json()
        assert (agreed["ok"], agreed["difference"]) == (True, None), agreed
        answered = sum(call.whole for call in calls)
        streams = sum(call.kind in FINAL for call in calls)
        lost, share = books.lost(calls, rows), 100 * streams // len(calls)
        sums = " ".join(f"{totals[name]:15,d}" for name in ("served", "provider", "counted"))
        self.table.append(
            f"{seconds:6.1f} {len(calls) / seconds:8.0f} {answered / seconds:10.0f} {share:6d}% {answered:8d}"
            f" {cut_off:7d} {lost:5d} {compared:8d} {sums}"
        )


HEAD = (
    "load s  calls/s answered/s streams answered cut off  lost counters"
    "          served        provider         counted"
)


@contextlib.contextmanager
def on_store(kind: str, server: str, folder: Path, provider_url: str) -> Iterator[GatewayProcess]:
    """A gateway with a new ledger of one kind."""
    with (
        stores.on(kind, server),
        running(folder, provider_url, CAPLINE_DATABASE_URL=stores.url(folder)) as gateway,
    ):
        yield gateway


def main() -> int:
    """Run a campaign and print its table; 1 when the books did not agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.kill", description=__doc__)
    parser.add_argument("--store", choices=KINDS, default="sqlite")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=240, help="calls a second")
    parser.add_argument("--postgres", default=POSTGRES_URL, help="where a schema may be made")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="capline-kill-") as folder,
        demo_provider(Path(folder) / "provider") as provider,
        on_store(chosen.store, chosen.postgres, Path(folder), provider.url) as gateway,
    ):
        campaign = Campaign(provider, gateway, chosen.seed, chosen.rate)
        print(
            f"{chosen.store}, {chosen.kills} kills, seed {chosen.seed}; the sums are nano-USD\n{HEAD}",
            flush=True,
        )
        try:
            for _ in range(chosen.kills):
                campaign.kill(4, 12)
                print(campaign.table[-1], flush=True)
            campaign.go_on(3)
            print(campaign.table[-1])
            rows = campaign.verify(Path(folder)).rows
        except AssertionError as error:
            print(f"seed {chosen.seed}, after {len(campaign.table)} kills: {error}")
            return 1
        replayed = sum(call.replayed for call in campaign.calls)
        print(
            f"{len(campaign.calls)} calls, {rows} receipts verified, {replayed} answered again by their keys; none lost"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
