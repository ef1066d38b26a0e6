"""Model a cap: draw a line on the past, see whom it would have stopped, then arm it.

Every change of a control replays the history through the gateway's own decision function.
"""

from __future__ import annotations

import streamlit as st

from console import arming, columns, data, model_wording, showing, wording
from console.bootstrap import services
from console.components import armed_bar, cards, charts, controls, dialogs, notices, tables
from console.modelling import Modelled
from console.state import Mistake

_WHO = "model_customer"


def page() -> None:
    history = cards.header(wording.MODEL, badge=model_wording.MODELLING_BADGE, replays=True)
    if not cards.has_history(history):
        return
    with st.container(border=True, key="model_controls"):
        draft = controls.cap_draft(history.version)
    modelled = draft if isinstance(draft, Mistake) else data.modelled(history, draft, services().clock())
    if isinstance(modelled, Mistake):
        notices.problem(modelled.words, key="model_mistake")
        return
    with st.bottom:
        _bar(modelled)
    cards.row(showing.model_cards(history.version, modelled), key="model_cards")
    left, right = st.columns([3, 2])
    with left.container(border=True, key="model_days", height="stretch"), notices.panel("model_days"):
        st.subheader(model_wording.DAILY_TITLE, anchor=False)
        charts.what_if_by_day(modelled, key="model_days_figure")
    with right.container(border=True, key="model_over", height="stretch"), notices.panel("model_over"):
        _over(modelled)
    if modelled.what_if.summary.refused or modelled.what_if.summary.cost_unknown:
        st.caption(model_wording.model_notes_md(modelled))
    with notices.panel("model_who"):
        _who(modelled)
    st.caption(model_wording.CAVEAT_MD)
    dialogs.draw()


def _over(modelled: Modelled) -> None:
    st.subheader(model_wording.ALREADY_OVER, anchor=False)
    if modelled.over:
        rows = showing.over_rows(modelled.over)
    elif modelled.ended_over:
        st.caption(model_wording.ended_over_md(modelled))
        rows = showing.over_rows(modelled.ended_over)
    else:
        st.badge(model_wording.NOBODY_OVER, icon=":material/check:", color="green")
        return
    shown = columns.over_columns(modelled.draft)
    tables.table(rows, shown, key="model_over_table", alt=model_wording.ALREADY_OVER, rows=8)


def _who(modelled: Modelled) -> None:
    st.subheader(model_wording.WHO_TITLE, anchor=False)
    who = modelled.who
    if who.is_empty():
        st.caption(model_wording.NOBODY_REFUSED)
        return
    ids = who["customer"].to_list()
    chosen = st.session_state.get(_WHO)
    rows = tables.Chosen(ids=ids, now=chosen, tell=lambda customer: st.session_state.update({_WHO: customer}))
    tables.table(who, columns.WHO_COLUMNS, key="model_who_table", alt=model_wording.WHO_TITLE, chosen=rows)
    tables.download(who, columns.WHO_COLUMNS, key="model_who_csv", file_name="would-have-been-refused.csv")
    shown = chosen if chosen in ids else ids[0]
    if shown is not None:
        _curve(modelled, shown)


def _curve(modelled: Modelled, customer: str) -> None:
    with st.container(border=True, key="model_curve"), notices.panel("model_curve"):
        st.subheader(model_wording.CURVE_TITLE, anchor=False)
        st.text(model_wording.curve_title(customer, modelled.first_refusal(customer)))
        charts.customer_curve(modelled, customer, key="model_curve_figure")
        st.caption(model_wording.CURVE_HINT)


def _bar(modelled: Modelled) -> None:
    """The sentence that reads aloud, and the one way on; once this very cap is armed, the armed bar says it all."""
    draft = modelled.draft
    stored = arming.same_line(armed_bar.known_caps(), draft)
    if stored is not None and stored.hard_stop and draft.is_same_cap(stored):
        return
    with st.container(key="model_bar", horizontal=True, vertical_alignment="center"):
        st.markdown(model_wording.model_sentence_md(modelled), width="stretch")
        st.button(
            model_wording.ARM_OPEN,
            key="model_arm",
            type="primary",
            icon=":material/lock:",
            on_click=dialogs.open_for,
            args=(draft,),
        )


page()
