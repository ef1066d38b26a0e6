"""Rollups are the receipts of their days: in every report, for every counter, after corrections and restarts."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from gateway.stores import closed_sums, reports, rollups
from gateway.stores.appending import Appender
from gateway.stores.balances import spent_by_key
from gateway.stores.database import open_database
from gateway.stores.ledger_check import check_ledger
from gateway.stores.reports import Page
from gateway.stores.sources import RECEIPTS, ROLLUPS
from tests.support.gateway import Harness, running_gateway
from tests.support.provider import Reply
from tests.support.stores import stores
from toolkit.core.caps import EACH, Cap, CapBook, Match
from toolkit.core.receipts import Receipt

NOON = datetime.fromisoformat("2026-12-01T12:00:00Z")
EVERYTHING = Page(limit=10_000)
LARGE = 2**53

calls = st.fixed_dictionaries(
    {
        "after": st.integers(0, 80 * 3600 * 1_000_000),
        "customer": st.sampled_from([None, "ann", "bob"]),
        "run": st.sampled_from([None, "job-1"]),
        "tags": st.sampled_from([(), ("agent:a",), ("agent:b", "team:x")]),
        "model_requested": st.sampled_from(["m-small", "m-large"]),
        "status": st.sampled_from(["served", "abandoned", "refused", "failed", "unpriced"]),
        "input_tokens": st.one_of(st.none(), st.integers(0, LARGE)),
        "output_tokens": st.one_of(st.none(), st.integers(0, LARGE)),
        "amount": st.integers(0, LARGE),
        "price_list": st.sampled_from([None, "one", "two"]),
        "node": st.sampled_from(["n1", "n2"]),
        "corrected": st.booleans(),
    }
)


def receipts_of(drawn: list[dict[str, Any]]) -> list[Receipt]:
    """Receipts in the order of the ledger; a call without a cost may be followed by its correction."""
    made: list[Receipt] = []
    for number, call in enumerate(drawn):
        at = NOON + timedelta(microseconds=call.pop("after"))
        amount, status, corrected = call.pop("amount"), call.pop("status"), call.pop("corrected")
        unpriced = status in ("unpriced", "abandoned")
        common = {
            **call,
            "operation_id": f"op_{number}",
            "admitted_at": at,
            "settled_at": at,
            "organization": "default",
            "dialect": "openai",
            "route": "/v1/chat/completions",
            "request_bytes": 1,
        }
        first = Receipt(
            **common,
            receipt_id=f"rc_{number}",
            status="served" if status == "unpriced" else status,
            cost_nano_usd=None if unpriced or status == "refused" else 0 if status == "failed" else amount,
            counted_nano_usd=0 if status in ("refused", "failed") else amount,
            counted_tokens=0 if status in ("refused", "failed") else amount % 1000,
            unpriced_reason="usage_missing" if unpriced else None,
        )
        made.append(first)
        if unpriced and corrected:
            made.append(
                Receipt(
                    **{**common, "output_tokens": 7},
                    receipt_id=f"rc_{number}_again",
                    status="served",
                    cost_nano_usd=amount // 2,
                    counted_nano_usd=amount // 2 - amount,
                    counted_tokens=7 - amount % 1000,
                    corrects=first.receipt_id,
                )
            )
    return made


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(calls, max_size=25), cut=st.integers(0, 30))
def test_rollups_are_the_receipts_whatever_happened(
    tmp_path: Path, drawn: list[dict[str, Any]], cut: int
) -> None:
    made = receipts_of(drawn)
    database = open_database(stores.url(tmp_path))
    try:
        with database.engine.connect() as connection:
            for part in (made[:cut], made[cut:]):
                Appender().append(connection, [(receipt, None) for receipt in part])
            found = check_ledger(connection, "default", CapBook(), {}, NOON)
            assert found.difference is None
            for window in ("day", "month", "never"):
                by = ("customer", "model", "status", "run", "price_list", "node")
                both = [_spend(connection, source, by, window) for source in (RECEIPTS, ROLLUPS)]
                assert both[0] == both[1]
            before = {
                day: sorted(map(str, rollups.kept(connection, "default", day))) for day in _days(connection)
            }
            rollups.build(connection)
            after = {
                day: sorted(map(str, rollups.kept(connection, "default", day))) for day in _days(connection)
            }
            assert before == after
            connection.rollback()
    finally:
        database.close()


CAPS = tuple(
    Cap(id=number, scope=scope, subject=subject, match=match, window=window, **limits)
    for number, (scope, subject, match, window) in enumerate(
        [
            ("organization", "default", Match(), "never"),
            ("customer", EACH, Match(), "month"),
            ("customer", "ann", Match(), "year"),
            ("customer", EACH, Match(provider="*", model="*"), "month"),
            ("organization", "default", Match(tag="agent:*"), "year"),
            ("run", EACH, Match(model="m-small"), "never"),
            ("customer", EACH, Match(tag="team:x"), "day"),
        ]
    )
    for limits in ({"limit_nano_usd": 1, "token_limit": 1, "request_limit": 1},)
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn=st.lists(calls, max_size=25),
    cuts=st.lists(st.integers(0, 30), min_size=2, max_size=2).map(sorted),
    hours=st.lists(st.integers(-30, 300), min_size=3, max_size=3),
    meanwhile=st.booleans(),
)
def test_what_is_kept_of_closed_days_is_what_their_rollups_give(
    tmp_path: Path, drawn: list[dict[str, Any]], cuts: list[int], hours: list[int], meanwhile: bool
) -> None:
    """Also when receipts come late, after the sums were kept or while they were being read."""
    made = receipts_of(drawn)
    database = open_database(stores.url(tmp_path))
    try:
        with database.engine.connect() as connection:
            appender = Appender()
            parts = (made[: cuts[0]], made[cuts[0] : cuts[1]], made[cuts[1] :])
            for part, after in zip(parts, hours, strict=True):
                at = NOON + timedelta(hours=after)
                read = [spent_by_key(connection, "default", cap, at) for cap in CAPS] if meanwhile else []
                appender.append(connection, [(receipt, None) for receipt in part])
                for cap in CAPS:
                    must = spent_by_key(connection, "default", cap, at, from_rollups=True)
                    found = spent_by_key(connection, "default", cap, at)
                    assert found.by_key == must.by_key
                    read.append(found)
                for spent in reversed(read):  # what was read before the receipts came is kept last
                    if spent.closed is not None:
                        closed_sums.keep(connection, spent.closed)
                assert check_ledger(connection, "default", CapBook(), {}, at).difference is None
            connection.rollback()
    finally:
        database.close()


def test_kept_sums_that_were_changed_are_seen(tmp_path: Path) -> None:
    call = {"after": 0, "customer": "ann", "status": "served", "amount": 70, "corrected": False, "node": "n1"}
    blank = dict.fromkeys(("run", "input_tokens", "output_tokens", "price_list"))
    made = receipts_of([{**call, **blank, "tags": (), "model_requested": "m-small"}])
    at = NOON + timedelta(days=9)
    database = open_database(stores.url(tmp_path))
    with database.engine.begin() as connection:
        Appender().append(connection, [(receipt, None) for receipt in made])
        closed = spent_by_key(connection, "default", CAPS[1], at).closed
        assert closed is not None
        closed_sums.keep(connection, closed)
        assert spent_by_key(connection, "default", CAPS[1], at).closed is None
        assert check_ledger(connection, "default", CapBook(), {}, at).difference is None
        connection.execute(text("UPDATE closed_sums SET sums = replace(sums, '70', '71')"))
        found = check_ledger(connection, "default", CapBook(), {}, at).difference
        assert (
            found == "what is kept of the closed days of 2026-12 by customer is not what their rollups give"
        )
    database.close()


def _days(connection: Any) -> list[int]:
    return rollups.days_of(connection, "default")


def _spend(connection: Any, source: Any, by: tuple[str, ...], window: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "source_of", lambda part: source)
        customers = reports.customers(connection, "default", (None, None), EVERYTHING)
        total = reports.customers_total(connection, "default", (None, None))
        unpriced = reports.unpriced(connection, "default", (None, None), EVERYTHING)
        rows = reports.spend(connection, "default", by, window, (None, None), EVERYTHING)
        return sorted(map(str, rows)), customers, total, unpriced


async def test_the_check_finds_what_was_changed_behind_the_gateways_back(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        await gateway.make_cap(limit_usd="5")
        for customer in ("ann", "bob"):
            await gateway.chat(customer=customer)
        await _agrees(gateway)
        for statement, words in (
            ("UPDATE rollups SET cost_nano_usd = cost_nano_usd + 1", "cost_nano_usd"),
            ("UPDATE rollups SET customer = 'eve' WHERE customer = 'ann'", "customer"),
            ("DELETE FROM rollups WHERE customer = 'ann'", "lack a row"),
            ("UPDATE receipts SET counted_nano_usd = 0 WHERE customer = 'ann'", "counted_nano_usd"),
            ("DELETE FROM receipts WHERE customer = 'ann'", "has no receipts"),
            ("UPDATE chain_heads SET chain_seq = 9", "its head says 9"),
        ):
            with changed(tmp_path, statement):
                found = (await gateway.api("GET", "/api/ledger/check")).json()
                assert not found["ok"]
                assert words in found["difference"]
        await _agrees(gateway)
        counters = gateway.gateway.running.services.ledger.counters
        counters.adjust(next(iter(counters.keys())), 1)
        found = (await gateway.api("GET", "/api/ledger/check")).json()
        assert "a counter of cap 1 in 2026-12 took" in found["difference"]


async def test_reports_and_counters_are_right_after_a_correction(gateway: Harness) -> None:
    await gateway.make_cap(limit_usd="5", request_limit=100)
    gateway.provider.script = lambda seen: Reply(body=b'{"id": "x", "model": "m-small"}')
    await gateway.chat(customer="ann")
    (receipt,) = await gateway.receipts()
    sent = {"usage": {"input_tokens": 10, "output_tokens": 5}, "reason": "the provider says"}
    made = await gateway.api("POST", f"/api/receipts/{receipt['receipt_id']}/correct", sent)
    assert made.status_code == 201, made.text
    await _agrees(gateway)


async def _agrees(gateway: Harness) -> None:
    found = (await gateway.api("GET", "/api/ledger/check")).json()
    assert (found["ok"], found["difference"]) == (True, None)
    assert found["rollups"]
    assert found["counters"]


class changed:
    """A change of the database that is taken back."""

    def __init__(self, folder: Path, statement: str) -> None:
        self._engine = create_engine(stores.url(folder))
        self._statement = statement

    def __enter__(self) -> None:
        self._kept = {}
        with self._engine.begin() as connection:
            for table in ("rollups", "receipts", "chain_heads"):
                rows = connection.execute(text(f"SELECT * FROM {table}")).mappings().all()
                self._kept[table] = [dict(row) for row in rows]
            connection.execute(text(self._statement))

    def __exit__(self, *_: object) -> None:
        with self._engine.begin() as connection:
            for table, rows in self._kept.items():
                connection.execute(text(f"DELETE FROM {table}"))
                names = list(rows[0])
                places = ", ".join(f":{name}" for name in names)
                connection.execute(text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"), rows)
        self._engine.dispose()
