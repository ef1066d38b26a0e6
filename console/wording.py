"""Every sentence the operator reads, but those about caps (`cap_wording`) and about modelling (`model_wording`).

Two kinds, told apart by name. `…_md` goes to Markdown and is built from our own words and numbers alone. Everything
else is plain text, may carry names that customers and operators chose, and is only ever shown by `st.text` and table
cells.
"""

from __future__ import annotations

from datetime import datetime

from console.formatting import call_usd, day, day_range, inert, instant, md_dollars, plural, total_usd

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

NOBODY = "(no customer)"


def customer_name(customer: str | None) -> str:
    """A customer's own id, made inert; calls without one have a name of ours."""
    return NOBODY if customer is None else inert(customer)


def download_md(rows: int) -> str:
    """The button of a file: what is on the screen, with its number of rows."""
    return f"Download as CSV ({plural(rows, 'row')})"


def provenance_md(rows: int, customers: int, first: datetime | None, last: datetime | None) -> str:
    """The line under every title: rows, zone, currency, source, and how far the data reach."""
    if first is None or last is None:
        return "No receipts yet. Amounts will be in US dollars, days in UTC."
    return (
        f"{plural(rows, 'receipt')}, {plural(customers, 'customer')}, {day_range(first, last)}. "
        f"Amounts in US dollars, days in UTC. **Data through {instant(last)}**, from the gateway's ledger."
    )


def history_trouble(words: str, rows: int) -> str:
    """Over a page whose history could not be brought up to date."""
    if not rows:
        return f"{words} No history was fetched yet, so there is nothing to show meanwhile."
    return f"{words} The figures below stand on the last history that was fetched."


def part_md(since: datetime) -> str:
    """Under the title of a page that stands on a part of the ledger."""
    return f"The ledger is too large to copy: this page stands on the receipts admitted since {day(since)}."


def dearest_md(shown: int, named: int) -> str:
    """Under a list that is cut off."""
    return f"The {shown:,} dearest of {plural(named, 'customer')}; an export has them all."


FETCHING = "Reading the ledger…"
EMPTY_TITLE = "Nothing was spent yet"
EMPTY = (
    "As soon as a call goes through the gateway, its receipt shows up here. Make a key with capline key create NAME, "
    "point an SDK's base URL at the gateway, make one call, and come back."
)
PANEL_FAILED = "This panel could not be drawn. The rest of the page, and Disarm, work."

PERIOD_LABEL = "Period"


def change_md(before: int | None, short_period: str) -> str:
    """What a card's total is compared with, in the few letters that a card has room for."""
    return "no earlier period" if before is None else f"vs {short_period}"


def change_help_md(before: int | None, period: str, *, is_part: bool) -> str:
    """The comparison in full, where the card's question mark is asked."""
    if before is None:
        return CHANGE_HELP
    part = "the same part of " if is_part else ""
    return f"Against {part}{period}: {md_dollars(total_usd(before))}. {CHANGE_HELP}"


TOP_CUSTOMERS = "Top customers"
REFUSED_CARD, UNPRICED_CARD, SPEND_CARD, REQUESTS_CARD = (
    "Refused calls",
    "Unpriced calls",
    "Spend",
    "Requests",
)
CUSTOMERS_NOTE, OF_REQUESTS_NOTE = "customers", "of requests"
CHANGE_HELP = (
    "While a period runs, only the same part of the one before is counted, so that half a month is never held "
    "against a whole one."
)
UNPRICED_HELP = (
    "Served or abandoned calls whose cost is not known. They are not in any total; they are not free."
)

RECEIPTS_TITLE, REFUSALS_TITLE, BY_MODEL_TITLE, BY_DAY_TITLE = (
    "Last 200 receipts",
    "Refusals",
    "Spend by model",
    "Spend by day",
)
NO_REFUSALS = "No call of this customer was refused."
WHY_TITLE = "Why this call was refused"
WHY_HINT = "Choose a refusal to see which caps were looked at."
NO_TRACE = "No cap was asked: the call was refused before that."
CUSTOMER_HINT = "Choose a row to see one customer's days, models, receipts and refusals."
ONE_CUSTOMER_TITLE = "One customer"
UNKNOWN_REFERENCE = "The link names a customer that this ledger does not know."


def why_md(code: str | None, hold_nano_usd: int | None) -> str:
    """The refusal in one line, without anybody's name."""
    held = f" Its worst case was {md_dollars(call_usd(hold_nano_usd))}." if hold_nano_usd is not None else ""
    return f"Refused with code `{code}`.{held}" if code else "This call was not refused."


NO_AUDIT = "Nothing was changed yet"
NO_AUDIT_MORE = "Every cap that is made, armed, changed or disarmed will stand here with who did it and why."
AUDIT_NOTE_MD = "Written by the gateway with every change; nothing here can be edited or removed."
WHAT_TO_DO_MD = "**What you can do**"
NO_REASON = "no reason given"
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
    "Last admitted",
    "Data version",
)
STATUS_FACTS = {"served": "Served", "refused": "Refused", "failed": "Failed", "abandoned": "Abandoned"}
COVERAGE_TITLE = "What this page stands on"
