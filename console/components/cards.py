"""Page headers and the rows of cards under them: the same parts in every card, so that a row lines up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from console import data, wording
from console.components import notices
from console.history import HistoryState

FEWEST_BARS = 3
"""Fewer bars than these stand apart like the edges of a frame, and show no course of anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One figure. `note` stands under it on one line, so it is short; `badge` is a short word before the note."""

    label: str
    value: str
    note: str
    badge: str | None = None
    alarming: bool = False
    help: str | None = None
    trend: Sequence[int] | None = None


def row(cards: Sequence[Card], *, key: str) -> None:
    """Cards of one width and height; they wrap on a narrow screen."""
    with st.grid(len(cards), min_column_width=160, gap="small", key=key):
        for card in cards:
            st.metric(
                card.label,
                card.value.replace("$", r"\$"),
                card.badge,
                delta_color="red" if card.alarming else "off",
                delta_arrow="off",
                delta_description=card.note.replace("$", r"\$"),
                help=card.help,
                border=True,
                height="stretch",
                chart_data=list(card.trend) if card.trend and len(card.trend) >= FEWEST_BARS else None,
                chart_type="bar",
            )


def header(title: str, *, badge: str | None = None, replays: bool = False) -> HistoryState:
    """A page's title, what its figures stand on, and the history itself: a copy for a page that replays it."""
    with st.container(key="page_title", horizontal=True, vertical_alignment="center", gap="medium"):
        st.title(title, anchor=False, width="content")
        if badge:
            st.badge(badge, icon=":material/visibility:", color="green")
    with st.spinner(wording.FETCHING):
        history = data.copied() if replays else data.current()
        covered = data.coverage(history.version)
    st.caption(wording.provenance_md(covered.rows, covered.customers, covered.first, covered.last))
    if history.since is not None:
        st.caption(wording.part_md(history.since))
    if history.trouble is not None:
        notices.problem(wording.history_trouble(history.trouble, history.rows), key="history_trouble")
    return history


def has_history(history: HistoryState) -> bool:
    """Whether there is anything to show; if not, the page says what to do."""
    if not history.rows and history.trouble is None:
        notices.empty(wording.EMPTY_TITLE, wording.EMPTY, key="empty")
    return history.rows > 0
