"""What a page is looking at, typed: the cap being drafted, the customer chosen, and how both stand in the URL.

The URL may be shared and logged, so it names a customer by `customer_ref` and never by its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import streamlit as st

from console.gateway_views import CapView
from toolkit.core.caps import EACH, Admission, Cap, Match, UnpricedPolicy, validate_cap
from toolkit.core.errors import InvalidCap, MoneyError
from toolkit.core.money import parse_usd
from toolkit.core.scopes import Scope
from toolkit.core.windows import WINDOWS, Window

Target = Literal["each_customer", "one_customer", "organization", "one_key"]
TARGETS: tuple[Target, ...] = get_args(Target)
ADMISSIONS: tuple[Admission, ...] = get_args(Admission)
UNPRICED: tuple[UnpricedPolicy, ...] = get_args(UnpricedPolicy)

CUSTOMER_PARAM = "customer"
_CUSTOMER = "chosen_customer"


EVERYTHING = Match()


@dataclass(frozen=True, slots=True, kw_only=True)
class CapDraft:
    """A cap as it stands in the controls, or as it was taken from a stored one. Hashable: it is part of cache keys."""

    scope: Scope
    subject: str
    match: Match = EVERYTHING
    window: Window
    limit_nano_usd: int | None
    token_limit: int | None = None
    request_limit: int | None = None
    admission: Admission = "reserve"
    unpriced: UnpricedPolicy = "refuse"
    refusal_status: int = 402

    def cap(self) -> Cap:
        """The draft as an armed cap, for the decision function; its id matches no stored cap."""
        return validate_cap(
            Cap(
                id=0,
                scope=self.scope,
                subject=self.subject,
                match=self.match,
                window=self.window,
                limit_nano_usd=self.limit_nano_usd,
                token_limit=self.token_limit,
                request_limit=self.request_limit,
                admission=self.admission,
                unpriced=self.unpriced,
                refusal_status=self.refusal_status,
                hard_stop=True,
            )
        )

    def is_same_line(self, view: CapView) -> bool:
        """Whether a stored cap counts the same thing: scope, subject, window and match."""
        mine = (self.scope, self.subject, self.window, *self.match)
        return mine == (view.scope, view.subject, view.window, view.provider, view.model, view.tag)

    def is_same_cap(self, view: CapView) -> bool:
        """Whether a stored cap would refuse exactly what this draft would."""
        mine = (self.limit_nano_usd, self.token_limit, self.request_limit, self.admission, self.unpriced)
        theirs = (view.limit_nano_usd, view.token_limit, view.request_limit, view.admission, view.unpriced)
        return self.is_same_line(view) and mine == theirs


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with a control, in one line for its user."""

    words: str


def draft_of(
    target: Target, subject: str | None, *, window: str, limit_text: str, admission: str, unpriced: str
) -> CapDraft | Mistake:
    """The draft that the controls describe, or what is wrong with them. Trusts nothing that a browser sent."""
    lists = ((window, WINDOWS), (admission, ADMISSIONS), (target, TARGETS), (unpriced, UNPRICED))
    if any(value not in known for value, known in lists):
        return Mistake("One of the controls holds a value that is not on its list.")
    try:
        limit = parse_usd(limit_text.strip().removeprefix("$"))
    except MoneyError as error:
        return Mistake(str(error))
    scope, named = scope_of(target, subject)
    if named is None:
        return Mistake("There is nobody to cap in this history yet.")
    draft = CapDraft(
        scope=scope,
        subject=named,
        window=cast(Window, window),
        limit_nano_usd=limit,
        admission=cast(Admission, admission),
        unpriced=cast(UnpricedPolicy, unpriced),
    )
    try:
        draft.cap()
    except InvalidCap as error:
        return Mistake(str(error))
    return draft


def scope_of(target: Target, subject: str | None) -> tuple[Scope, str | None]:
    """The contract's scope and subject of what the operator picked."""
    match target:
        case "each_customer":
            return "customer", EACH
        case "one_customer":
            return "customer", subject
        case "organization":
            return "organization", subject
        case "one_key":
            return "key", subject


def draft_of_cap(view: CapView) -> CapDraft | None:
    """The draft of a stored cap; None for a window that the decision function here does not know."""
    if view.window not in WINDOWS:
        return None
    return CapDraft(
        scope=view.scope,
        subject=view.subject,
        match=Match(view.provider, view.model, view.tag),
        window=view.window,
        limit_nano_usd=view.limit_nano_usd,
        token_limit=view.token_limit,
        request_limit=view.request_limit,
        admission=view.admission,
        unpriced=view.unpriced,
        refusal_status=view.refusal_status,
    )


def chosen_customer(references: dict[str, str]) -> str | None:
    """The customer on view: the one picked in this session, else the one that the URL's reference names."""
    picked: str | None = st.session_state.get(_CUSTOMER)
    reference = st.query_params.get(CUSTOMER_PARAM)
    if picked is not None and references.get(picked) in (None, reference):
        return picked
    return next((customer for customer, known in references.items() if known == reference), None)


def choose_customer(customer: str | None, references: dict[str, str]) -> None:
    """Put one customer on view, or none, and its reference into the URL."""
    st.session_state[_CUSTOMER] = customer
    reference = references.get(customer) if customer is not None else None
    if reference is not None:
        st.query_params[CUSTOMER_PARAM] = reference
    else:
        st.query_params.pop(CUSTOMER_PARAM, None)
