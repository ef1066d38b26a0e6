"""A month of receipts as the gateway would have left it: seeded, deterministic, every figure by the kernel.

`synth_world` is the cast, `synth_traffic` what it does, `synth_desk` what the gateway makes of it; here they
meet, in the order of time and with calls overlapping. Hashes are null: whoever loads the rows into a ledger
chains them.

    python -m toolkit.synth --out data/sample/receipts.parquet
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random

import polars as pl

from toolkit.core.caps import Cap
from toolkit.core.money import NANO_PER_USD
from toolkit.core.pricefile import load_price_folder
from toolkit.core.pricing import PriceList
from toolkit.core.receipts import Receipt
from toolkit.frames import RECEIPT_SCHEMA
from toolkit.synth_desk import ORGANIZATION, Desk, Running
from toolkit.synth_traffic import MONTH, Session, go_on, next_request, sessions
from toolkit.synth_world import MONTH_START

SEED = 20261101
CUSTOMERS = 200
RECEIPTS = 100_000
DAILY_LIMIT = 25 * NANO_PER_USD
ARMED_AT = datetime(2026, 11, 20, 9, tzinfo=UTC)

CapTimeline = tuple[tuple[datetime, tuple[Cap, ...]], ...]
"""Sets of caps, each with the instant from which it was in force."""

_PRICES = Path(__file__).resolve().parent.parent / "data" / "prices"


def generate(
    *,
    seed: int = SEED,
    customers: int = CUSTOMERS,
    receipts: int = RECEIPTS,
    lists: Iterable[PriceList],
    daily_limit_nano_usd: int = DAILY_LIMIT,
) -> Iterator[Receipt]:
    """About `receipts` receipts of November 2026, in the order in which a ledger would have committed them.

    A month of fewer receipts spends less: give it a lower daily limit, or nobody will reach it.
    """
    rng = Random(seed)
    desk = Desk(rng, tuple(lists), cap_timeline(daily_limit_nano_usd))
    starts = sessions(rng, customers=customers, receipts=receipts)
    events: list[tuple[int, int, Session | Running]] = [
        (at, number, session) for number, (at, session) in enumerate(starts)
    ]
    heapify(events)
    number, last = len(events), -1
    while events:
        at, _, event = heappop(events)
        if isinstance(event, Running):
            yield desk.settle(event)
            session, request, refused = event.session, event.request, None
        elif at >= MONTH:
            continue
        else:
            session = event
            request = next_request(rng, session)
            at = last = max(at, last + 1)  # No two calls share an instant, so ids sort as the calls came.
            outcome = desk.admit(session, request, at)
            number += 1
            if isinstance(outcome, Running):
                heappush(events, (outcome.ends, number, outcome))
                continue
            yield outcome
            refused = outcome.refusal_code
        pause = go_on(rng, session, request, refused)
        if pause is not None:
            number += 1
            heappush(events, (at + pause, number, session))


def cap_timeline(daily_limit_nano_usd: int = DAILY_LIMIT) -> CapTimeline:
    """The caps of the month: one that watches the whole organization, and each customer's limit a day.

    The second is armed at `ARMED_AT`. It serves models without a price.
    """
    created = datetime(2026, 10, 28, 14, 30, tzinfo=UTC)
    watching = (
        Cap(
            id=1,
            name="Whole organization",
            scope="organization",
            subject=ORGANIZATION,
            window="month",
            limit_nano_usd=5_000 * NANO_PER_USD,
            created_at=created,
            updated_at=created,
            updated_by="admin",
        ),
        Cap(
            id=2,
            name="Each customer a day",
            scope="customer",
            subject="*",
            window="day",
            limit_nano_usd=daily_limit_nano_usd,
            unpriced="serve",
            created_at=created,
            updated_at=created,
            updated_by="admin",
        ),
    )
    armed = replace(watching[1], hard_stop=True, version=2, armed_at=ARMED_AT, updated_at=ARMED_AT)
    return ((MONTH_START, watching), (ARMED_AT, (watching[0], armed)))


def frame_of(receipts: Iterable[Receipt]) -> pl.DataFrame:
    """Receipts as a frame with `RECEIPT_SCHEMA`, in their order."""
    rows = list(receipts)
    columns = {name: [getattr(row, name) for row in rows] for name in RECEIPT_SCHEMA}
    columns["tags"] = [list(tags) for tags in columns["tags"]]
    columns["units"] = [None if units is None else json.dumps(dict(units)) for units in columns["units"]]
    return pl.DataFrame(columns, schema=RECEIPT_SCHEMA)


def facts_of(frame: pl.DataFrame) -> dict[str, int]:
    """The figures that a month's README states: rows, sums in nano-USD, rows by status and by reason."""
    facts = {"receipts": frame.height, "customers": frame["customer"].drop_nulls().n_unique()}
    for column in ("cost_nano_usd", "counted_nano_usd"):
        facts[column] = sum(frame[column].drop_nulls().to_list())
    facts["unpriced"] = frame.filter(pl.col("cost_nano_usd").is_null(), pl.col("status") != "refused").height
    for column in ("status", "refusal_code", "unpriced_reason", "price_list"):
        for value, rows in frame[column].drop_nulls().value_counts().sort(column).iter_rows():
            facts[f"{column} {value}"] = rows
    return facts


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the month to a Parquet file and its facts to standard output."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.synth", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the Parquet file to write")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--customers", type=int, default=CUSTOMERS)
    parser.add_argument("--receipts", type=int, default=RECEIPTS)
    parser.add_argument("--prices", type=Path, default=_PRICES, help="the folder of price lists")
    chosen = parser.parse_args(arguments)
    lists = load_price_folder(chosen.prices)
    frame = frame_of(
        generate(seed=chosen.seed, customers=chosen.customers, receipts=chosen.receipts, lists=lists)
    )
    recipe = {"seed": chosen.seed, "customers": chosen.customers, "receipts": chosen.receipts}
    recipe_text = json.dumps({**recipe, "price_lists": [prices.id for prices in lists]})
    frame.write_parquet(
        chosen.out, compression="zstd", compression_level=19, metadata={"capline.synth": recipe_text}
    )
    for name, value in facts_of(frame).items():
        sys.stdout.write(f"{name:<44}{value:>20,}\n")


if __name__ == "__main__":
    main()
