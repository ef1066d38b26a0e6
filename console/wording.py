"""Every sentence the operator reads.

Two kinds, told apart by name. `…_md` goes to Markdown and is built from our own words and numbers alone. Everything
else is plain text, may carry names that customers and operators chose, and is only ever shown by `st.text` and table
cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from console.formatting import UNKNOWN, cap_usd, count, day_range, inert, instant, percent, period, total_usd
from console.gateway_views import CapView, LookView
from console.modelling import Modelled
from console.state import CapDraft, Target
from toolkit.core.caps import EACH, Admission, UnpricedPolicy

# Titles ------------------------------------------------------------------------------------------------------------

PRODUCT = "Capline"
OVERVIEW, CUSTOMERS, MODEL, CAPS, AUDIT, HEALTH = (
    "Overview",
    "Customers",
    "Model a cap",
    "Caps",
    "Audit log",
    "Unpriced & data health",
)
WATCH, CONTROL, EVIDENCE = "Watch", "Control", "Evidence"

PAGE_HELP = {
    OVERVIEW: "What was spent in this window, by whom, and how it changed. Armed caps come first.",
    CUSTOMERS: "Every customer's requests and cost; one customer's days, models, receipts and refusals.",
    MODEL: "Replay a cap on the history you have, see whom it would have stopped, then arm it.",
    CAPS: "Every cap with its state, who armed it and what it refused since. Arm, disarm, delete.",
    AUDIT: "Every change: when, who, what, before, after and why.",
    HEALTH: "Requests without a price, and how complete the history on this side is.",
}

# Words of the contract ---------------------------------------------------------------------------------------------

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
    "reserve": "Admits a call only if its worst case still fits. Never passes the limit; may refuse early.",
    "floor": "Admits while spend and the low estimates of running calls are below the limit. Trips late, never early.",
    "after": "Admits while recorded spend is below the limit. The call that crosses it completes.",
}
UNPRICED: dict[UnpricedPolicy, str] = {"refuse": "Refuse", "serve": "Serve"}
UNPRICED_RULES: dict[UnpricedPolicy, str] = {
    "refuse": "Refuses calls to a model without a price, whatever was spent: nothing can pass the cap unseen.",
    "serve": "Serves calls to a model without a price. They count nothing, so they can pass the cap.",
}
VERDICTS = {"fits": "had room", "busy": "full only while other calls run", "final": "no room left"}
UNITS = {"usd": "dollars", "tokens": "tokens", "requests": "requests"}
NOBODY = "(no customer)"


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


def customer_name(customer: str | None) -> str:
    """A customer's own id, made inert; calls without one have a name of ours."""
    return NOBODY if customer is None else inert(customer)


# The armed bar -----------------------------------------------------------------------------------------------------

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
    return f"{_plural(number, 'hard stop')} armed"


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


# Where figures come from -------------------------------------------------------------------------------------------


def provenance_md(rows: int, customers: int, first: datetime | None, last: datetime | None) -> str:
    """The line under every title: rows, zone, currency, source, and how far the data reach."""
    if first is None or last is None:
        return "No receipts yet. Amounts will be in US dollars, days in UTC."
    return (
        f"{_plural(rows, 'receipt')}, {_plural(customers, 'customer')}, {day_range(first, last)}. "
        f"Amounts in US dollars, days in UTC. **Data through {instant(last)}**, from the gateway's ledger."
    )


def history_trouble(words: str) -> str:
    """Over a page whose history could not be brought up to date."""
    return f"{words} The figures below stand on the last history that was fetched."


FETCHING = "Reading the ledger…"
EMPTY_TITLE = "Nothing was spent yet"
EMPTY = (
    "As soon as a call goes through the gateway, its receipt shows up here. Point an SDK's base URL at the gateway, "
    "make one call, and come back."
)
PANEL_FAILED = "This panel could not be drawn. The rest of the page, and Disarm, work."

PERIOD_LABEL = "Period"

# Overview ----------------------------------------------------------------------------------------------------------


def change_md(before: int | None, period: str, *, is_part: bool) -> str:
    """What a card's total is compared with."""
    if before is None:
        return "no earlier period"
    return f"{'than the same part of' if is_part else 'than'} {period} ({total_usd(before)})"


TOP_CUSTOMERS = "Top customers"
REFUSED_CARD, UNPRICED_CARD, SPEND_CARD, REQUESTS_CARD = (
    "Refused calls",
    "Unpriced calls",
    "Spend",
    "Requests",
)
CUSTOMERS_NOTE, OF_REQUESTS_NOTE = "customers", "of requests"
CHANGE_HELP = (
    "Against the period before. While a period runs, only the same part of the one before is counted, so that half "
    "a month is never held against a whole one."
)
UNPRICED_HELP = (
    "Served or abandoned calls whose cost is not known. They are not in any total; they are not free."
)

# Model a cap -------------------------------------------------------------------------------------------------------

MODELLING_BADGE = "Modelling only. This blocks nothing"
CAVEAT_MD = (
    "The gateway's own decision function, replayed on recorded calls. **History is fixed here:** in life, refused "
    "customers would have retried, fallen back or left. Read it as spend above the cap in this history, not as "
    "savings. This cap alone is replayed; other caps are left out."
)
DOLLARS_STOPPED, CALLS_REFUSED, CUSTOMERS_REFUSED, OVER_NOW = (
    "Dollars stopped",
    "Calls refused",
    "Customers refused",
    "Over the cap now",
)
REFUSED_ON_ARMING, NOBODY_NOW = "refused on arming", "nobody"
SUBJECT_TITLES: dict[str, str] = {
    "customer": "Customer",
    "key": "Key",
    "organization": "Organization",
    "project": "Project",
    "run": "Run",
}
SPENT_TITLE, OF_CAP_TITLE = "This window", "Of cap"
CURVE_TITLE = "How spend ran into the cap"
NO_CURVE = (
    "Only calls to a model without a price would have been refused here; the limit itself was never reached."
)
OVER_HELP = (
    "Counted spend of the running window has reached the limit. Once armed, their next call is refused."
)
DAILY_TITLE = "Daily spend, and what this cap would have stopped"
ALREADY_OVER = "Already over, refused first"
NOBODY_OVER = "Nobody is over this cap now."
WHO_TITLE = "Who would have been refused"
NOBODY_REFUSED = "This cap would have refused nobody in this history."
CURVE_HINT = "Choose a row to see how that customer ran into the cap."
ADMITTED, STOPPED, SPENT_ANYWAY = "Admitted", "Stopped", "What they spent anyway"
PICK_CUSTOMER, PICK_KEY = "Customer", "Key"
LIMIT_LABEL, WINDOW_LABEL, TARGET_LABEL = "Limit (USD)", "Window", "Counts"
RULES_LABEL, ADMISSION_LABEL, UNPRICED_LABEL = "Rules", "Admission", "Calls without a price"
LIMIT_HELP = "Dollars with up to six decimals. More decimals are refused, never rounded."
DOWNLOAD = "Download as CSV"


def model_sentence_md(modelled: Modelled) -> str:
    """The one sentence that reads aloud."""
    rule = f"**{_md(amount(modelled.draft))} {per(modelled.draft.window)}**"
    if not modelled.calls_refused:
        return f"{rule} would have refused nobody in this history."
    return (
        f"{rule} would have stopped **{_md(total_usd(modelled.stopped_nano_usd))}** and refused "
        f"**{_plural(modelled.calls_refused, 'call')}** of **{_plural(modelled.customers_refused, 'customer')}**."
    )


def unpriced_refused_md(calls: int) -> str:
    """The calls that a draft refuses for want of a price, which no limit would let through."""
    return (
        f"{_plural(calls, 'of these calls', 'of these calls')} went to a model without a price: this cap refuses them "
        "whatever was spent. Their cost is not known, so no dollars are counted for them."
    )


def of_spend_md(spend_nano_usd: int) -> str:
    """What a share is a share of, in dollars."""
    return f"of {total_usd(spend_nano_usd)}"


def of_count_md(number: int) -> str:
    """What a share is a share of, in numbers."""
    return f"of {count(number)}"


def cost_unknown_md(calls: int) -> str:
    """Calls that history refused and the draft would admit: nobody knows what they would have cost."""
    return (
        f"{_plural(calls, 'call')} that history refused would be admitted by this cap. What they would have cost is "
        "not known, so they are in no figure here."
    )


def over_period_md(modelled: Modelled) -> str:
    """What the count of those over now refers to."""
    return f"in {period(modelled.over_period)}"


def ended_over_md(modelled: Modelled) -> str:
    """Over the list when the running window is empty: how the last one with data ended."""
    ended = period(modelled.ended_period or "all")
    return (
        f"Nobody is over now: {period(modelled.over_period)} has no calls yet. These ended {ended} at or over the "
        "limit; that window is closed."
    )


def curve_title(customer: str | None, first: datetime | None) -> str:
    """Over one customer's curve."""
    return f"{customer_name(customer)}: first refused {instant(first)}" if first else customer_name(customer)


# Arm ---------------------------------------------------------------------------------------------------------------

ARM_OPEN, ARM_TITLE, ARM_DO, CANCEL = "Arm this cap…", "Arm this cap?", "Arm hard stop", "Cancel"
REASON_LABEL = "Reason (goes to the audit log)"
UNDO_MD = "**Undo:** Disarm is one click on every page, no confirmation."


def arm_phrase(over: int) -> str:
    """What has to be typed: it holds the live count, so that it cannot be typed blind."""
    return f"ARM {over}"


def phrase_label_md(phrase: str) -> str:
    """Over the field for the phrase."""
    return f"Type **{phrase}** to confirm. The number is how many are over right now"


def arm_rule_md(draft: CapDraft) -> str:
    """The exact rule that will bind. The subject is not in it: it is somebody else's text."""
    whom = (
        f"each {draft.scope}, counted separately,"
        if draft.subject == EACH
        else f"the {draft.scope} named below"
    )
    return (
        f"From the moment you arm, calls are **refused with HTTP {draft.refusal_status}, code `budget_exceeded`,** for "
        f"{whom} once **{_md(amount(draft))} {per(draft.window)}** is reached "
        f"({resets(draft.window)}). {ADMISSION_HELP[draft.admission]} {UNPRICED_RULES[draft.unpriced]}"
    )


def over_title_md(number: int) -> str:
    """How many are over, over the list of their names."""
    return f"{count(number)} already over"


def over_names(names: Iterable[str], more: int) -> str:
    """Who is refused first, by name."""
    rest = f" … and {count(more)} more" if more else ""
    return f"Refused on their next call: {', '.join(map(inert, names))}{rest}"


NONE_OVER = "Nobody is over it now: nothing is refused until someone reaches it."


def arm_facts(modelled: Modelled) -> dict[str, str]:
    """The replay's figures in the dialog."""
    share = percent(modelled.stopped_nano_usd, modelled.spend_nano_usd)
    unpriced = (
        f", {count(modelled.unpriced_refused)} for want of a price" if modelled.unpriced_refused else ""
    )
    return {
        "Dollars stopped in the replay": f"{total_usd(modelled.stopped_nano_usd)} ({share} of spend)",
        "Calls refused in the replay": f"{count(modelled.calls_refused)} of {count(modelled.calls)}{unpriced}",
        "Customers refused in the replay": f"{count(modelled.customers_refused)} of {count(modelled.customers)}",
    }


def count_changed(before: int, after: int) -> str:
    """The recount at submit found another number."""
    return f"Not armed: while this was open the count changed from {before} to {after}. Read the list and type again."


def not_armed(words: str) -> str:
    """A write that failed."""
    return f"Not armed: {words}"


def not_armed_unconfirmed(words: str) -> str:
    """A write whose answer got lost, and a gateway that cannot be asked."""
    return f"Not armed as far as is known: {words} The bar below shows the state as soon as it can be read."


NOT_ARMED_REASON = "Not armed: a reason is required; it goes to the audit log."


def not_armed_phrase(phrase: str) -> str:
    """The phrase did not match."""
    return f"Not armed: type {phrase} exactly."


def cap_name(draft: CapDraft) -> str:
    """The name of a cap that the console makes."""
    whom = f"Each {draft.scope}" if draft.subject == EACH else f"One {draft.scope}"
    return f"{whom} {PER[draft.window]}"


def armed_md(draft: CapDraft) -> str:
    """After arming went through."""
    return f"Armed: {_md(amount(draft))} {per(draft.window)}. Disarm is in the bar below."


# Caps --------------------------------------------------------------------------------------------------------------

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
    return f"{_plural(number, 'call')} refused since {instant(at)}"


def cap_deleted_md() -> str:
    """After a delete went through."""
    return "Deleted."


def cap_failed(words: str) -> str:
    """A change of a cap that did not go through."""
    return f"Nothing was changed: {words}"


# Customers ---------------------------------------------------------------------------------------------------------

RECEIPTS_TITLE, REFUSALS_TITLE, BY_MODEL_TITLE, BY_DAY_TITLE = (
    "Last 200 receipts",
    "Refusals",
    "Spend by model",
    "Spend by day",
)
NO_REFUSALS = "Nothing was refused in this period."
WHY_TITLE = "Why this call was refused"
WHY_HINT = "Choose a refusal to see which caps were looked at."
NO_TRACE = "No cap was asked: the call was refused before that."
CUSTOMER_HINT = "Choose a row to see one customer's days, models, receipts and refusals."
ONE_CUSTOMER_TITLE = "One customer"
UNKNOWN_REFERENCE = "The link names a customer that this ledger does not know."


def why_md(code: str | None, hold_nano_usd: int | None) -> str:
    """The refusal in one line, without anybody's name."""
    held = f" Its worst case was {_md(total_usd(hold_nano_usd))}." if hold_nano_usd is not None else ""
    return f"Refused with code `{code}`.{held}" if code else "This call was not refused."


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
        "hold": show(look.hold),
        "verdict": VERDICTS.get(look.verdict, look.verdict),
    }


# Evidence ----------------------------------------------------------------------------------------------------------

NO_AUDIT = "Nothing was changed yet"
NO_AUDIT_MORE = "Every cap that is made, armed, changed or disarmed will stand here with who did it and why."
AUDIT_NOTE_MD = "Written by the gateway with every change; nothing here can be edited or removed."
UNPRICED_NOTE_MD = (
    "A call without a price is never counted as free. It is in no total; an armed cap that refuses unpriced models "
    "refuses it, and a correction prices it later."
)
NO_UNPRICED = "Every served call has a price."
LISTS_TITLE = "Spend by price list"
LISTS_NOTE_MD = "A month that two price lists share has a total without a list."
TOTAL, NO_LIST = "Total", "No list"
RECEIPTS_FACT, FIRST_FACT, LAST_FACT, VERSION_FACT = (
    "Receipts",
    "First admitted",
    "Last settled",
    "Data version",
)
STATUS_FACTS = {"served": "Served", "refused": "Refused", "failed": "Failed", "abandoned": "Abandoned"}
COVERAGE_TITLE = "What this page stands on"


def _plural(number: int, word: str, many: str | None = None) -> str:
    return f"{count(number)} {word if number == 1 else many or f'{word}s'}"


def _md(dollars: str) -> str:
    """Dollar text for Markdown: two bare dollar signs could be taken for a formula."""
    return dollars.replace("$", r"\$")
