"""Caps: what can be stored, which ones stand over a call, and which defaults an override replaces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.toolkit.core.builders import AT, USD, book, caller, cap
from toolkit.core.caps import (
    PAUSE_REFUSED,
    Cap,
    CapBook,
    Match,
    armed_copy,
    replaced_defaults,
    validate_cap,
)
from toolkit.core.errors import InvalidCap
from toolkit.core.money import LARGEST_INTEGER, LARGEST_NANO_USD
from toolkit.core.scopes import SCOPES, Attribution
from toolkit.core.windows import WINDOWS


def ids(caps: CapBook, who: Attribution) -> list[int]:
    return [found.id for found, _ in caps.matching(who)]


@pytest.mark.parametrize(
    "changed",
    [
        *({"scope": scope} for scope in SCOPES),
        *({"window": window} for window in WINDOWS),
        {"subject": "a"},
        {"subject": "x" * 128},
        {"limit": 0},  # nothing passes
        {"limit": LARGEST_NANO_USD},
        {"limit": None, "token_limit": 0},
        {"limit": None, "request_limit": LARGEST_INTEGER},
        *({"admission": admission} for admission in ("reserve", "floor", "after")),
        *({"unpriced": policy} for policy in ("refuse", "serve")),
        *({"refusal_status": status} for status in (402, 403, 429)),
        {"on_reach": "pause", "scope": "organization"},
        {"alert_percents": (1, 80, 1000)},
        {"match": Match("openai", "gpt-4o", "agent:crawler")},
        {"match": Match("*", "*", "agent:*")},
        {"match": Match(model="m" * 256, tag="agent:" + "x" * 128)},
    ],
)
def test_a_cap_that_can_bind_is_stored_as_it_is(changed: dict[str, Any]) -> None:
    good = cap(**changed)
    assert validate_cap(good) is good


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"scope": "workspace"}, "scope"),
        ({"window": "hour"}, "window"),
        ({"subject": ""}, "subject"),
        ({"subject": "x" * 129}, "subject"),
        ({"subject": "a,b"}, "subject"),  # R011: no such customer can call
        ({"limit": None}, "limit_usd"),
        ({"limit": -1}, "limit_usd"),  # B13
        ({"limit": LARGEST_NANO_USD + 1}, "limit_usd"),
        ({"limit": float("nan")}, "limit_usd"),
        ({"limit": True}, "limit_usd"),
        ({"token_limit": -1}, "token_limit"),
        ({"token_limit": LARGEST_INTEGER + 1}, "token_limit"),
        ({"request_limit": -1}, "request_limit"),
        ({"request_limit": LARGEST_INTEGER + 1}, "request_limit"),
        ({"admission": "worst_case"}, "admission"),
        ({"unpriced": "hold"}, "unpriced"),
        ({"on_reach": "wait"}, "on_reach"),
        ({"refusal_status": 500}, "refusal_status"),
        ({"alert_percents": (0,)}, "alert_percents"),
        ({"alert_percents": (1001,)}, "alert_percents"),
        ({"match": Match(provider="")}, "match.provider"),
        ({"match": Match(model="m" * 257)}, "match.model"),
        ({"match": Match(tag="agent")}, "match.tag"),
        ({"match": Match(tag="agent:")}, "match.tag"),
        ({"match": Match(tag="agent:a,b")}, "match.tag"),
        ({"match": Match(tag="agent:" + "x" * 129)}, "match.tag"),
        ({"match": Match(tag=":a")}, "match.tag"),
        ({"match": Match(tag="Agent:a")}, "match.tag"),
        ({"match": Match(tag="customer:a")}, "match.tag"),
    ],
)
def test_r080_a_cap_that_cannot_bind_is_refused_by_the_field_at_fault(
    changed: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidCap) as refused:
        validate_cap(cap(**changed))
    assert refused.value.field == field


def test_r032_a_customer_cap_does_not_pause() -> None:
    with pytest.raises(InvalidCap) as refused:
        validate_cap(cap(on_reach="pause"))
    assert str(refused.value) == PAUSE_REFUSED == "A customer spending cap stops; it does not pause."


def test_null_is_no_limit_and_zero_is_one() -> None:
    some = cap(limit=0, request_limit=3)
    assert some.limits == (("usd", 0), ("requests", 3))
    assert (some.limit("usd"), some.limit("tokens"), some.limit("requests")) == (0, None, 3)


def test_every_scope_is_found_from_the_least_to_the_most_specific() -> None:
    caps = book(*(cap(9 - place, scope=scope) for place, scope in enumerate(SCOPES)))
    who = Attribution(organization="o", project="p", key_id="k", customer="c", run="r")
    assert ids(caps, who) == [9, 8, 7, 6, 5]


def test_a_named_subject_binds_itself_alone_and_a_star_each_one() -> None:
    caps = book(cap(1), cap(2, subject="ann"), cap(3, subject="bob"), cap(4, subject="Ann"))
    assert ids(caps, caller("ann")) == [2, 1]
    assert ids(caps, caller("bob")) == [3, 1]
    assert ids(caps, caller("zoë")) == [1]


def test_r016_an_untagged_call_meets_no_customer_rule() -> None:
    caps = book(cap(1, limit=0), cap(2, scope="organization"), cap(3, scope="key"))
    assert ids(caps, caller(None)) == [2, 3]


def test_r002_a_customer_called_star_meets_the_default_rules_once() -> None:
    assert ids(book(cap(1), cap(2, subject="ann")), caller("*")) == [1]


@pytest.mark.parametrize(
    ("match", "found"),
    [
        (Match(), Match()),
        (Match(provider="openai"), Match(provider="openai")),
        (Match(provider="azure"), None),
        (Match(model="m"), Match(model="m")),
        (Match(model="m2"), None),
        (Match(provider="*", model="*"), Match(provider="openai", model="m")),
        (Match(tag="agent:crawler"), Match(tag="agent:crawler")),
        (Match(tag="agent:*"), Match(tag="agent:crawler")),
        (Match(tag="agent:other"), None),
        (Match(tag="team:*"), None),  # the call has no such tag
        (Match(model="m", tag="agent:*"), Match(model="m", tag="agent:crawler")),
        (Match(model="m2", tag="agent:*"), None),
    ],
)
def test_c008_a_value_filters_a_star_splits_and_a_missing_dimension_is_shared(
    match: Match, found: Match | None
) -> None:
    who = caller(tags=("agent:crawler", "agent:second"))
    assert cap(match=match).resolved_match(who) == found
    assert [resolved for _, resolved in book(cap(match=match)).matching(who)] == (
        [] if found is None else [found]
    )


def test_a_star_does_not_match_what_a_call_does_not_have() -> None:
    who = Attribution(organization="default", customer="ann")
    assert cap(match=Match(provider="*")).resolved_match(who) is None
    assert cap(match=Match(model="*")).resolved_match(who) is None


@pytest.mark.parametrize(
    ("override", "replaced"),
    [
        ({}, True),  # R024
        ({"armed": False}, False),  # R025
        ({"window": "day"}, False),  # R026
        ({"match": Match(model="m")}, False),
        ({"limit": None, "token_limit": 5}, True),
        ({"scope": "key", "subject": "k1"}, False),
    ],
)
def test_r024_r026_an_armed_override_replaces_the_default_of_its_window_and_match(
    override: dict[str, Any], replaced: bool
) -> None:
    caps = book(cap(1), cap(2, **{"subject": "ann"} | override))
    assert replaced_defaults(caps.matching(caller("ann"))) == (frozenset({1}) if replaced else frozenset())


def test_r024_an_override_is_its_own_customers_alone() -> None:
    caps = book(cap(1), cap(2, subject="ann"))
    assert replaced_defaults(caps.matching(caller("bob"))) == frozenset()


def test_an_override_replaces_watching_defaults_of_the_same_match_too() -> None:
    narrow = Match(model="*")
    caps = book(cap(1, match=narrow), cap(2, armed=False, match=narrow), cap(3, subject="ann", match=narrow))
    assert replaced_defaults(caps.matching(caller("ann"))) == frozenset({1, 2})


def test_a_book_is_never_changed_in_place() -> None:
    first = book(cap(1), cap(2, armed=False))
    changed = first.with_cap(cap(2, limit=2 * USD)).with_cap(cap(3, scope="key")).without(1)
    assert [kept.id for kept in first.caps] == [1, 2]
    assert [kept.id for kept in changed.caps] == [2, 3]
    assert changed.caps[0].limit_nano_usd == 2 * USD
    assert changed.without(99) == changed


def test_a_book_knows_which_scopes_are_armed() -> None:
    caps = book(cap(1), cap(2, armed=False, scope="key"), cap(3, scope="run"))
    assert caps.armed_scopes == {"customer", "run"}
    assert [armed.id for armed in caps.armed()] == [1, 3]
    assert [armed.id for armed in caps.armed("run")] == [3]
    assert caps.armed("key") == ()
    assert CapBook().armed_scopes == frozenset()


def test_arming_copies_the_cap() -> None:
    watching = cap(armed=False)
    armed = armed_copy(watching, AT)
    assert (armed.hard_stop, armed.armed_at, watching.hard_stop) == (True, AT, False)
    assert isinstance(armed, Cap)
