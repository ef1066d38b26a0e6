"""The bar on every page: what is armed now, and Disarm, one click away.

It is drawn before anything that can fail, from the gateway's own state and never from the session's memory, and it
asks again every few seconds, so that every operator's tab tells the same. When the gateway cannot be read it says
that the state is unknown, and keeps Disarm for what was armed when it was last seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from console import bootstrap, cap_wording
from console.components import notices
from console.gateway_client import GatewayError
from console.gateway_views import CapView

POLL = "3s"
MOST_LINES = 3

_DRAWN = "armed_drawn"
_NOTE = "armed_note"


@dataclass(frozen=True, slots=True)
class Reading:
    """Every cap as the gateway has it; as it had them when last asked, and why, when it cannot be asked now."""

    caps: tuple[CapView, ...]
    trouble: str | None = None

    @property
    def armed(self) -> tuple[CapView, ...]:
        """The caps whose hard stop is on."""
        return tuple(cap for cap in self.caps if cap.hard_stop)


def draw() -> None:
    """Put the bar at the bottom of the page. Call this first in the script."""
    st.session_state.pop(_DRAWN, None)
    with st.bottom:
        _bar()


def known_caps() -> tuple[CapView, ...]:
    """The caps as this process last saw them."""
    return bootstrap.services().gateway.last_seen


def read() -> Reading:
    """The caps now; those last seen, by whichever tab, when the gateway cannot be asked."""
    try:
        return Reading(bootstrap.services().gateway.caps())
    except GatewayError as error:
        return Reading(known_caps(), error.words)


@st.fragment(run_every=POLL)
def _bar() -> None:
    reading = read()
    _redraw_page_when_changed(reading)
    notices.show_said()
    _side(reading)
    if not reading.armed and reading.trouble is None and _NOTE not in st.session_state:
        return
    with st.container(key="armed_bar", gap="xsmall"):
        if reading.trouble is not None:
            _line(cap_wording.STATE_UNKNOWN, cap_wording.state_unknown(reading.trouble), key="armed_unknown")
        if len(reading.armed) > MOST_LINES:
            _line(
                cap_wording.ARMED,
                cap_wording.armed_many(len(reading.armed)),
                key="armed_many",
                disarm=reading.armed,
            )
        else:
            for cap in reading.armed:
                _armed_line(cap, last_seen=reading.trouble is not None)
        if note := st.session_state.pop(_NOTE, None):
            st.text(note)


def _side(reading: Reading) -> None:
    """The state in one word beside the pages."""
    with st.sidebar:
        if reading.trouble is not None:
            st.badge(cap_wording.STATE_UNKNOWN, icon=":material/help:", color="orange")
        elif reading.armed:
            st.badge(cap_wording.armed_count_md(len(reading.armed)), icon=":material/lock:", color="red")
        else:
            st.badge(cap_wording.NOTHING_ARMED, icon=":material/visibility:", color="green")


def _armed_line(cap: CapView, *, last_seen: bool) -> None:
    words = cap_wording.armed_since(cap)
    words = f"{cap_wording.LAST_SEEN} {words}" if last_seen else words
    _line(cap_wording.ARMED, words, key=f"armed_{cap.id}", disarm=(cap,))


def _line(badge: str, words: str, *, key: str, disarm: tuple[CapView, ...] = ()) -> None:
    with st.container(key=f"{key}_line", horizontal=True, vertical_alignment="center", gap="small"):
        if disarm:
            st.badge(badge, icon=":material/lock:", color="red")
        else:
            st.badge(badge, icon=":material/help:", color="orange")
        st.text(words, width="stretch")
        if disarm:
            st.button(
                cap_wording.DISARM if len(disarm) == 1 else cap_wording.DISARM_ALL,
                key=f"{key}_disarm",
                type="primary",
                icon=":material/lock_open:",
                on_click=disarm_now,
                args=(tuple(cap.id for cap in disarm),),
            )


def disarm_now(cap_ids: tuple[int, ...]) -> None:
    """Disarm at once, without a question: friction belongs on the side that hurts customers."""
    gateway = bootstrap.services().gateway
    failed = None
    for cap_id in cap_ids:
        try:
            gateway.disarm(cap_id)
        except GatewayError as error:
            failed = error.words
    if failed is not None:
        st.session_state[_NOTE] = cap_wording.disarm_failed(failed)
    else:
        notices.say(cap_wording.disarmed_md(), ":material/lock_open:")


def _redraw_page_when_changed(reading: Reading) -> None:
    """A page that shows caps is drawn anew when what is armed changed, here or by somebody else."""
    now = (tuple((cap.id, cap.version) for cap in reading.caps), reading.trouble is None)
    if st.session_state.setdefault(_DRAWN, now) != now:
        st.rerun()
