"""What holds for every input: the kernel against naive models that say the contract in the plainest way."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from tests.toolkit.core.builders import AT, bring_to, call, caller, cap, prices, row
from toolkit.core.admission import claims_for, room_in, taken_by, verdict
from toolkit.core.caps import EACH, Cap, CapBook, Match
from toolkit.core.chain import canonical
from toolkit.core.conventions import anthropic_messages, openai_chat
from toolkit.core.counters import Counted, Counters
from toolkit.core.decisions import Admitted, Balance, BalanceKey, CallFacts, CapLook, Refused
from toolkit.core.estimate import CallBounds, estimate
from toolkit.core.money import (
    LARGEST_INTEGER,
    LARGEST_NANO_USD,
    limit_text,
    nano_down,
    nano_half_even,
    nano_up,
    parse_usd,
    usd_down,
    usd_text,
    usd_up,
)
from toolkit.core.pricing import Peak, Priced, PriceList, PriceRow, Unpriced, price
from toolkit.core.scopes import LONGEST_VALUE, MOST_FREE_TAGS, SCOPES, parse_tags
from toolkit.core.usage import METERS, PROMPT_METERS, Usage, UsageProblem
from toolkit.core.windows import (
    WINDOWS,
    Window,
    instant_text,
    parse_instant,
    period_at,
    period_key,
    seconds_until,
)

amounts = st.integers(0, LARGEST_NANO_USD)
small = st.integers(0, 12)
instants = st.datetimes(datetime(1, 1, 2), datetime(9990, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001

# --- money -------------------------------------------------------------------------------------


@given(amounts)
def test_an_amount_comes_back_from_its_text(nano: int) -> None:
    assert parse_usd(usd_text(nano), decimals=9) == nano
    assert parse_usd(limit_text(nano), decimals=9) == nano


@given(st.integers(-(10**24), 10**24), st.integers(1, 10**6))
def test_roundings_are_those_of_decimal(pico: int, parts: int) -> None:
    with localcontext(prec=60):
        nano = Decimal(pico) / 1000
        rounded = [int(nano.to_integral_value(how)) for how in (ROUND_HALF_EVEN, ROUND_CEILING, ROUND_FLOOR)]
    assert [nano_half_even(pico), nano_up(pico), nano_down(pico)] == rounded
    assert nano_half_even(Fraction(pico, parts)) == round(Fraction(pico, parts) / 1000)


@given(st.integers(-(10**19), 10**19))
def test_what_is_shown_never_flatters(nano: int) -> None:
    with localcontext(prec=60):
        exact = Decimal(nano).scaleb(-9)
        assert Decimal(usd_down(nano)) <= exact <= Decimal(usd_up(nano))
        assert Decimal(usd_up(nano)) - Decimal(usd_down(nano)) <= Decimal("0.000001")


# --- windows -----------------------------------------------------------------------------------


@given(instants, st.sampled_from(WINDOWS))
def test_every_instant_lies_in_its_period_and_periods_do_not_overlap(at: datetime, window: Window) -> None:
    period = period_at(window, at)
    assert period.window == window
    assert period_key(window, at) == period.key
    if period.start is None or period.end is None:
        assert window == "never"
        return
    assert period.start <= at < period.end
    assert period_at(window, period.start) == period
    assert period_at(window, period.end).start == period.end
    assert (period.start.hour, period.start.minute, period.start.second, period.start.microsecond) == (
        0,
        0,
        0,
        0,
    )
    wait = seconds_until(period.end, at)
    assert at + timedelta(seconds=wait) >= period.end > at + timedelta(seconds=wait - 1)


@given(instants)
def test_an_instant_comes_back_from_its_text(at: datetime) -> None:
    assert parse_instant(instant_text(at)) == at


# --- tags --------------------------------------------------------------------------------------

tag_bytes = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [b"customer:", b"project:", b"run:", b"agent:", b",", b" ", b"\xff", "ë".encode(), b"a" * 128]
        ),
    ),
    max_size=14,
).map(b"".join)


@given(st.lists(tag_bytes, max_size=3))
def test_any_bytes_are_tags_and_every_value_is_within_its_bounds(lines: list[bytes]) -> None:
    tags = parse_tags(lines)
    values = [tags.customer, tags.project, tags.run, *(tag.partition(":")[2] for tag in tags.free)]
    for value in values:
        assert value is None or (1 <= len(value) <= LONGEST_VALUE and "," not in value)
        assert value is None or any(value.encode() in line for line in lines)
    assert len(tags.free) <= MOST_FREE_TAGS
    assert not (tags.customer_invalid and tags.customer)


@given(st.text(min_size=1, max_size=LONGEST_VALUE).filter(lambda text: "," not in text), tag_bytes)
def test_r002_any_text_is_a_customer_and_what_follows_cannot_change_it(customer: str, rest: bytes) -> None:
    try:
        line = f"customer:{customer}".encode()
    except UnicodeEncodeError:
        return
    assert parse_tags([line + b"," + rest]).customer == customer


# --- usage -------------------------------------------------------------------------------------

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)
count = st.one_of(small, st.none(), json_values)
openai_raw = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": count,
        "completion_tokens": count,
        "total_tokens": st.one_of(st.integers(0, 40), count),
        "prompt_tokens_details": st.one_of(
            json_values,
            st.fixed_dictionaries(
                {},
                optional={
                    "cached_tokens": count,
                    "audio_tokens": count,
                    "cache_write_tokens": count,
                    "cache_write_tokens_details": st.one_of(
                        json_values, st.fixed_dictionaries({"ttl_12h_tokens": count})
                    ),
                },
            ),
        ),
        "completion_tokens_details": st.one_of(
            json_values,
            st.fixed_dictionaries({}, optional={"reasoning_tokens": count, "audio_tokens": count}),
        ),
    },
)
anthropic_raw = st.fixed_dictionaries(
    {},
    optional={
        "input_tokens": count,
        "output_tokens": count,
        "cache_read_input_tokens": count,
        "cache_creation_input_tokens": count,
        "cache_creation": st.one_of(
            json_values,
            st.fixed_dictionaries(
                {}, optional={"ephemeral_5m_input_tokens": count, "ephemeral_1h_input_tokens": count}
            ),
        ),
        "output_tokens_details": st.one_of(json_values, st.fixed_dictionaries({"thinking_tokens": count})),
        "server_tool_use": st.one_of(json_values, st.fixed_dictionaries({"web_search_requests": count})),
        "iterations": st.one_of(json_values, st.lists(st.fixed_dictionaries({"type": st.text(max_size=8)}))),
    },
)


@given(openai_raw)
def test_b62_openais_counts_are_conserved_and_never_negative(raw: dict[str, Any]) -> None:
    usage = openai_chat(raw)
    if isinstance(usage, UsageProblem):
        return
    assert all(tokens >= 0 for tokens in usage.meters().values())
    assert usage.prompt == raw["prompt_tokens"]
    total = raw.get("total_tokens")
    assert usage.tokens == (total if total is not None else raw["prompt_tokens"] + raw["completion_tokens"])


@given(anthropic_raw)
def test_b62_anthropics_counts_are_conserved_and_never_negative(raw: dict[str, Any]) -> None:
    usage = anthropic_messages(raw)
    if isinstance(usage, UsageProblem):
        return
    assert all(tokens >= 0 for tokens in usage.meters().values())
    split = raw.get("cache_creation") or {}
    created = raw.get("cache_creation_input_tokens")
    if created is None:
        created = sum(split.get(f"ephemeral_{ttl}_input_tokens") or 0 for ttl in ("5m", "1h"))
    read = raw.get("cache_read_input_tokens") or 0
    assert usage.tokens == raw["input_tokens"] + read + created + raw["output_tokens"]


@given(json_values)
def test_no_answer_of_a_provider_makes_a_convention_fail(raw: Any) -> None:
    for convention in (openai_chat, anthropic_messages):
        assert isinstance(convention(raw), Usage | UsageProblem)


# --- prices and bounds -------------------------------------------------------------------------

rate_texts = st.decimals(0, 200, places=6).map(lambda rate: format(rate, "f"))
full_rates = st.fixed_dictionaries(dict.fromkeys(METERS, rate_texts))
tokens = st.integers(0, 3_000)
usages = st.builds(Usage, **dict.fromkeys(METERS, st.one_of(st.none(), tokens)))


@given(usages)
def test_the_prompt_and_the_sum_are_those_of_the_meters(usage: Usage) -> None:
    meters = usage.meters()
    assert usage.prompt == sum(meters.get(meter, 0) for meter in PROMPT_METERS)
    assert usage.tokens == sum(meters.values())


@given(full_rates, usages)
def test_a_cost_is_the_exact_sum_rounded_once(rates: dict[str, str], usage: Usage) -> None:
    priced = price(prices(row("m", rates)), "openai", "m", usage, AT)
    assert isinstance(priced, Priced)
    with localcontext(prec=60):
        # USD per million tokens = micro-USD per token; × 1,000 = nano-USD
        exact = sum(
            (Decimal(rates[meter]) * 1000 * tokens for meter, tokens in usage.meters().items()), Decimal(0)
        )
        assert priced.cost_nano_usd == int(exact.to_integral_value(ROUND_HALF_EVEN))
    assert sum(line.quantity for line in priced.lines) == usage.tokens


@st.composite
def lists_of_one_model(draw: st.DrawFn) -> PriceList:
    rows: list[PriceRow] = [row("m", draw(full_rates), max_input_tokens=draw(st.integers(1, 3_000)))]
    if draw(st.booleans()):
        rows.append(row("m", draw(full_rates), prompt_above=draw(st.integers(0, 2_000))))
    if draw(st.booleans()):
        rows.append(row("m", draw(full_rates), tier="priority"))
    if draw(st.booleans()):
        rows.append(row("m", draw(full_rates), tier="priority us", prompt_from=draw(st.integers(1, 2_000))))
    if draw(st.booleans()):
        hour = draw(st.integers(0, 23))
        rows.append(row("m", draw(full_rates), peak=Peak(hours=((hour, hour + 1),))))
    return prices(*rows)


@given(
    lists_of_one_model(),
    st.integers(0, 3_000),
    st.integers(0, 200),
    st.integers(0, 50),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["standard", "priority", "priority us"]),
    st.data(),
)
def test_no_call_within_its_bounds_costs_more_than_its_hold(
    listed: PriceList,
    size: int,
    media: int,
    limit: int,
    choices: int,
    turns: int,
    tier: str,
    data: st.DataObject,
) -> None:
    body = CallBounds(
        body_bytes=size, text_bytes=size, media_tokens=media, output_limit=limit, choices=choices, turns=turns,
        tier=tier, prompt_meters=frozenset(PROMPT_METERS),
    )  # fmt: skip
    found = estimate(listed, "openai", "m", body, AT, default_output=4_096)
    assert found.hold_nano_usd is not None
    assert found.floor_nano_usd is not None

    left = found.input_tokens
    spent: dict[str, Any] = {}
    for meter in data.draw(st.permutations(PROMPT_METERS)):
        spent[meter] = data.draw(st.integers(0, left))
        left -= spent[meter]
    spoken = data.draw(st.integers(0, limit * choices))
    usage = Usage(**spent, output=limit * choices - spoken, audio_output=spoken)
    served = data.draw(
        st.sampled_from(["standard", "priority", "us", tier] if " " in tier else ["standard", tier])
    )
    at = AT.replace(hour=data.draw(st.integers(0, 23)))  # some providers price by the hour at which they end
    priced = price(listed, "openai", "m", usage, at, tier=served)
    if isinstance(priced, Unpriced):
        assert priced.reason == "no_list_price_for_service_tier"
    else:
        assert priced.cost_nano_usd <= found.hold_nano_usd
        assert usage.tokens <= found.hold_tokens


@given(
    lists_of_one_model(),
    st.integers(0, 3_000),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.integers(0, 9_000),
)
def test_the_output_that_fits_is_the_largest_whose_hold_fits(
    listed: PriceList, size: int, choices: int, room: int, room_tokens: int
) -> None:
    def held(limit: int) -> tuple[int, int]:
        body = CallBounds(body_bytes=size, text_bytes=size, output_limit=limit, choices=choices)
        found = estimate(listed, "openai", "m", body, AT, default_output=1)
        assert found.hold_nano_usd is not None
        return found.hold_nano_usd, found.hold_tokens

    body = CallBounds(body_bytes=size, text_bytes=size, output_limit=7, choices=choices)
    found = estimate(listed, "openai", "m", body, AT, default_output=1)
    fits = found.output_that_fits(nano_usd=room, tokens=room_tokens)
    if fits is not None:
        assert held(fits)[0] <= room
        assert held(fits)[1] <= room_tokens
    if fits != found.most_output_tokens:
        over = held((fits or 0) + 1)
        assert over[0] > room or over[1] > room_tokens


# --- the decision ------------------------------------------------------------------------------

caps = st.builds(
    lambda cap_id, scope, subject, limit, tokens, window, mode, armed, match: cap(
        cap_id, limit if limit is not None or tokens is not None else 5, scope=scope, token_limit=tokens,
        subject=subject if scope == "customer" else EACH, window=window, admission=mode, armed=armed, match=match,
    ),
    st.integers(1, 10**6),
    st.sampled_from(SCOPES),
    st.sampled_from([EACH, "ann", "bob"]),
    st.one_of(st.none(), small),
    st.one_of(st.none(), small),
    st.sampled_from(["month", "day", "never"]),
    st.sampled_from(["reserve", "floor", "after"]),
    st.booleans(),
    st.sampled_from([Match(), Match(model="m"), Match(model="*"), Match(tag="agent:*")]),
)  # fmt: skip
books = st.lists(caps, max_size=6, unique_by=lambda one: one.id).map(tuple)
balances = st.builds(Balance, small, small, small)
calls = st.builds(
    lambda who, hold, floor, tokens, floor_tokens: call(
        caller(who, project="p", run="r", tags=("agent:x",)),
        hold=hold, floor=floor, hold_tokens=tokens, floor_tokens=floor_tokens,
    ),
    st.sampled_from([None, "ann", "bob", EACH]),
    st.one_of(st.none(), small),
    small,
    small,
    small,
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """One cap on one axis, judged by the words of contract §7 and nothing else."""

    cap: Cap
    unit: str
    binds: bool
    room: str


def judge(book: tuple[Cap, ...], facts: CallFacts, state: dict[BalanceKey, Balance]) -> list[Judged]:
    over = {one.id: match for one, match in CapBook(book).matching(facts.who)}
    judged = []
    for one in book:
        if one.id not in over:
            continue
        replaced = one.scope == "customer" and one.subject == EACH and any(
            other.scope == "customer" and other.subject != EACH and other.subject == facts.who.customer
            and other.hard_stop and other.window == one.window and other.match == one.match and other.id in over
            for other in book
        )  # fmt: skip
        for unit, limit in one.limits:
            subject = facts.who.subject(one.scope)
            assert subject is not None
            key = BalanceKey(
                "default", one.scope, subject, over[one.id], period_key(one.window, facts.at), unit
            )
            spent, held, held_floor = state[key]
            hold, floor = facts.hold(unit), facts.floor(unit)
            if one.admission == "reserve":
                admits = spent + held < limit and spent + held + hold <= limit
                final = spent >= limit or spent + hold > limit
            elif one.admission == "floor":
                admits, final = spent + held_floor + floor < limit, True
            else:
                admits, final = spent < limit, True
            room = "fits" if admits else "final" if final else "busy"
            judged.append(Judged(one, unit, one.hard_stop and not replaced, room))
    return judged


@given(books, calls, st.data())
def test_a_store_grants_exactly_what_every_binding_cap_admits(
    book: tuple[Cap, ...], facts: CallFacts, data: st.DataObject
) -> None:
    claims = claims_for(CapBook(book), facts)
    state = {claim.key: data.draw(balances) for claim in claims}
    assert len(state) == len(claims)  # no counter is claimed twice
    counters = Counters()
    for claim in claims:
        bring_to(counters, claim, state[claim.key])
    grant = counters.reserve("a", facts, claims)
    decision = verdict(claims, grant.balances, grant.granted)

    judged = judge(book, facts, state)
    binding = [one for one in judged if one.binds]
    assert grant.granted is all(one.room == "fits" for one in binding)
    assert sorted((look.cap.id, look.unit, look.binds, look.room) for look in decision.looks) == sorted(
        (one.cap.id, one.unit, one.binds, one.room) for one in judged
    )
    if isinstance(decision, Refused):
        assert decision.busy is not any(one.room == "final" for one in binding)
        assert decision.named.binds
        assert decision.named.room == ("busy" if decision.busy else "final")
        assert_named_by_the_contract(decision.named, decision.looks)
    elif decision.named is not None:
        assert_named_by_the_contract(decision.named, decision.looks)


def assert_named_by_the_contract(named: CapLook, looks: tuple[CapLook, ...]) -> None:
    """No cap in the same case stands before the named one: dollars first, then headroom, scope and id."""
    rivals = [look for look in looks if look.binds and look.room == named.room]
    dollars = {look.cap.id: look for look in looks if look.binds and look.unit == "usd"}

    def place(look: CapLook) -> tuple[int, Fraction, int, int]:
        ranked = dollars.get(look.cap.id, look)
        if ranked.unit == "usd":
            return 0, Fraction(ranked.headroom), -SCOPES.index(look.cap.scope), look.cap.id
        return 1, Fraction(ranked.headroom, max(ranked.limit, 1)), -SCOPES.index(look.cap.scope), look.cap.id

    assert min(map(place, rivals)) == place(named)


@given(caps, balances, small, small)
def test_headroom_and_room_say_the_same(one: Cap, balance: Balance, hold: int, floor: int) -> None:
    (_, limit), *_ = one.limits
    own = {"reserve": hold, "floor": floor, "after": 0}[one.admission]
    headroom = limit - taken_by(one, balance) - own
    fits = room_in(one, limit, balance, hold, floor) == "fits"
    if one.admission == "reserve":
        assert fits is (headroom >= 0 and taken_by(one, balance) < limit)
    else:
        assert fits is (headroom > 0)


@given(books, calls)
def test_arming_or_raising_a_cap_never_moves_its_counter(book: tuple[Cap, ...], facts: CallFacts) -> None:
    changed = tuple(replace(one, hard_stop=not one.hard_stop, name="other", version=2) for one in book)
    before = [claim.key for claim in claims_for(CapBook(book), facts)]
    assert [claim.key for claim in claims_for(CapBook(changed), facts)] == before


# --- the chain ---------------------------------------------------------------------------------


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.one_of(
    st.none(), st.booleans(), st.integers(-LARGEST_INTEGER, LARGEST_INTEGER),
    st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
)))  # fmt: skip
def test_canonical_json_is_json_in_one_order(fields: dict[str, Any]) -> None:
    fields.pop("row_hash", None)
    text = canonical(fields)
    assert json.loads(text) == fields
    assert list(json.loads(text)) == sorted(fields)
    assert canonical(dict(reversed(fields.items()))) == text
    assert not any(byte in text for byte in range(0x20))


# --- the counters ------------------------------------------------------------------------------

UNITS = ("usd", "tokens", "requests")


class CountersMachine(RuleBasedStateMachine):
    """`Counters` against a model that keeps every event and adds them all up again after each step."""

    ids = Bundle("ids")
    settled = Bundle("settled")

    def __init__(self) -> None:
        super().__init__()
        self.counters = Counters()
        self.book: tuple[Cap, ...] = ()
        self.running: dict[str, tuple[CallFacts, dict[BalanceKey, tuple[int, int]]]] = {}
        self.taken: list[tuple[BalanceKey, int]] = []
        self.steps = 0
        self.calls = 0

    @initialize(book=books)
    def start(self, book: tuple[Cap, ...]) -> None:
        self.book = book

    def balance(self, key: BalanceKey) -> Balance:
        holds = [held[key] for _, held in self.running.values() if key in held]
        spent = sum(amount for of, amount in self.taken if of == key)
        return Balance(spent, sum(hold for hold, _ in holds), sum(floor for _, floor in holds))

    def step(self, seq: int | None) -> None:
        self.steps += 1
        assert seq == self.steps

    @rule(target=ids, facts=calls)
    def reserve(self, facts: CallFacts) -> Any:
        claims = claims_for(CapBook(self.book), facts)
        state = {claim.key: self.balance(claim.key) for claim in claims}
        admitted = all(one.room == "fits" for one in judge(self.book, facts, state) if one.binds)
        self.calls += 1
        name = f"r{self.calls}"
        grant = self.counters.reserve(name, facts, claims)
        self.step(grant.seq)
        assert grant.granted is admitted
        assert dict(zip(state, grant.balances, strict=True)) == state
        assert isinstance(verdict(claims, grant.balances, grant.granted), Admitted) is admitted
        if not admitted:
            assert self.counters.settle(name, Counted(9, 9, 1)) is None
            return multiple()
        self.running[name] = (facts, {claim.key: (claim.hold, claim.floor) for claim in claims})
        return name

    @rule(name=ids)
    def reserve_again(self, name: str) -> None:
        facts, held = self.running[name]
        grant = self.counters.reserve(name, facts, claims_for(CapBook(self.book), facts))
        assert grant.granted
        assert grant.seq <= self.steps  # the step it was granted at
        assert len(held) >= len(grant.balances)

    @rule(target=settled, name=consumes(ids), nano_usd=small, tokens=small)
    def settle(self, name: str, nano_usd: int, tokens: int) -> str:
        self.step(self.counters.settle(name, Counted(nano_usd, tokens, 1)))
        _, held = self.running.pop(name)
        amounts = dict(zip(UNITS, (nano_usd, tokens, 1), strict=True))
        self.taken += [(key, amounts[key.unit]) for key in held]
        return name

    @rule(target=settled, name=consumes(ids))
    def release(self, name: str) -> str:
        self.step(self.counters.release(name))
        del self.running[name]
        return name

    @rule(name=settled, nano_usd=small)
    def settle_again(self, name: str, nano_usd: int) -> None:
        assert self.counters.settle(name, Counted(nano_usd, nano_usd, 1)) is None
        assert self.counters.release(name) is None

    @rule(one=caps)
    def make_a_cap(self, one: Cap) -> None:
        """A cap made in mid-period: its new counters take the holds of running calls; a known one stays."""
        if any(one.id == other.id for other in self.book) or len(self.book) > 8:
            return
        for name, facts in self.counters.running():
            claims = claims_for(CapBook((one,)), facts)
            self.counters.hold_also(name, [*claims, *claims])
            for claim in claims:
                self.running[name][1].setdefault(claim.key, (claim.hold, claim.floor))
        self.book = (*self.book, one)

    @rule(data=st.data(), amount=st.integers(-5, 5))
    def correct(self, data: st.DataObject, amount: int) -> None:
        known = list(self.counters.keys())
        if known:
            key = data.draw(st.sampled_from(known))
            self.counters.adjust(key, amount)
            self.taken.append((key, amount))

    @rule()
    def other_event(self) -> None:
        self.step(self.counters.draw())

    @rule(later=st.sampled_from([AT, AT + timedelta(days=1), AT + timedelta(days=31)]))
    def forget(self, later: datetime) -> None:
        held = {key for _, holds in self.running.values() for key in holds}
        closed = set()
        for key in list(self.counters.keys()):
            end = period_at("day" if len(key.period) == 10 else "month", AT).end
            if key.period != "all" and end is not None and end <= later and key not in held:
                closed.add(key)
        assert self.counters.forget_closed(later) == len(closed)
        self.taken = [(key, amount) for key, amount in self.taken if key not in closed]

    @invariant()
    def every_balance_is_the_sum_of_its_events(self) -> None:
        keys = {key for key, _ in self.taken} | {key for _, held in self.running.values() for key in held}
        for key in keys | set(self.counters.keys()):
            assert self.counters.balance(key) == self.balance(key)
        assert dict(self.counters.running()) == {name: facts for name, (facts, _) in self.running.items()}


class ReserveMachine(RuleBasedStateMachine):
    """Under one armed `reserve` cap, calls that cost no more than their holds never spend past the limit."""

    ids = Bundle("ids")
    LIMIT = 20

    def __init__(self) -> None:
        super().__init__()
        self.counters = Counters()
        self.caps = CapBook((cap(1, self.LIMIT), cap(2, self.LIMIT + 5, subject="ann", armed=False)))
        self.holds: dict[str, int] = {}
        self.calls = 0

    @rule(target=ids, hold=small)
    def ask(self, hold: int) -> Any:
        self.calls += 1
        name = f"r{self.calls}"
        facts = call(hold=hold)
        if not self.counters.reserve(name, facts, claims_for(self.caps, facts)).granted:
            return multiple()
        self.holds[name] = hold
        return name

    @rule(name=consumes(ids), data=st.data())
    def settle(self, name: str, data: st.DataObject) -> None:
        cost = data.draw(st.integers(0, self.holds.pop(name)))
        self.counters.settle(name, Counted(cost, 0, 1))

    @invariant()
    def the_limit_holds(self) -> None:
        for key in list(self.counters.keys()):
            spent, held, _ = self.counters.balance(key)
            assert min(spent, held) >= 0
            assert spent + held <= self.LIMIT


TestCounters = CountersMachine.TestCase
TestReserve = ReserveMachine.TestCase
