"""Controls that more than one page has, bound to the URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from console import cap_wording, data, formatting, model_wording, state, wording
from console.showing import PeriodChoice
from console.state import CapDraft, Mistake, Target
from toolkit.core.windows import WINDOWS, Window

DEFAULT_LIMIT = "20.00"

_WINDOWS: tuple[Window, ...] = ("day", "week", "month", "year")


def period(version: str, *, key: str) -> PeriodChoice:
    """A window, and one of its periods that has data; the newest unless another is chosen."""
    with st.container(key=f"{key}_period", horizontal=True, vertical_alignment="top", gap="medium"):
        window: Window = st.segmented_control(
            model_wording.WINDOW_LABEL,
            _WINDOWS,
            default="month",
            required=True,
            format_func=cap_wording.WINDOWS.__getitem__,
            key="window",
            bind="query-params",
        )
        periods = data.periods(version, window)
        chosen = st.selectbox(
            wording.PERIOD_LABEL,
            periods,
            format_func=formatting.period,
            key=f"{key}_{window}_chosen",
            width=260,
        )
    return PeriodChoice(window=window, period=chosen if chosen in periods else periods[0])


def cap_draft(version: str) -> CapDraft | Mistake:
    """The cap that the operator draws, bound to the URL; whom it counts is there by reference only."""
    with st.container(key="model_row", horizontal=True, vertical_alignment="top", gap="medium"):
        limit = st.text_input(
            model_wording.LIMIT_LABEL,
            value=DEFAULT_LIMIT,
            key="limit",
            bind="query-params",
            help=model_wording.LIMIT_HELP,
            validate=(r"^\s*\$?\d{1,10}(\.\d{1,6})?\s*$", model_wording.LIMIT_HELP),
            icon=":material/attach_money:",
            width=150,
        )
        window = st.segmented_control(
            model_wording.WINDOW_LABEL,
            WINDOWS,
            default="month",
            required=True,
            format_func=cap_wording.WINDOWS.__getitem__,
            key="per",
            bind="query-params",
        )
        target = st.selectbox(
            model_wording.TARGET_LABEL,
            state.TARGETS,
            format_func=cap_wording.TARGETS.__getitem__,
            key="counts",
            bind="query-params",
            width=170,
        )
        subject = _subject(version, target)
        with (
            _below_a_label(),
            st.popover(model_wording.RULES_LABEL, key="model_more", icon=":material/tune:"),
        ):
            admission = st.radio(
                model_wording.ADMISSION_LABEL,
                state.ADMISSIONS,
                format_func=cap_wording.ADMISSIONS.__getitem__,
                captions=[cap_wording.ADMISSION_HELP[name] for name in state.ADMISSIONS],
                key="admission",
                bind="query-params",
            )
            unpriced = st.radio(
                model_wording.UNPRICED_LABEL,
                state.UNPRICED,
                format_func=cap_wording.UNPRICED.__getitem__,
                captions=[cap_wording.UNPRICED_RULES[name] for name in state.UNPRICED],
                key="unpriced",
                bind="query-params",
            )
    return state.draft_of(
        target,
        subject,
        window=window,
        limit_text=limit or "",
        admission=admission,
        unpriced=unpriced,
    )


@contextmanager
def _below_a_label() -> Iterator[None]:
    """Room for a control without a label, on the line of those that have one."""
    with st.container(width="content"):
        st.space("small")
        yield


def _subject(version: str, target: Target) -> str | None:
    """The one customer or key that is capped; the organization is the one whose ledger this is."""
    if target == "organization":
        return next(iter(data.subjects(version, "organization")), None)
    if target == "one_key":
        return _one_of(model_wording.PICK_KEY, data.subjects(version, "key_id"), key="model_key")
    if target == "one_customer":
        known = data.subjects(version, "customer")
        references = data.references(version)
        linked = state.chosen_customer(references)
        first = known.index(linked) if linked in known else 0
        picked = _one_of(model_wording.PICK_CUSTOMER, known, key="model_subject", index=first)
        state.choose_customer(picked, references)
        return picked
    return None


def _one_of(label: str, names: list[str], *, key: str, index: int = 0) -> str | None:
    # Options are plain text to Streamlit; they are made inert for what cannot be seen.
    return st.selectbox(
        label, names, index=index if names else None, format_func=formatting.inert, key=key, width=220
    )
