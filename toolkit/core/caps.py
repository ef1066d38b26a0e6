"""Caps and the book of them: which dollar lines stand over a call, and which of those bind.

A cap is one limit on one scope and one window. A `*` subject is a default rule, counted for each value
separately; a customer's own cap is an override, and while it is armed it replaces the defaults of the same
window and match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from toolkit.core.errors import InvalidCap
from toolkit.core.money import LARGEST_INTEGER, LARGEST_NANO_USD
from toolkit.core.scopes import LONGEST_VALUE, SCOPES, Attribution, Scope, is_free_namespace
from toolkit.core.windows import WINDOWS, Window

Admission = Literal["reserve", "floor", "after"]
OnReach = Literal["stop", "pause"]
UnpricedPolicy = Literal["refuse", "serve"]
Unit = Literal["usd", "tokens", "requests"]

EACH = "*"
PAUSE_REFUSED = "A customer spending cap stops; it does not pause."
REFUSAL_STATUSES = (402, 403, 429)


class Match(NamedTuple):
    """What narrows a cap: a value filters, `*` splits by value, None leaves the dimension shared.

    `tag` is `namespace:value` or `namespace:*`. With values resolved for one call it is part of a counter's
    key.
    """

    provider: str | None = None
    model: str | None = None
    tag: str | None = None


_EVERYTHING = Match()
_OUTSIDE = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """One cap as stored. Limits in nano-USD, tokens, requests; None = no limit there, 0 = nothing passes."""

    id: int
    name: str = ""
    scope: Scope
    subject: str
    match: Match = _EVERYTHING
    window: Window
    limit_nano_usd: int | None = None
    token_limit: int | None = None
    request_limit: int | None = None
    hard_stop: bool = False
    admission: Admission = "reserve"
    on_reach: OnReach = "stop"
    unpriced: UnpricedPolicy = "refuse"
    refusal_status: int = 402
    alert_percents: tuple[int, ...] = ()
    version: int = 1
    created_at: datetime | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None
    armed_at: datetime | None = None
    limits: tuple[tuple[Unit, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        axes: tuple[tuple[Unit, int | None], ...] = (
            ("usd", self.limit_nano_usd),
            ("tokens", self.token_limit),
            ("requests", self.request_limit),
        )
        set_limits = tuple((unit, limit) for unit, limit in axes if limit is not None)
        object.__setattr__(self, "limits", set_limits)

    def __hash__(self) -> int:
        return self.id  # equal caps have equal ids; hashing every field would cost more than it keeps apart

    def limit(self, unit: Unit) -> int | None:
        """The limit on one axis, None when the cap has none there."""
        if unit == "usd":
            return self.limit_nano_usd
        return self.token_limit if unit == "tokens" else self.request_limit

    def resolved_match(self, who: Attribution) -> Match | None:
        """This cap's match with the call's own values, None when the call is outside it."""
        if self.match == _EVERYTHING:
            return _EVERYTHING
        provider = _resolve(self.match.provider, who.provider)
        model = _resolve(self.match.model, who.model)
        tag = _resolve_tag(self.match.tag, who)
        if provider is _OUTSIDE or model is _OUTSIDE or tag is _OUTSIDE:
            return None
        return Match(provider, model, tag)


def validate_cap(cap: Cap) -> Cap:
    """`cap` itself when every part of it can bind; raises InvalidCap naming the field otherwise."""
    for name, holds, rule in (*_shape_rules(cap), *_limit_rules(cap), *_match_rules(cap.match)):
        if not holds:
            raise InvalidCap(name, rule)
    return cap


@dataclass(frozen=True, slots=True)
class CapBook:
    """The immutable set of one organization's caps in force. A draft is just another book."""

    caps: tuple[Cap, ...] = ()
    armed_scopes: frozenset[Scope] = field(init=False, repr=False, compare=False)
    _by_scope: Mapping[Scope, Mapping[str, tuple[Cap, ...]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "armed_scopes", frozenset(cap.scope for cap in self.caps if cap.hard_stop))
        index: dict[Scope, dict[str, tuple[Cap, ...]]] = {}
        for cap in sorted(self.caps, key=lambda cap: (SCOPES.index(cap.scope), cap.id)):
            subjects = index.setdefault(cap.scope, {})
            subjects[cap.subject] = (*subjects.get(cap.subject, ()), cap)
        object.__setattr__(self, "_by_scope", index)

    def __hash__(self) -> int:
        return len(self.caps)  # what tells books apart is equality; hashing every cap of one would cost more

    def matching(self, who: Attribution) -> list[tuple[Cap, Match]]:
        """Every cap over this call with its match resolved, armed or watching."""
        found: list[tuple[Cap, Match]] = []
        for scope, subjects in self._by_scope.items():
            subject = who.subject(scope)
            if subject is None:
                continue
            # A customer may be called `*`: its caps are the default rules, once.
            caps = subjects.get(subject, ()) + (subjects.get(EACH, ()) if subject != EACH else ())
            for cap in caps:
                match = cap.resolved_match(who)
                if match is not None:
                    found.append((cap, match))
        return found

    def with_cap(self, cap: Cap) -> CapBook:
        """This book with `cap` added, or put in place of the one with its id."""
        return CapBook((*(other for other in self.caps if other.id != cap.id), cap))

    def without(self, cap_id: int) -> CapBook:
        """This book without one cap."""
        return CapBook(tuple(cap for cap in self.caps if cap.id != cap_id))

    def armed(self, scope: Scope | None = None) -> tuple[Cap, ...]:
        """The armed caps, of one scope when given."""
        return tuple(cap for cap in self.caps if cap.hard_stop and scope in (None, cap.scope))


def replaced_defaults(found: Iterable[tuple[Cap, Match]]) -> frozenset[int]:
    """Ids of the default customer rules that an armed override of their window and match replaces."""
    found = list(found)
    overridden = {
        (cap.window, cap.match)
        for cap, _ in found
        if cap.scope == "customer" and cap.subject != EACH and cap.hard_stop
    }
    if not overridden:
        return frozenset()
    return frozenset(
        cap.id
        for cap, _ in found
        if cap.scope == "customer" and cap.subject == EACH and (cap.window, cap.match) in overridden
    )


def armed_copy(cap: Cap, at: datetime) -> Cap:
    """`cap` with its hard stop on since `at`."""
    return replace(cap, hard_stop=True, armed_at=at)


def _resolve(wanted: str | None, actual: str) -> str | None:
    if wanted is None:
        return None
    return actual if actual and wanted in (EACH, actual) else _OUTSIDE


def _resolve_tag(wanted: str | None, who: Attribution) -> str | None:
    if wanted is None:
        return None
    namespace, _, value = wanted.partition(":")
    actual = who.tag(namespace)
    return f"{namespace}:{actual}" if actual is not None and value in (EACH, actual) else _OUTSIDE


_Rule = tuple[str, bool, str]
"""A field, whether it is as it must be, and how it must be."""


def _shape_rules(cap: Cap) -> Iterator[_Rule]:
    yield "scope", cap.scope in SCOPES, f"scope is one of {', '.join(SCOPES)}"
    yield "window", cap.window in WINDOWS, f"window is one of {', '.join(WINDOWS)}"
    yield (
        "subject",
        _is_value(cap.subject),
        "subject is 1 to 128 characters without a comma, or * for each one",
    )
    yield "admission", cap.admission in get_args(Admission), "admission is reserve, floor or after"
    yield "unpriced", cap.unpriced in get_args(UnpricedPolicy), "unpriced is refuse or serve"
    yield "on_reach", cap.on_reach in get_args(OnReach), "on_reach is stop or pause"
    yield "on_reach", cap.on_reach != "pause" or cap.scope != "customer", PAUSE_REFUSED
    yield "refusal_status", cap.refusal_status in REFUSAL_STATUSES, "refusal_status is 402, 403 or 429"
    percents = all(1 <= percent <= 1000 for percent in cap.alert_percents)
    yield "alert_percents", percents, "alert_percents are whole numbers from 1 to 1000"


def _limit_rules(cap: Cap) -> Iterator[_Rule]:
    needed = "a cap needs limit_usd, token_limit or request_limit; to lift a cap, delete it"
    yield "limit_usd", bool(cap.limits), needed
    for name, limit, most in (
        ("limit_usd", cap.limit_nano_usd, LARGEST_NANO_USD),
        ("token_limit", cap.token_limit, LARGEST_INTEGER),
        ("request_limit", cap.request_limit, LARGEST_INTEGER),
    ):
        if limit is not None:
            yield (
                name,
                type(limit) is int and 0 <= limit <= most,
                f"{name} is zero or more, and not beyond {most}",
            )


def _match_rules(match: Match) -> Iterator[_Rule]:
    for name, value in (("match.provider", match.provider), ("match.model", match.model)):
        if value is not None:
            yield name, 1 <= len(value) <= 256, "a match is a value, * or null"
    if match.tag is not None:
        namespace, _, value = match.tag.partition(":")
        binds = is_free_namespace(namespace) and _is_value(value)
        yield "match.tag", binds, "a tag match is namespace:value or namespace:*, of a free tag"


def _is_value(text: str) -> bool:
    return 1 <= len(text) <= LONGEST_VALUE and "," not in text
