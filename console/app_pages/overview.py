"""Overview: what is armed, what this window cost and how that changed, who spent it, day by day."""

from __future__ import annotations

import streamlit as st

from console import cap_wording, columns, data, showing, wording
from console.bootstrap import services
from console.components import armed_bar, cards, charts, controls, notices, tables
from console.history import HistoryState


def page() -> None:
    history = cards.header(wording.OVERVIEW)
    with notices.panel("armed"):
        _armed(history)
    if not cards.has_history(history):
        return
    chosen = controls.period(history.version, key="overview")
    with notices.panel("overview_cards"):
        totals = data.totals(history.version, chosen.window, chosen.period, services().clock())
        cards.row(showing.overview_cards(totals), key="overview_cards")
    left, right = st.columns([3, 2])
    with left.container(border=True, key="overview_days", height="stretch"), notices.panel("overview_days"):
        st.subheader(wording.BY_DAY_TITLE, anchor=False)
        charts.spend_by_day(history.version, chosen.window, chosen.period, key="overview_days_figure")
    with right.container(border=True, key="overview_top", height="stretch"), notices.panel("overview_top"):
        st.subheader(wording.TOP_CUSTOMERS, anchor=False)
        top = showing.top_customers(history.version, chosen, armed_bar.known_caps())
        shown = columns.top_columns(top)
        tables.table(top, shown, key="overview_top_table", alt=wording.TOP_CUSTOMERS)


def _armed(history: HistoryState) -> None:
    armed = [cap for cap in armed_bar.known_caps() if cap.hard_stop]
    if not armed:
        return
    with st.container(border=True, key="overview_armed"):
        for cap in armed:
            with st.container(key=f"overview_armed_{cap.id}", horizontal=True, vertical_alignment="center"):
                st.badge(cap_wording.STATE_ARMED, icon=":material/lock:", color="red")
                st.text(cap_wording.cap_rule(cap), width="stretch")
                st.text(cap_wording.refused_since(data.refused_by(history.version, cap), cap.armed_at))


page()
