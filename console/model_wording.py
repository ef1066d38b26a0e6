"""The words of modelling and arming: what a draft would have done, the rule it will be, and why it was not armed.

As in `wording`, `…_md` is Markdown of our own words and numbers, and everything else is plain text that may hold
names.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from console.cap_wording import ADMISSION_HELP, UNPRICED_RULES, amount, cap_rule, draft_rule, per, resets
from console.formatting import (
    count,
    day,
    inert,
    instant,
    md_dollars,
    percent,
    period,
    plural,
    short_period,
    total_usd,
)
from console.gateway_views import CapView
from console.modelling import Modelled
from console.state import CapDraft
from console.wording import customer_name
from toolkit.captext import without_price
from toolkit.core.caps import EACH
from toolkit.core.windows import Window

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
REFUSED_NEXT, NOBODY_NOW = "refused next", "nobody"
SUBJECT_TITLES: dict[str, str] = {
    "customer": "Customer",
    "key": "Key",
    "organization": "Organization",
    "project": "Project",
    "run": "Run",
}
SPENT_TITLE, OF_CAP_TITLE = "This window", "Of cap"
CURVE_TITLE = "How spend ran into the cap"
NO_CURVE = "This cap counts no single customer in dollars, so there is no curve of one."
JUDGED_HELP = (
    "Of the calls that reach a cap at all. Those refused earlier, such as an invalid request, are left out."
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
PICK_CUSTOMER, PICK_KEY = "Customer", "Key"
LIMIT_LABEL, WINDOW_LABEL, TARGET_LABEL = "Limit (USD)", "Window", "Counts"
RULES_LABEL, ADMISSION_LABEL, UNPRICED_LABEL = "Rules", "Admission", "Calls without a price"
LIMIT_HELP = "Dollars with up to six decimals. More decimals are refused, never rounded."


def model_sentence_md(modelled: Modelled) -> str:
    """The one sentence that reads aloud: what the limit stops. Beside it stands only what it is short enough for."""
    rule, found = (
        f"**{md_dollars(amount(modelled.draft))} {per(modelled.draft.window)}**",
        modelled.what_if.summary,
    )
    if not found.refused:
        return f"{rule} would have refused nobody in this history."
    stopped = found.refused - found.unpriced
    if not stopped:
        return f"{rule} would have stopped nothing; {without_price(found.unpriced, more=False)}."
    return (
        f"{rule} would have stopped **{md_dollars(total_usd(found.refused_nano_usd))}** and refused "
        f"**{plural(stopped, 'call')}** of **{plural(found.customers_stopped, 'customer')}**."
    )


def model_notes_md(modelled: Modelled) -> str:
    """What the sentence and the four cards do not say, where there is something to say."""
    found, notes = modelled.what_if.summary, []
    if found.unpriced:
        more = found.refused > found.unpriced
        notes.append(
            f"{without_price(found.unpriced, more=more)}, whatever was spent. What they cost is not known, so no "
            "dollars are counted for them."
        )
        if alone := found.customers_refused - found.customers_stopped:
            notes.append(f"{plural(alone, 'customer is', 'customers are')} refused for that reason alone.")
    if found.false_stops:
        notes.append(
            f"{plural(found.false_stops, 'of the refused calls', 'of the refused calls')} did not fit by worst case, "
            "though what they cost in the end would have: a lower output limit, or admission by Floor, may let them "
            "through."
        )
    if found.cost_unknown:
        notes.append(
            f"{plural(found.cost_unknown, 'call')} that history refused would be admitted by this cap. What they "
            "would have cost is not known, so they are in no figure here."
        )
    return " ".join(notes)


def of_spend_md(spend_nano_usd: int) -> str:
    """What a share is a share of, in dollars."""
    return f"of {total_usd(spend_nano_usd)}"


def of_count_md(number: int) -> str:
    """What a share is a share of, in numbers."""
    return f"of {count(number)}"


def over_period_md(modelled: Modelled) -> str:
    """What the count of those over now refers to, in the few letters that a card has room for."""
    return short_period(modelled.over_period)


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


ARM_OPEN, ARM_TITLE, ARM_DO, CANCEL = "Arm this cap…", "Arm this cap?", "Arm hard stop", "Cancel"
REASON_LABEL = "Reason (goes to the audit log)"
UNDO_MD = "**Undo:** Disarm is one click on every page, no confirmation."


def arm_phrase(over: int) -> str:
    """What has to be typed: it holds the live count, so that it cannot be typed blind."""
    return f"ARM {over}"


def phrase_label_md(phrase: str) -> str:
    """Over the field for the phrase. Without emphasis: a screen reader would read the signs out."""
    return f"Type {phrase} to confirm. The number is how many are over right now"


def arm_rule_md(draft: CapDraft) -> str:
    """The exact rule that will bind. The subject is not in it: it is somebody else's text."""
    whom = (
        f"each {draft.scope}, counted separately,"
        if draft.subject == EACH
        else f"the {draft.scope} named below"
    )
    return (
        f"From the moment you arm, calls are **refused with HTTP {draft.refusal_status}, code `budget_exceeded`,** for "
        f"{whom} once **{md_dollars(amount(draft))} {per(draft.window)}** is reached "
        f"({resets(draft.window)}). {ADMISSION_HELP[draft.admission]} {UNPRICED_RULES[draft.unpriced]}"
    )


def what_is_written(stored: CapView | None, draft: CapDraft) -> str:
    """What arming does to the caps that are stored: it makes one, changes one, or leaves one as it is."""
    if stored is None:
        return f"New cap: {draft_rule(draft)}"
    named = f"Cap {stored.id} {inert(stored.name)}".rstrip()
    if draft.is_same_cap(stored):
        return f"{named}: {draft_rule(draft)}"
    return f"{named}, until now {cap_rule(stored)}, becomes {draft_rule(draft)}"


def over_title_md(number: int) -> str:
    """How many are over, over the list of their names."""
    return f"{count(number)} already over"


def over_names(names: Iterable[str], more: int) -> str:
    """Who is refused first, by name."""
    rest = f" … and {count(more)} more" if more else ""
    return f"Refused on their next call: {', '.join(map(inert, names))}{rest}"


NONE_OVER = "Nobody has reached it yet"


def arm_facts(modelled: Modelled) -> dict[str, str]:
    """The replay's figures in the dialog."""
    found = modelled.what_if.summary
    share = percent(found.refused_nano_usd, found.total_nano_usd)
    alone = found.customers_refused - found.customers_stopped
    unpriced = f", {count(found.unpriced)} for want of a price" if found.unpriced else ""
    no_limit = f", {count(alone)} for want of a price alone" if alone else ""
    return {
        "Dollars stopped in the replay": f"{total_usd(found.refused_nano_usd)} ({share} of spend)",
        "Calls refused in the replay": f"{count(found.refused)} of {count(found.judged)}{unpriced}",
        "Customers refused in the replay": (
            f"{count(found.customers_refused)} of {count(found.customers)}{no_limit}"
        ),
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


def counts_from_earlier(since: datetime, window: Window) -> str:
    """The draft's window began before the part of a large ledger that was copied."""
    return (
        f"This page replays the receipts since {day(since)}, and a cap {per(window)} counts from earlier on. "
        "Model it with tk.what_if on an export, and arm it with capline cap arm."
    )


NOT_ARMED_REASON = "Not armed: a reason is required; it goes to the audit log."


def not_armed_phrase(phrase: str) -> str:
    """The phrase did not match."""
    return f"Not armed: type {phrase} exactly."


def armed_md(draft: CapDraft) -> str:
    """After arming went through."""
    return f"Armed: {md_dollars(amount(draft))} {per(draft.window)}. Disarm is in the bar below."
