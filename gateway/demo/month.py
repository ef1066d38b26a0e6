"""The keys and caps of the demo month, as the receipts in `data/sample` name them.

`toolkit.synth` made that month and has the same cast; the gateway imports nothing of the toolkit but its kernel, so it
is written down here once more, and a test holds the two together.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from gateway.stores.database import DEFAULT_ORGANIZATION
from toolkit.core.caps import Cap
from toolkit.core.money import NANO_PER_USD

CREATED_AT = datetime(2026, 10, 28, 14, 30, tzinfo=UTC)
ARMED_AT = datetime(2026, 11, 20, 9, tzinfo=UTC)
DISARMED_AT = datetime(2026, 12, 1, tzinfo=UTC)
"""The demo begins with both caps watching, so that its reader models and arms one himself."""

ARMED_BECAUSE = "initech-042 spent $240 in one day: an agent in a loop"
DISARMED_BECAUSE = "The demo starts with every cap watching: model this one, then arm it yourself"


class DemoKey(NamedTuple):
    """A key as the month's receipts name it."""

    id: str
    name: str
    project: str | None
    require_customer: bool


KEYS = (
    DemoKey("key_a1c4assistweb", "assistant-web", "assistant", require_customer=True),
    DemoKey("key_b7e2assistapi", "assistant-api", "assistant", require_customer=True),
    DemoKey("key_c9d0searchapi", "search-api", "search", require_customer=True),
    DemoKey("key_d3f8searchjob", "search-jobs", "search", require_customer=False),
    DemoKey("key_e5a6internal0", "internal-evals", None, require_customer=False),
)
READERS_KEY = DemoKey("key_demo", "demo", None, require_customer=False)
"""The key whose secret the reader gets, for the first calls of his own."""

WHOLE_ORGANIZATION = Cap(
    id=1,
    name="Whole organization",
    scope="organization",
    subject=DEFAULT_ORGANIZATION,
    window="month",
    limit_nano_usd=5_000 * NANO_PER_USD,
    created_at=CREATED_AT,
    updated_at=CREATED_AT,
    updated_by="admin",
)
EACH_CUSTOMER = Cap(
    id=2,
    name="Each customer a day",
    scope="customer",
    subject="*",
    window="day",
    limit_nano_usd=25 * NANO_PER_USD,
    unpriced="serve",
    created_at=CREATED_AT,
    updated_at=CREATED_AT,
    updated_by="admin",
)
EACH_CUSTOMER_ARMED = replace(
    EACH_CUSTOMER, hard_stop=True, version=2, armed_at=ARMED_AT, updated_at=ARMED_AT
)
EACH_CUSTOMER_NOW = replace(EACH_CUSTOMER, version=3, updated_at=DISARMED_AT)

CAPS_BY_INSTANT = (
    (CREATED_AT, (WHOLE_ORGANIZATION, EACH_CUSTOMER)),
    (ARMED_AT, (WHOLE_ORGANIZATION, EACH_CUSTOMER_ARMED)),
)
"""The caps in force while the month was made, each set with the instant from which it was."""
