"""The state machine of a call (docs/ledger.md), driven at random against the real stores.

After every step the ledger, its counters, its open intents and what clients and the provider saw must agree. A longer
search: `CAPLINE_MACHINE_EXAMPLES=20000 pytest tests/gateway/test_ledger_machine.py`.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.stores import committing
from tests.support.ledger_world import Call, World
from toolkit.core.chain import check_chain
from toolkit.core.windows import parse_instant, period_key

EXAMPLES = int(os.environ.get("CAPLINE_MACHINE_EXAMPLES", "20"))
BY_HAND = 10 * 1_000 + 1 * 4_000
"""What an operator's correction says that a call cost, in nano-USD."""
COUNTS = {"usd": "counted_nano_usd", "tokens": "counted_tokens"}
Step = tuple[str, dict[str, Any]]
"""A rule of the machine and what it is given."""
picks = st.integers(0, 99)
ends = st.sampled_from(["served"] * 4 + ["unknown usage", "400", "503", "500", "broken"])


class LedgerMachine(RuleBasedStateMachine):
    """One gateway, its calls, and everything that can happen to them."""

    world: World

    @initialize(armed=st.booleans())
    def begin(self, armed: bool) -> None:
        """A gateway with a cap that every call counts on."""
        self._folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self._folder.name))
        self.caps: list[dict[str, Any]] = []
        self.latest = self.world.clock()
        axes = {"limit_usd": "0.002", "request_limit": 30, "token_limit": 50_000}
        self._make_cap(armed=armed, scope="customer", subject="*", window="month", **axes)

    def teardown(self) -> None:
        """Close the gateway."""
        if hasattr(self, "world"):
            self.world.close()
            self._folder.cleanup()

    # ---- What happens to calls

    @rule(customer=st.sampled_from("ab"), stream=st.booleans(), output=st.integers(0, 60))
    def admit(self, customer: str, stream: bool, output: int) -> None:
        """A call, which may cost more than it holds."""
        self.world.run(self.world.admit(customer, output, stream=stream))

    @rule(pick=picks, how=ends)
    def finish(self, pick: int, how: str) -> None:
        """The provider's part of a call ends."""
        if opened := self._open():
            self.world.run(self.world.finish(_pick(opened, pick), how))

    @rule(pick=picks, how=ends, by_hand=st.booleans())
    def finish_late(self, pick: int, how: str, by_hand: bool) -> None:
        """It ends once the call is abandoned, perhaps after an operator has corrected it."""
        self.world.run(self.world.pass_time(901))
        if opened := self._open():
            call = _pick(opened, pick)
            if by_hand and not self.world.broken:
                rows = [row for row in self.world.run(self.world.rows()) if _number(row) == call.number]
                assert [self._correct(row) for row in rows if len(rows) == 1] in ([], [201])
            self.world.run(self.world.finish(call, how))

    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        """A client goes away."""
        if opened := self._open():
            self.world.run(self.world.leave(_pick(opened, pick)))

    @rule(seconds=st.sampled_from([1, 200, 600, 901, 6_000, 90_000]))
    def pass_time(self, seconds: int) -> None:
        """Calls grow older: past CAPLINE_DRAIN_S, CAPLINE_HOLD_TTL_S, a day."""
        self.world.run(self.world.pass_time(seconds))

    @rule(hours=st.sampled_from([-50, -3, -1, 1, 3, 50, 800]))
    def step_the_clock(self, hours: int) -> None:
        """The wall clock alone jumps."""
        self.world.clock.advance(hours=hours)

    @precondition(lambda self: not self.world.broken and self.world.calls)
    @rule(pick=picks, twice=st.booleans())
    def correct(self, pick: int, twice: bool) -> None:
        """An operator corrects whatever there is: only a call without a cost can be, and once."""
        rows = self.world.run(self.world.rows())
        if not rows:
            return
        row = _pick(rows, pick)
        corrected = {one["corrects"] for one in rows}
        can = (
            row["cost_nano_usd"] is None and row["status"] != "refused" and row["receipt_id"] not in corrected
        )
        assert self._correct(row) == (201 if can else 409)
        if twice:
            assert self._correct(row) == 409

    @precondition(lambda self: not self.world.broken and self.world.calls)
    @rule(pick=picks)
    def settle_again(self, pick: int) -> None:
        """Settlement is idempotent by receipt id."""
        rows = self.world.run(self.world.rows())
        if rows:
            counters = self.world.gateway.running.services.ledger.counters
            assert counters.release(_pick(rows, pick)["receipt_id"]) is None

    # ---- What happens to the gateway

    @rule()
    def break_the_disk(self) -> None:
        """From here on nothing can be written."""
        self.world.broken = True

    @precondition(lambda self: self.world.broken)
    @rule()
    def mend_the_disk(self) -> None:
        """It can be written again."""
        self.world.run(self.world.mend())

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        """The gateway is stopped, or dies, and starts again."""
        if not kill:
            self.world.run(self.world.mend())
        self.world.clock.at = self.latest  # a clock that was behind has been put right
        self.world.run(self.world.restart(kill=kill))

    @precondition(lambda self: not self.world.broken and len(self.caps) < 5)
    @rule(
        scope=st.sampled_from(["organization", "customer"]),
        window=st.sampled_from(["day", "week", "month", "never"]),
        axis=st.sampled_from([{"limit_usd": "0.005"}, {"request_limit": 30}, {"token_limit": 50_000}]),
        armed=st.booleans(),
        admission=st.sampled_from(["reserve", "floor", "after"]),
    )
    def make_cap(self, scope: str, window: str, axis: dict[str, Any], armed: bool, admission: str) -> None:
        """A cap in mid-period."""
        subject = "default" if scope == "organization" else "*"
        self._make_cap(armed=armed, scope=scope, subject=subject, window=window, admission=admission, **axis)

    @precondition(lambda self: not self.world.broken and len(self.caps) > 1)
    @rule(pick=picks)
    def delete_cap(self, pick: int) -> None:
        """A cap goes; what was spent stays in the ledger."""
        cap = _pick(self.caps, pick)
        deleted = self.world.run(
            self.world.harness.api("DELETE", f"/api/caps/{cap['id']}", if_match=str(cap["version"]))
        )
        assert deleted.status_code == 204, deleted.text
        self.caps.remove(cap)

    # ---- What must be so

    @invariant()
    def the_ledger_is_true(self) -> None:
        """After every step, unless the disk is away: then as soon as it is back."""
        if not hasattr(self, "world") or self.world.broken:
            return
        self.world.run(self.world.turn())
        rows = self.world.run(self.world.rows())
        self._every_call_has_its_rows(rows)
        self._rows_are_in_order(rows)
        self._counters_are_the_ledger(rows)

    def _every_call_has_its_rows(self, rows: list[dict[str, Any]]) -> None:
        corrections = {row["corrects"]: row for row in rows if row["corrects"] is not None}
        assert len(corrections) == sum(row["corrects"] is not None for row in rows)
        first: dict[int, dict[str, Any]] = {}
        for row in rows:
            if row["corrects"] is None:
                number = _number(row)
                assert number not in first, "one call, one receipt"
                first[number] = row
        receipt_ids = {row["receipt_id"]: row for row in first.values()}
        assert corrections.keys() <= receipt_ids.keys()
        open_intents = {intent["receipt_id"] for intent in self.world.run(self.world.intents())}
        running = {key for key, _ in self.world.gateway.running.services.ledger.counters.running()}
        assert open_intents == running, "a call has an open intent as long as it holds"
        assert not open_intents & receipt_ids.keys()
        for call in self.world.calls:
            row = first.get(call.number)
            if row is None:
                assert call.runs or not (call.end and call.client.ended), "what a client has is in the ledger"
                assert call.runs or not self._called(call), "what a provider got is in the ledger"
                continue
            assert parse_instant(row["admitted_at"]) == call.admitted_at, "a row lies in its call's period"
            final = corrections.get(row["receipt_id"], row)
            assert final["admitted_at"] == row["admitted_at"]
            _agrees(call, row, final)

    def _called(self, call: Call) -> bool:
        return any(f'"user": "{call.number}"'.encode() in seen.body for seen in self.world.provider.seen)

    def _rows_are_in_order(self, rows: list[dict[str, Any]]) -> None:
        assert check_chain(rows) == []
        steps = [row[name] for row in rows for name in ("admit_seq", "settle_seq") if row[name] is not None]
        assert len(set(steps)) == len(steps), "no step of the counters is taken twice"
        for row in rows:
            if row["admit_seq"] is not None and row["settle_seq"] is not None:
                assert row["admit_seq"] < row["settle_seq"]

    def _counters_are_the_ledger(self, rows: list[dict[str, Any]]) -> None:
        ledger, now = self.world.gateway.running.services.ledger, self.world.clock()
        corrected = {row["receipt_id"]: row for row in rows}
        self.latest = max(self.latest, now)
        if not ledger.steadiness.knows(now):
            return  # the clock was put back to before the start: armed caps refuse
        for cap in self.caps:
            period = period_key(cap["window"], now)
            self._counters_of(cap, period, rows, corrected)

    def _counters_of(
        self, cap: dict[str, Any], period: str, rows: list[dict[str, Any]], corrected: dict[str, Any]
    ) -> None:
        ledger = self.world.gateway.running.services.ledger
        subject = "organization" if cap["scope"] == "organization" else "customer"
        for unit in _axes(cap):
            spent: Counter[str] = Counter()
            held: Counter[str] = Counter()
            for row in rows:
                if period_key(cap["window"], parse_instant(row["admitted_at"])) == period:
                    spent[row[subject]] += _counted(row, unit, corrected)
            for _, facts in ledger.counters.running():
                if period_key(cap["window"], facts.at) == period:
                    who = facts.who.customer if subject == "customer" else facts.who.organization
                    held[str(who)] += {"usd": facts.hold_nano_usd or 0, "tokens": facts.hold_tokens}.get(
                        unit, 1
                    )
            for key in tuple(ledger.counters.keys()):
                if (key.scope, key.period, key.unit) == (cap["scope"], period, unit):
                    assert ledger.counters.balance(key).spent == spent.pop(key.subject, 0) >= 0, key
                    assert ledger.counters.balance(key).held == held.pop(key.subject, 0), key
            assert not +spent, (cap, "spent, and no counter knows")
            assert not +held, (cap, "held, and no counter knows")

    # ---- Helpers

    def _open(self) -> list[Call]:
        return [call for call in self.world.calls if call.runs and call.end is None]

    def _correct(self, row: dict[str, Any]) -> int:
        usage = {"usage": {"input_tokens": 10, "output_tokens": 1}, "reason": "invoice"}
        path = f"/api/receipts/{row['receipt_id']}/correct"
        return self.world.run(self.world.harness.api("POST", path, usage)).status_code

    def _make_cap(self, **fields: Any) -> None:
        self.world.clock.at = max(self.latest, self.world.clock())
        self.caps.append(self.world.run(self.world.harness.make_cap(**fields)))


def _agrees(call: Call, row: dict[str, Any], final: dict[str, Any]) -> None:
    """A receipt and what its client and its provider saw."""
    by_hand = final is not row and final["cost_nano_usd"] == BY_HAND
    if call.whole and call.end == "served" and not by_hand:
        assert (final["status"], final["cost_nano_usd"]) == ("served", call.cost), "delivered, and priced"
    if final["status"] == "served" and final["cost_nano_usd"] is not None and not by_hand:
        assert (call.end, final["cost_nano_usd"]) == ("served", call.cost)
    if final["status"] == "failed":
        assert call.end in ("400", "503")
        assert (final["cost_nano_usd"], row["counted_nano_usd"] + _more(row, final)) == (0, 0)
    if row["status"] == "abandoned":
        assert row["cost_nano_usd"] is None
        assert row["counted_nano_usd"] >= row["hold_nano_usd"]
    if call.end == "served" and row["status"] != "refused" and not by_hand:
        assert row["counted_nano_usd"] + _more(row, final) >= min(call.cost, row["hold_nano_usd"])


def _more(row: dict[str, Any], final: dict[str, Any]) -> int:
    return 0 if final is row else int(final["counted_nano_usd"])


def _counted(row: dict[str, Any], unit: str, rows: dict[str, dict[str, Any]]) -> int:
    """What a row adds to a counter of a unit."""
    if unit in COUNTS:
        return int(row[COUNTS[unit]])
    if row["corrects"] is None:
        return int(row["status"] in ("served", "abandoned"))
    return -int(row["status"] == "failed" and rows[row["corrects"]]["status"] in ("served", "abandoned"))


def _axes(cap: dict[str, Any]) -> list[str]:
    limits = {"usd": "limit_nano_usd", "tokens": "token_limit", "requests": "request_limit"}
    return [unit for unit, limit in limits.items() if cap[limit] is not None]


def _number(row: dict[str, Any]) -> int:
    return int(next(tag for tag in row["tags"] if tag.startswith("call:")).removeprefix("call:"))


def _pick(items: list[Any], pick: int) -> Any:
    return items[pick % len(items)]


DAY_CAP: Step = (
    "make_cap",
    {
        "scope": "customer",
        "window": "day",
        "axis": {"request_limit": 30},
        "armed": True,
        "admission": "reserve",
    },
)
YEARS: Step = (
    "make_cap",
    {
        "scope": "organization",
        "window": "never",
        "axis": {"token_limit": 50_000},
        "armed": False,
        "admission": "floor",
    },
)
CALL: Step = ("admit", {"customer": "a", "stream": False, "output": 7})
STREAM: Step = ("admit", {"customer": "b", "stream": True, "output": 7})
WALKS: dict[str, list[Step]] = {
    "a kill while calls run": [CALL, STREAM, ("restart", {"kill": True})],
    "a stop while calls run": [CALL, STREAM, ("restart", {"kill": False})],
    "a late answer": [CALL, ("finish_late", {"pick": 0, "how": "served", "by_hand": False})],
    "a late stream": [STREAM, ("finish_late", {"pick": 0, "how": "served", "by_hand": False})],
    "a late no": [CALL, ("finish_late", {"pick": 0, "how": "400", "by_hand": False})],
    "a late no in a stream": [STREAM, ("finish_late", {"pick": 0, "how": "broken", "by_hand": False})],
    "a late answer after an operator": [CALL, ("finish_late", {"pick": 0, "how": "served", "by_hand": True})],
    "a cap while calls run": [CALL, STREAM, DAY_CAP, YEARS, ("finish", {"pick": 0, "how": "served"})],
    "a cap while a call is late": [
        CALL,
        ("pass_time", {"seconds": 901}),
        DAY_CAP,
        ("finish", {"pick": 0, "how": "400"}),
    ],
    "an end that the ledger does not take": [
        CALL,
        ("break_the_disk", {}),
        ("finish", {"pick": 0, "how": "served"}),
        ("mend_the_disk", {}),
    ],
    "a late end that the ledger does not take": [
        CALL,
        ("pass_time", {"seconds": 901}),
        ("break_the_disk", {}),
        ("finish", {"pick": 0, "how": "served"}),
        ("mend_the_disk", {}),
    ],
    "a late no that the ledger does not take": [
        CALL,
        ("pass_time", {"seconds": 901}),
        ("break_the_disk", {}),
        ("finish", {"pick": 0, "how": "503"}),
        ("mend_the_disk", {}),
        ("restart", {"kill": True}),
    ],
    "a call while the ledger is away, and a kill": [
        ("break_the_disk", {}),
        STREAM,
        ("restart", {"kill": True}),
    ],
    "a late end of a month that is over": [
        YEARS,
        CALL,
        ("step_the_clock", {"hours": 50}),
        ("restart", {"kill": False}),
        CALL,
        ("pass_time", {"seconds": 901}),
        ("step_the_clock", {"hours": 800}),
        ("finish", {"pick": 1, "how": "served"}),
        ("restart", {"kill": True}),
    ],
    "an unknown outcome corrected twice": [
        CALL,
        ("finish", {"pick": 0, "how": "unknown usage"}),
        ("correct", {"pick": 0, "twice": True}),
        ("settle_again", {"pick": 0}),
        ("restart", {"kill": True}),
    ],
    "a client that leaves": [STREAM, ("leave", {"pick": 0}), ("pass_time", {"seconds": 600})],
}
"""Each goes through one transition of docs/ledger.md that a short search may miss."""


@pytest.mark.parametrize("armed", [True, False])
@pytest.mark.parametrize("walk", WALKS)
def test_every_transition_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walk: str, armed: bool
) -> None:
    monkeypatch.setattr(committing, "RETRY_S", 0.02)
    machine = LedgerMachine()
    machine.begin(armed=armed)
    try:
        for name, given in WALKS[walk]:
            getattr(machine, name)(**given)
            machine.the_ledger_is_true()
    finally:
        machine.teardown()


def test_whatever_happens_the_ledger_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "RETRY_S", 0.02)
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=25,
            deadline=timedelta(seconds=60),
            suppress_health_check=list(HealthCheck),
        ),
    )
