"""Caps: each with its state, its rule in words, who armed it, what it refused since; arm, disarm, delete."""

from __future__ import annotations

import streamlit as st

from console import cap_wording, data, showing, wording
from console.bootstrap import services
from console.components import armed_bar, cards, dialogs, notices
from console.formatting import inert
from console.gateway_client import GatewayError
from console.gateway_views import CapView
from console.state import draft_of_cap

_NOTE = "caps_note"


def page() -> None:
    history = cards.header(wording.CAPS)
    try:
        caps = services().gateway.caps()
        armers = showing.armed_by(services().gateway.audit())
    except GatewayError as error:
        notices.problem(error.words, key="caps_unreadable")
        return
    if note := st.session_state.pop(_NOTE, None):
        notices.problem(note, key="caps_note")
    if not caps:
        notices.empty(cap_wording.NO_CAPS_TITLE, cap_wording.NO_CAPS, key="no_caps")
        st.page_link("app_pages/model_cap.py", label=cap_wording.TO_MODEL, icon=":material/experiment:")
    for cap in sorted(caps, key=lambda cap: (not cap.hard_stop, cap.id)):
        with notices.panel(f"cap_{cap.id}"):
            _cap(cap, history.version, armers.get(cap.id))
    dialogs.draw()


def _cap(cap: CapView, version: str, armed_by: str | None) -> None:
    with st.container(border=True, key=f"cap_{cap.id}"):
        words, buttons = st.columns([4, 2], vertical_alignment="center")
        with words, st.container(key=f"cap_{cap.id}_words", gap="xsmall"):
            with st.container(key=f"cap_{cap.id}_head", horizontal=True, vertical_alignment="center"):
                _state(cap)
                st.text(inert(cap.name))
            st.text(cap_wording.cap_rule(cap))
            st.caption(cap_wording.cap_terms_md(cap))
            if cap.hard_stop and cap.armed_at is not None:
                st.text(cap_wording.armed_by(armed_by or cap.updated_by, cap.armed_at))
                st.text(cap_wording.refused_since(data.refused_by(version, cap), cap.armed_at))
        with (
            buttons,
            st.container(key=f"cap_{cap.id}_buttons", horizontal=True, horizontal_alignment="right"),
        ):
            _buttons(cap)


def _state(cap: CapView) -> None:
    if cap.hard_stop:
        st.badge(cap_wording.STATE_ARMED, icon=":material/lock:", color="red")
    else:
        st.badge(cap_wording.STATE_WATCHING, icon=":material/visibility:", color="green")


def _buttons(cap: CapView) -> None:
    if cap.hard_stop:
        st.button(
            cap_wording.DISARM_SHORT,
            key=f"cap_{cap.id}_disarm",
            icon=":material/lock_open:",
            on_click=armed_bar.disarm_now,
            args=((cap.id,),),
        )
    else:
        draft = draft_of_cap(cap)
        st.button(
            cap_wording.ARM_SHORT,
            key=f"cap_{cap.id}_arm",
            icon=":material/lock:",
            disabled=draft is None,
            on_click=dialogs.open_for,
            args=(draft,),
        )
    with st.popover(cap_wording.DELETE, key=f"cap_{cap.id}_more", icon=":material/delete:"):
        st.markdown(cap_wording.DELETE_WARNING_MD)
        st.button(
            cap_wording.DELETE_SURE,
            key=f"cap_{cap.id}_delete",
            type="primary",
            on_click=_delete,
            args=(cap.id, cap.version),
        )


def _delete(cap_id: int, version: int) -> None:
    try:
        services().gateway.delete_cap(cap_id, version)
    except GatewayError as error:
        st.session_state[_NOTE] = cap_wording.cap_failed(error.words)
    else:
        notices.say(cap_wording.cap_deleted_md(), ":material/delete:")


page()
