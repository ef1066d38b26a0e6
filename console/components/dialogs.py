"""The arm dialog: the exact rule, who is refused next, a reason, and a phrase with the live count in it.

It opens from a flag in the session and acts in callbacks, so that closing, reloading and testing it are plain
matters of state.
"""

from __future__ import annotations

import streamlit as st

from console import arming, model_wording
from console.components import armed_bar, notices, tables
from console.modelling import Modelled
from console.state import CapDraft, Mistake

NAMES_SHOWN = 12

_DRAFT = "arming_draft"
_OVER = "arming_over"
_NOTE = "arming_note"
REASON, PHRASE = "arm_reason", "arm_phrase"


def open_for(draft: CapDraft) -> None:
    """A button's callback: open the dialog for this draft."""
    st.session_state[_DRAFT] = draft
    for name in (_OVER, _NOTE, REASON, PHRASE):
        st.session_state.pop(name, None)


def draw() -> None:
    """Draw the dialog if it is open. Call this once per page, where its button is."""
    draft: CapDraft | None = st.session_state.get(_DRAFT)
    if draft is not None:
        _dialog(draft)


def _close() -> None:
    st.session_state.pop(_DRAFT, None)
    for name in (_OVER, _NOTE):
        st.session_state.pop(name, None)


@st.dialog(model_wording.ARM_TITLE, width="medium", icon=":material/warning:", on_dismiss=_close)
def _dialog(draft: CapDraft) -> None:
    modelled = arming.recount(draft)
    if isinstance(modelled, Mistake):
        notices.problem(modelled.words, key="arm_mistake")
        return
    # What was shown is what the phrase and the recount are held against.
    shown: int = st.session_state.setdefault(_OVER, modelled.over_count)
    st.markdown(model_wording.arm_rule_md(draft))
    st.text(model_wording.what_is_written(arming.same_line(armed_bar.known_caps(), draft), draft))
    _over(modelled)
    tables.facts(model_wording.arm_facts(modelled), key="arm_facts")
    st.markdown(model_wording.UNDO_MD)
    phrase = model_wording.arm_phrase(shown)
    reason = st.text_input(model_wording.REASON_LABEL, key=REASON, live=True, required=True, max_chars=500)
    typed = st.text_input(model_wording.phrase_label_md(phrase), key=PHRASE, live=True, autocomplete="off")
    if note := st.session_state.get(_NOTE):
        notices.problem(note, key="arm_note")
    with st.container(key="arm_buttons", horizontal=True, horizontal_alignment="right"):
        st.button(model_wording.CANCEL, key="arm_cancel", on_click=_cancel)
        st.button(
            model_wording.ARM_DO,
            key="arm_submit",
            type="primary",
            icon=":material/lock:",
            disabled=not ((reason or "").strip() and (typed or "").strip() == phrase),
            on_click=_submit,
            args=(draft, shown),
        )


def _over(modelled: Modelled) -> None:
    over = modelled.over
    if not over:
        st.badge(model_wording.NONE_OVER, icon=":material/check:", color="green")
        return
    with st.container(border=True, key="arm_over", gap="xsmall"):
        st.badge(model_wording.over_title_md(len(over)), icon=":material/block:", color="red")
        named = over[:NAMES_SHOWN]
        st.text(model_wording.over_names((row.subject for row in named), len(over) - len(named)))


def _cancel() -> None:
    _close()
    st.rerun()


def _submit(draft: CapDraft, shown: int) -> None:
    outcome = arming.arm(
        draft,
        reason=st.session_state.get(REASON) or "",
        phrase=st.session_state.get(PHRASE) or "",
        over_shown=shown,
    )
    if isinstance(outcome, arming.Armed):
        _close()
        notices.say(model_wording.armed_md(draft), ":material/lock:")
        st.rerun()
    st.session_state[_NOTE] = outcome.words
    if outcome.over is not None:
        st.session_state[_OVER] = outcome.over
        st.session_state[PHRASE] = ""
