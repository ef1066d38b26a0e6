"""Unpriced & data health: what has no price and why, spend by price list, and what this console's history holds."""

from __future__ import annotations

import streamlit as st

from console import columns, data, showing, wording
from console.components import cards, notices, tables


def page() -> None:
    history = cards.header(wording.HEALTH)
    if not cards.has_history(history):
        return
    with st.container(border=True, key="unpriced"), notices.panel("unpriced"):
        st.subheader(wording.UNPRICED_CARD, anchor=False)
        st.caption(wording.UNPRICED_NOTE_MD)
        unpriced = data.unpriced(history.version)
        if unpriced.is_empty():
            st.badge(wording.NO_UNPRICED, icon=":material/check:", color="green")
        else:
            shown, file = columns.UNPRICED_COLUMNS, columns.UNPRICED_FILE_COLUMNS
            tables.table(unpriced, shown, key="unpriced_table", alt=wording.UNPRICED_CARD)
            tables.download(unpriced, file, key="unpriced_csv", file_name="unpriced.csv")
            st.markdown(wording.WHAT_TO_DO_MD)
            tables.facts(showing.what_to_do(unpriced), key="unpriced_advice")
    with st.container(border=True, key="lists"), notices.panel("lists"):
        st.subheader(wording.LISTS_TITLE, anchor=False)
        st.caption(wording.LISTS_NOTE_MD)
        months = showing.month_rows(data.months(history.version))
        tables.table(months, columns.MONTH_COLUMNS, key="lists_table", alt=wording.LISTS_TITLE)
    with st.container(border=True, key="coverage"), notices.panel("coverage"):
        st.subheader(wording.COVERAGE_TITLE, anchor=False)
        facts = showing.coverage_facts(
            history, data.coverage(history.version), data.statuses(history.version)
        )
        tables.facts(facts, key="coverage_facts")


page()
