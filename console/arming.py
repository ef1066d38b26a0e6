"""Arming a cap: the recount that a click has to survive, and the writes that follow it.

Nothing here draws. The dialog shows what `recount` found and hands the operator's words to `arm`, which recounts on
its own, so that nobody is stopped on the strength of a number that was true a minute ago.
"""

from __future__ import annotations

from dataclasses import dataclass

from console import cap_wording, data, model_wording
from console.bootstrap import services
from console.gateway_client import GatewayClient, GatewayError
from console.gateway_views import CapView
from console.modelling import Modelled
from console.state import CapDraft, Mistake
from toolkit.core.money import usd_text


@dataclass(frozen=True, slots=True)
class Armed:
    """The cap is armed, as the gateway answered."""

    cap: CapView


@dataclass(frozen=True, slots=True)
class NotArmed:
    """Nothing was armed, and why. `over` is the new count when it changed meanwhile."""

    words: str
    over: int | None = None


def recount(draft: CapDraft) -> Modelled | Mistake:
    """The draft on the history as it is this moment, or why it cannot be counted on it."""
    return data.modelled(data.copied(now=True), draft, services().clock())


def arm(draft: CapDraft, *, reason: str, phrase: str, over_shown: int) -> Armed | NotArmed:
    """Arm what the operator confirmed. Every doubt ends in NotArmed."""
    if not reason.strip():
        return NotArmed(model_wording.NOT_ARMED_REASON)
    if phrase.strip() != model_wording.arm_phrase(over_shown):
        return NotArmed(model_wording.not_armed_phrase(model_wording.arm_phrase(over_shown)))
    recounted = recount(draft)
    if isinstance(recounted, Mistake):
        return NotArmed(recounted.words)
    over = recounted.over_count
    if over != over_shown:
        return NotArmed(model_wording.count_changed(over_shown, over), over)
    gateway = services().gateway
    try:
        return Armed(_write(gateway, draft, reason.strip()))
    except GatewayError as error:
        return _after_failure(gateway, draft, error)


def _write(gateway: GatewayClient, draft: CapDraft, reason: str) -> CapView:
    """Find or make the cap, bring it to the draft's limits, arm it: stopping between leaves a cap that watches."""
    cap = same_line(gateway.caps(), draft)
    if cap is None:
        cap = gateway.create_cap(_fields(draft))
    elif not draft.is_same_cap(cap):
        cap = gateway.change_cap(cap.id, cap.version, _limits(draft))
    return cap if cap.hard_stop else gateway.arm(cap.id, cap.version, reason)


def _after_failure(gateway: GatewayClient, draft: CapDraft, error: GatewayError) -> Armed | NotArmed:
    """A write whose answer got lost may have been made: ask before saying that it was not."""
    try:
        cap = same_line(gateway.caps(), draft)
    except GatewayError:
        return NotArmed(model_wording.not_armed_unconfirmed(error.words))
    if cap is not None and cap.hard_stop and draft.is_same_cap(cap):
        return Armed(cap)
    return NotArmed(model_wording.not_armed(error.words))


def same_line(caps: tuple[CapView, ...], draft: CapDraft) -> CapView | None:
    """The stored cap of the draft's scope, subject and window; of several the armed one, then the oldest."""
    found = [cap for cap in caps if draft.is_same_line(cap)]
    return min(found, key=lambda cap: (not cap.hard_stop, cap.id), default=None)


def _fields(draft: CapDraft) -> dict[str, object]:
    return {
        "name": cap_wording.cap_name(draft),
        "scope": draft.scope,
        "subject": draft.subject,
        "window": draft.window,
        **_limits(draft),
    }


def _limits(draft: CapDraft) -> dict[str, object]:
    limit = draft.limit_nano_usd
    return {
        "limit_usd": None if limit is None else usd_text(limit, places=6),
        "token_limit": draft.token_limit,
        "request_limit": draft.request_limit,
        "admission": draft.admission,
        "unpriced": draft.unpriced,
    }
