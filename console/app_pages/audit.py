"""Audit log: when, who, what, before, after, why. Read from the gateway; there is nothing to change here."""

from __future__ import annotations

import streamlit as st

from console import columns, showing, wording
from console.bootstrap import services
from console.components import cards, notices, tables
from console.gateway_client import GatewayError


def page() -> None:
    cards.header(wording.AUDIT)
    st.caption(wording.AUDIT_NOTE_MD)
    try:
        frame = showing.audit_rows(services().gateway.audit())
    except GatewayError as error:
        notices.problem(error.words, key="audit_unreadable")
        return
    if frame.is_empty():
        notices.empty(wording.NO_AUDIT, wording.NO_AUDIT_MORE, key="no_audit")
        return
    tables.table(frame, columns.AUDIT_COLUMNS, key="audit_table", alt=wording.AUDIT)
    tables.download(frame, columns.AUDIT_COLUMNS, key="audit_csv", file_name="audit.csv")


page()
