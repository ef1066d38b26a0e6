"""The words for caps: their rules, the armed bar, the page that lists them, and why one refused a call.

As in `wording`, `…_md` is Markdown of our own words and numbers, and everything else is plain text that may hold
names.
"""

from __future__ import annotations

from datetime import datetime

from console.formatting import UNKNOWN, call_usd, cap_usd, count, inert, instant, plural, total_usd
from console.gateway_views import CapView, LookView
from console.state import CapDraft, Target
from toolkit.core.caps import EACH, Admission, UnpricedPolicy

WINDOWS = {"day": "Day", "week": "Week", "month": "Month", "year": "Year", "never": "Never"}
PER = {"day": "per day", "week": "per week", "month": "per month", "year": "per year", "never": "in total"}
RESETS = {
    "day": "resets every day at 00:00 UTC",
    "week": "resets on Mondays at 00:00 UTC",
    "month": "resets on the 1st of each month at 00:00 UTC",
    "year": "resets on 1 January at 00:00 UTC",
    "never": "never resets",
}
TARGETS: dict[Target, str] = {
    "each_customer": "Each customer",
    "one_customer": "One customer",
    "organization": "Organization",
    "one_key": "One key",
}
ADMISSIONS: dict[Admission, str] = {"reserve": "Reserve", "floor": "Floor", "after": "After"}
ADMISSION_HELP: dict[Admission, str] = {
    "reserve": "Admits a call only if its worst case still fits. May refuse early.",
    "floor": "Admits while spend and the low estimates of running calls are below the limit. Trips late, never early.",
    "after": "Admits while recorded spend is below the limit. The call that crosses it completes.",
}
UNPRICED: dict[UnpricedPolicy, str] = {"refuse": "Refuse", "serve": "Serve"}
UNPRICED_RULES: dict[UnpricedPolicy, str] = {
    "refuse": "Refuses calls to a model without a price, whatever was spent: nothing can pass the cap unseen.",
    "serve": "Serves calls to a model without a price. They count nothing, so they can pass the cap.",
}
VERDICTS = {"fits": "had room", "busy": "full only while other calls run", "final": "does not fit"}
UNITS = {"usd": "dollars", "tokens": "tokens", "requests": "requests"}


def who_each(scope: str, subject: str) -> str:
    """Whom a cap counts, in words; the subject is somebody else's text."""
    if subject == EACH:
        return f"each {scope}"
    return f"{scope} {inert(subject)}"


def amount(cap: CapView | CapDraft) -> str:
    """A cap's limits on all axes it has."""
    parts = []
    if cap.limit_nano_usd is not None:
        parts.append(cap_usd(cap.limit_nano_usd))
    if cap.token_limit is not None:
        parts.append(f"{count(cap.token_limit)} tokens")
    if cap.request_limit is not None:
        parts.append(f"{count(cap.request_limit)} requests")
    return " and ".join(parts) or UNKNOWN


def per(window: str) -> str:
    """A window after an amount: `per month`, `in any 30 days`."""
    return PER.get(window, f"in any {window.removeprefix('rolling:')}")


def resets(window: str) -> str:
    """When a window starts over."""
    return RESETS.get(window, f"rolls: always the last {window.removeprefix('rolling:')}")


def cap_rule(cap: CapView) -> str:
    """A stored cap in one line: amount, window, whom."""
    whom = [who_each(cap.scope, cap.subject), *_narrowed(cap.provider, cap.model, cap.tag)]
    return f"{amount(cap)} {per(cap.window)} for {', '.join(whom)}"


def draft_rule(draft: CapDraft) -> str:
    """A draft in one line: amount, window, whom."""
    whom = [who_each(draft.scope, draft.subject), *_narrowed(*draft.match)]
    return f"{amount(draft)} {per(draft.window)} for {', '.join(whom)}"


def _narrowed(provider: str | None, model: str | None, tag: str | None) -> list[str]:
    named = (("provider", provider), ("model", model), ("tag", tag))
    return [f"{word} {inert(value)}" for word, value in named if value is not None]


def cap_name(draft: CapDraft) -> str:
    """The name of a cap that the console makes."""
    whom = f"Each {draft.scope}" if draft.subject == EACH else f"One {draft.scope}"
    return f"{whom} {PER[draft.window]}"


ARMED = "Hard stop armed"
STATE_UNKNOWN = "State unknown"
NOTHING_ARMED = "Watching, nothing armed"
DISARM, DISARM_ALL = "Disarm now", "Disarm all"


def armed_since(cap: CapView) -> str:
    """An armed cap in the bar: the rule, since when, and who changed it last."""
    since = f", armed {instant(cap.armed_at)}" if cap.armed_at else ""
    return f"{cap_rule(cap)}{since} by {inert(cap.updated_by)}"


def armed_count_md(number: int) -> str:
    """The state beside the pages."""
    return f"{plural(number, 'hard stop')} armed"


def armed_many(number: int) -> str:
    """More armed caps than the bar has lines for."""
    return f"{count(number)} hard stops are armed; the Caps page lists them"


def state_unknown(words: str) -> str:
    """The bar when the gateway cannot be read: it claims nothing."""
    return f"{words} A hard stop may be armed."


LAST_SEEN = "Last seen armed:"


def disarmed_md() -> str:
    """After a disarm went through."""
    return "Disarmed. The next call is judged without it."


def disarm_failed(words: str) -> str:
    """After a disarm did not go through: the cap has to be taken for armed."""
    return f"Not disarmed: {words}"


STATE_ARMED, STATE_WATCHING = "Armed", "Watching"
NO_CAPS_TITLE = "No caps yet"
NO_CAPS = "Model one on your history first: you see whom it would have stopped before it stops anybody."
TO_MODEL = "Model a cap"
DELETE, DELETE_SURE = "Delete", "Delete this cap"
DELETE_WARNING_MD = (
    "What was spent stays counted: a cap made again with the same scope and window goes on from there."
)
ARM_SHORT, DISARM_SHORT = "Arm…", "Disarm"


def cap_terms_md(cap: CapView) -> str:
    """The rest of a cap's rule: when it starts over and how it admits. No name is in it."""
    starts_over = resets(cap.window)
    words = f"{starts_over[0].upper()}{starts_over[1:]}. {ADMISSION_HELP[cap.admission]}"
    return f"{words} {UNPRICED_RULES[cap.unpriced]}"


def armed_by(actor: str | None, at: datetime) -> str:
    """Who armed a cap, and when."""
    return f"Armed by {inert(actor)}, {instant(at)}"


def refused_since(number: int, at: datetime | None) -> str:
    """What an armed cap refused since it was armed."""
    return f"{plural(number, 'call')} refused since {instant(at)}"


def cap_deleted_md() -> str:
    """After a delete went through."""
    return "Deleted."


def cap_failed(words: str) -> str:
    """A change of a cap that did not go through."""
    return f"Nothing was changed: {words}"


def look_cells(look: LookView) -> dict[str, str]:
    """One cap of a decision trace, every cell in words."""
    show = total_usd if look.unit == "usd" else count
    armed = f"armed by {look.armed_by}" if look.armed_by else "armed"
    return {
        "cap": f"{look.cap_id} {look.name}".strip(),
        "counts": f"{UNITS.get(look.unit, look.unit)} {per(look.window)}, {look.scope}",
        "armed": armed if look.binds else "watching",
        "limit": show(look.limit),
        "spent": show(look.spent),
        "held": show(look.held),
        "hold": call_usd(look.hold) if look.unit == "usd" else count(look.hold),
        "verdict": VERDICTS.get(look.verdict, look.verdict),
    }
