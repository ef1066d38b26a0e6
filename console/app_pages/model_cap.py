"""Model a cap: draw a line on the past, see whom it would have stopped, then arm it.

Every change of a control replays the history through the gateway's own decision function.
"""

from __future__ import annotations

import streamlit as st

from console import arming, data, showing, wording
from console.bootstrap import services
from console.components import armed_bar, cards, charts, controls, dialogs, notices, tables
from console.modelling import Modelled
from console.state import Mistake

_WHO = "model_customer"


def page() -> None:
    history = cards.header(wording.MODEL, badge=wording.MODELLING_BADGE)
    if not cards.has_history(history):
        return
    with st.container(border=True, key="model_controls"):
        draft = controls.cap_draft(history.version)
    if isinstance(draft, Mistake):
        notices.problem(draft.words, key="model_mistake")
        return
    modelled = data.model(history.version, draft, services().clock())
    with st.bottom:
        _bar(modelled)
    cards.row(showing.model_cards(modelled), key="model_cards")
    if modelled.unpriced_refused:
        st.caption(wording.unpriced_refused_md(modelled.unpriced_refused))
    if modelled.cost_unknown:
        st.caption(wording.cost_unknown_md(modelled.cost_unknown))
    left, right = st.columns([3, 2])
    with left.container(border=True, key="model_days", height="stretch"), notices.panel("model_days"):
        st.subheader(wording.DAILY_TITLE, anchor=False)
        charts.what_if_by_day(modelled.days, key="model_days_figure")
    with right.container(border=True, key="model_over", height="stretch"), notices.panel("model_over"):
        _over(modelled)
    with notices.panel("model_who"):
        _who(history.version, modelled)
    st.caption(wording.CAVEAT_MD)
    dialogs.draw()


def _over(modelled: Modelled) -> None:
    st.subheader(wording.ALREADY_OVER, anchor=False)
    if modelled.over:
        rows = showing.over_rows(modelled.over)
    elif modelled.ended_over:
        st.caption(wording.ended_over_md(modelled))
        rows = showing.over_rows(modelled.ended_over)
    else:
        st.badge(wording.NOBODY_OVER, icon=":material/check:", color="green")
        return
    columns = showing.over_columns(modelled.draft)
    tables.table(rows, columns, key="model_over_table", alt=wording.ALREADY_OVER, rows=8)


def _who(version: str, modelled: Modelled) -> None:
    st.subheader(wording.WHO_TITLE, anchor=False)
    who = modelled.who
    if who.is_empty():
        st.caption(wording.NOBODY_REFUSED)
        return
    ids = who["customer"].to_list()
    chosen = st.session_state.get(_WHO)
    rows = tables.Chosen(ids=ids, now=chosen, tell=lambda customer: st.session_state.update({_WHO: customer}))
    tables.table(who, showing.WHO_COLUMNS, key="model_who_table", alt=wording.WHO_TITLE, chosen=rows)
    tables.download(who, showing.WHO_COLUMNS, key="model_who_csv", file_name="would-have-been-refused.csv")
    shown = chosen if chosen in ids else ids[0]
    if shown is not None:
        _curve(version, modelled, shown)


def _curve(version: str, modelled: Modelled, customer: str) -> None:
    with st.container(border=True, key="model_curve"), notices.panel("model_curve"):
        st.subheader(wording.CURVE_TITLE, anchor=False)
        st.text(wording.curve_title(customer, modelled.first_refusal(customer)))
        curve = data.curve(version, modelled, customer)
        if curve is None:
            st.caption(wording.NO_CURVE)
        else:
            charts.customer_curve(curve, key="model_curve_figure")
        st.caption(wording.CURVE_HINT)


def _bar(modelled: Modelled) -> None:
    """The sentence that reads aloud, and the one way on; once this very cap is armed, the armed bar says it all."""
    draft = modelled.draft
    stored = arming.same_line(armed_bar.known_caps(), draft)
    if stored is not None and stored.hard_stop and draft.is_same_cap(stored):
        return
    with st.container(key="model_bar", horizontal=True, vertical_alignment="center"):
        st.markdown(wording.model_sentence_md(modelled), width="stretch")
        st.button(
            wording.ARM_OPEN,
            key="model_arm",
            type="primary",
            icon=":material/lock:",
            on_click=dialogs.open_for,
            args=(draft,),
        )


page()
