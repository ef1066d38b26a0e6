"""What a page says when something is wrong, and the fence that keeps one broken panel from taking the page along."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from console import wording
from console.gateway_client import GatewayError

_NOTES = "notes_to_show"

_log = logging.getLogger("capline.console")


@contextmanager
def panel(name: str) -> Iterator[None]:
    """Draw one panel; if it fails, say so in its place and go on with the page."""
    try:
        yield
    except GatewayError as error:
        problem(error.words, key=f"failed_{name}")
    except Exception:
        # Whatever it was, the panels after this one are still worth having. Reruns and stops are no Exception.
        _log.exception("panel %s failed", name)
        problem(wording.PANEL_FAILED, key=f"failed_{name}")


def say(words: str, icon: str) -> None:
    """Let the next run of the page show a short note. A callback cannot draw one itself."""
    st.session_state.setdefault(_NOTES, []).append((words, icon))


def show_said() -> None:
    """Show what was said since."""
    for words_md, icon in st.session_state.pop(_NOTES, ()):
        st.toast(words_md, icon=icon)


def problem(words: str, *, key: str) -> None:
    """One line about what is wrong. The words may quote the gateway, so they are plain text."""
    with st.container(key=key, horizontal=True, vertical_alignment="center", gap="small"):
        st.badge("!", color="red")
        st.text(words, width="stretch")


def empty(title: str, words: str, *, key: str) -> None:
    """What stands where there is nothing to show yet, and what to do about it."""
    with st.container(border=True, key=key, horizontal_alignment="center"):
        st.space("small")
        st.subheader(title, anchor=False, text_alignment="center")
        st.text(words, text_alignment="center")
        st.space("small")
