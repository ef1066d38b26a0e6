"""Customers: everyone's requests and cost; one customer's days, models, receipts, and why a call was refused."""

from __future__ import annotations

import streamlit as st

from console import columns, data, showing, state, wording
from console.bootstrap import services
from console.components import cards, charts, controls, notices, tables
from console.gateway_client import GatewayError
from console.showing import PeriodChoice

LATEST = 200


def page() -> None:
    history = cards.header(wording.CUSTOMERS)
    if not cards.has_history(history):
        return
    chosen = controls.period(history.version, key="customers")
    with notices.panel("customers_table"):
        _everyone(history.version, chosen)
    references = _references(history.version)
    customer = state.chosen_customer(references)
    if customer is not None:
        _one(history.version, chosen, customer)
    elif state.CUSTOMER_PARAM in st.query_params:
        notices.problem(wording.UNKNOWN_REFERENCE, key="unknown_reference")
    else:
        st.caption(wording.CUSTOMER_HINT)


def _references(version: str) -> dict[str, str]:
    return data.references(version, st.query_params.get(state.CUSTOMER_PARAM))


def _everyone(version: str, chosen: PeriodChoice) -> None:
    frame = showing.customers(version, chosen)
    references = _references(version)
    rows = tables.Chosen(
        ids=frame["customer"].to_list(),
        now=state.chosen_customer(references),
        tell=lambda customer: state.choose_customer(customer, references),
    )
    shown = columns.CUSTOMER_COLUMNS
    tables.table(frame, shown, key="customers_table", alt=wording.CUSTOMERS, chosen=rows)
    tables.download(frame, shown, key="customers_csv", file_name=f"customers-{chosen.period}.csv")
    named = data.customers_in(version, chosen.period)
    if frame.height < named:
        st.caption(wording.dearest_md(frame.height, named))


def _one(version: str, chosen: PeriodChoice, customer: str) -> None:
    st.subheader(wording.ONE_CUSTOMER_TITLE, anchor=False)
    st.text(wording.customer_name(customer))
    left, right = st.columns([3, 2])
    with left.container(border=True, key="customer_days", height="stretch"), notices.panel("customer_days"):
        st.subheader(wording.BY_DAY_TITLE, anchor=False)
        charts.spend_by_day(
            version, chosen.window, chosen.period, customer=customer, key="customer_days_figure"
        )
    with (
        right.container(border=True, key="customer_models", height="stretch"),
        notices.panel("customer_models"),
    ):
        st.subheader(wording.BY_MODEL_TITLE, anchor=False)
        models = showing.models_of(version, chosen, customer)
        tables.table(models, columns.MODEL_COLUMNS, key="customer_models_table", alt=wording.BY_MODEL_TITLE)
    with notices.panel("customer_refusals"):
        _refusals(version, customer)
    with notices.panel("customer_receipts"):
        st.subheader(wording.RECEIPTS_TITLE, anchor=False)
        receipts = showing.receipt_rows(data.latest(version, customer, None, LATEST))
        shown = columns.RECEIPT_COLUMNS
        tables.table(receipts, shown, key="customer_receipts", alt=wording.RECEIPTS_TITLE)
        tables.download(receipts, shown, key="receipts_csv", file_name="receipts.csv")


def _refusals(version: str, customer: str) -> None:
    st.subheader(wording.REFUSALS_TITLE, anchor=False)
    refused = data.latest(version, customer, "refused", LATEST)
    if refused.is_empty():
        st.caption(wording.NO_REFUSALS)
        return
    ids = refused["receipt_id"].to_list()
    asked: str | None = st.session_state.get("why")
    rows = tables.Chosen(ids=ids, now=asked, tell=lambda receipt_id: st.session_state.update(why=receipt_id))
    shown = columns.REFUSAL_COLUMNS
    tables.table(refused, shown, key="customer_refusals", alt=wording.REFUSALS_TITLE, chosen=rows)
    if asked is not None and asked in ids:
        _why(asked)
    else:
        st.caption(wording.WHY_HINT)


def _why(receipt_id: str) -> None:
    try:
        receipt = services().gateway.receipt(receipt_id)
    except GatewayError as error:
        notices.problem(error.words, key="why_failed")
        return
    with st.container(border=True, key="why_panel"):
        st.subheader(wording.WHY_TITLE, anchor=False)
        st.markdown(wording.why_md(receipt.refusal_code, receipt.hold_nano_usd))
        if not receipt.trace:
            st.caption(wording.NO_TRACE)
            return
        trace = showing.trace_rows(receipt)
        tables.table(trace, columns.TRACE_COLUMNS, key="why_table", alt=wording.WHY_TITLE)


page()
