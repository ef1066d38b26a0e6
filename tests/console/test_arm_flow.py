"""Arming wants the rule read, a reason, and the live count typed; every doubt leaves the cap watching. Disarming is
one click, wherever one is and whatever else is broken."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from console import arming, bootstrap, cap_wording, model_wording
from console.components import cards
from console.state import CapDraft
from tests.console.conftest import PAGES, Open
from tests.console.test_every_page import texts
from tests.support.fake_gateway import FakeGateway

# In the bundled month three customers counted $200.00 or more.
LIMIT = "200.00"
OVER = ("initech-042", "gringotts-119", "massive-052")
PHRASE = f"ARM {len(OVER)}"


@pytest.fixture
def gateway(fake: FakeGateway, sample: pl.DataFrame) -> FakeGateway:
    fake.receipts = sample.filter(pl.col("customer").is_in([*OVER, "umbra-062", "dunder-755"]))
    return fake


@pytest.fixture
def dialog(gateway: FakeGateway, open_page: Open) -> AppTest:
    """The arm dialog over a cap of $200.00 a month for each customer, as an operator opens it."""
    app = open_page("model_cap", limit=LIMIT)
    app.button(key="model_arm").click().run()
    assert not app.exception
    return app


def fill(app: AppTest, *, reason: str = "Runaway agent", phrase: str = PHRASE) -> AppTest:
    app.text_input(key="arm_reason").set_value(reason)
    app.text_input(key="arm_phrase").set_value(phrase)
    return app.run()


def test_the_dialog_says_the_rule_who_is_over_and_what_the_replay_found(dialog: AppTest) -> None:
    words = texts(dialog)
    assert "HTTP 402, code `budget_exceeded`" in words
    assert "$200.00 per month for each customer" in words
    assert "resets on the 1st of each month at 00:00 UTC" in words
    assert ", ".join(OVER) in words
    assert "3 already over" in words
    assert PHRASE in dialog.text_input(key="arm_phrase").label


def test_arming_makes_the_cap_and_arms_it(gateway: FakeGateway, dialog: AppTest) -> None:
    fill(dialog).button(key="arm_submit").click().run()
    assert not dialog.exception
    (cap,) = gateway.armed()
    assert (cap["scope"], cap["subject"], cap["window"], cap["limit_usd"]) == (
        "customer",
        "*",
        "month",
        LIMIT,
    )
    assert gateway.audit[-1]["action"] == "cap.arm"
    assert gateway.audit[-1]["reason"] == "Runaway agent"
    assert f"armed_{cap['id']}_disarm" in {button.key for button in dialog.button}
    assert "arm_submit" not in {button.key for button in dialog.button}


def test_arming_uses_the_cap_that_is_there_and_moves_its_limit(gateway: FakeGateway, dialog: AppTest) -> None:
    there = gateway.add_cap(limit_usd="5.00")
    fill(dialog)
    before = "until now $5.00 per month for each customer, becomes $200.00 per month for each customer"
    assert before in texts(dialog)
    dialog.button(key="arm_submit").click().run()
    (cap,) = gateway.caps.values()
    assert (cap["id"], cap["limit_usd"], cap["hard_stop"]) == (there["id"], LIMIT, True)


@pytest.mark.parametrize(
    ("reason", "phrase"),
    [
        ("Runaway", ""),
        ("Runaway", "ARM"),
        ("Runaway", "ARM 2"),
        ("Runaway", "arm 3"),
        ("", PHRASE),
        ("   ", PHRASE),
    ],
)
def test_without_a_reason_or_the_phrase_the_button_is_off(
    gateway: FakeGateway, dialog: AppTest, reason: str, phrase: str
) -> None:
    assert fill(dialog, reason=reason, phrase=phrase).button(key="arm_submit").disabled
    assert gateway.caps == {}


@pytest.mark.parametrize(
    ("reason", "phrase", "words"),
    [("", PHRASE, model_wording.NOT_ARMED_REASON), ("x", "ARM 2", model_wording.not_armed_phrase(PHRASE))],
)
def test_the_server_checks_what_a_browser_could_skip(
    gateway: FakeGateway, reason: str, phrase: str, words: str
) -> None:
    outcome = arming.arm(draft(), reason=reason, phrase=phrase, over_shown=len(OVER))
    assert outcome == arming.NotArmed(words)
    assert gateway.caps == {}


def test_a_count_that_changed_is_asked_again(
    gateway: FakeGateway, dialog: AppTest, sample: pl.DataFrame
) -> None:
    fill(dialog)
    spender = sample.filter(pl.col("customer") == "umbra-062", pl.col("status") == "served").tail(1)
    gateway.receipts = pl.concat(
        [
            gateway.receipts,
            spender.with_columns(
                receipt_id=pl.lit("rcp_late"), counted_nano_usd=pl.lit(100 * 10**9, dtype=pl.Int64)
            ),
        ]
    )
    dialog.button(key="arm_submit").click().run()
    assert model_wording.count_changed(len(OVER), len(OVER) + 1) in texts(dialog)
    assert gateway.caps == {}
    assert dialog.button(key="arm_submit").disabled
    fill(dialog, phrase=f"ARM {len(OVER) + 1}").button(key="arm_submit").click().run()
    assert len(gateway.armed()) == 1


@pytest.mark.parametrize("route", [("POST", "/api/caps"), ("POST", r"/api/caps/\d+/arm")])
@pytest.mark.parametrize("status", [403, 409, 422, 503])
def test_a_write_that_fails_says_not_armed(
    gateway: FakeGateway, dialog: AppTest, route: tuple[str, str], status: int
) -> None:
    gateway.fail[route] = (status, "Only owners and admins can change customer spending caps.")
    fill(dialog).button(key="arm_submit").click().run()
    assert not dialog.exception
    assert "Not armed: Only owners and admins can change customer spending caps." in texts(dialog)
    assert gateway.armed() == []


def test_a_gateway_that_went_away_is_not_called_armed(gateway: FakeGateway, dialog: AppTest) -> None:
    fill(dialog)
    gateway.down = True
    dialog.button(key="arm_submit").click().run()
    assert "Not armed as far as is known" in texts(dialog)


def test_arming_what_is_armed_already_changes_nothing(gateway: FakeGateway) -> None:
    gateway.add_cap(limit_usd=LIMIT, armed=True)
    writes = len(gateway.audit)
    outcome = arming.arm(draft(), reason="x", phrase=PHRASE, over_shown=len(OVER))
    assert isinstance(outcome, arming.Armed)
    assert len(gateway.audit) == writes


def test_cancel_closes_the_dialog(gateway: FakeGateway, dialog: AppTest) -> None:
    fill(dialog).button(key="arm_cancel").click().run()
    assert "arm_submit" not in {button.key for button in dialog.button}
    assert gateway.caps == {}


@pytest.mark.parametrize("page", PAGES)
def test_disarm_is_one_click_on_every_page(gateway: FakeGateway, open_page: Open, page: str) -> None:
    cap = gateway.add_cap(limit_usd=LIMIT, armed=True)
    app = open_page(page)
    app.button(key=f"armed_{cap['id']}_disarm").click().run()
    assert not app.exception
    assert gateway.armed() == []
    assert f"armed_{cap['id']}_disarm" not in {button.key for button in app.button}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_breaks_keeps_disarm(
    gateway: FakeGateway, open_page: Open, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    cap = gateway.add_cap(limit_usd=LIMIT, armed=True)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a panel broke")

    monkeypatch.setattr(cards, "header", broken)
    app = open_page(page)
    assert app.exception
    app.button(key=f"armed_{cap['id']}_disarm").click().run()
    assert gateway.armed() == []


def test_the_state_is_unknown_while_the_gateway_cannot_be_read(gateway: FakeGateway, open_page: Open) -> None:
    cap = gateway.add_cap(limit_usd=LIMIT, armed=True)
    app = open_page("overview")
    gateway.down = True
    app.run()
    words = texts(app)
    assert cap_wording.STATE_UNKNOWN in words
    assert cap_wording.NOTHING_ARMED not in words
    assert cap_wording.LAST_SEEN in words
    assert cap_wording.LAST_SEEN in texts(open_page("audit"))  # a new tab keeps Disarm too
    app.button(key=f"armed_{cap['id']}_disarm").click().run()
    assert "Not disarmed" in texts(app)


def test_a_gateway_never_seen_is_unknown_too(gateway: FakeGateway, open_page: Open) -> None:
    gateway.down = True
    words = texts(open_page("caps"))
    assert cap_wording.STATE_UNKNOWN in words
    assert cap_wording.NOTHING_ARMED not in words


def test_more_armed_caps_than_fit_are_disarmed_together(gateway: FakeGateway, open_page: Open) -> None:
    for customer in ("a", "b", "c", "d"):
        gateway.add_cap(subject=customer, limit_usd="1.00", armed=True)
    app = open_page("audit")
    app.button(key="armed_many_disarm").click().run()
    assert gateway.armed() == []


def test_a_cap_on_the_caps_page_is_armed_by_the_same_dialog(gateway: FakeGateway, open_page: Open) -> None:
    cap = gateway.add_cap(limit_usd=LIMIT)
    app = open_page("caps")
    app.button(key=f"cap_{cap['id']}_arm").click().run()
    fill(app).button(key="arm_submit").click().run()
    assert [armed["id"] for armed in gateway.armed()] == [cap["id"]]


def test_deleting_an_older_version_changes_nothing_and_says_so(gateway: FakeGateway, open_page: Open) -> None:
    cap = gateway.add_cap(limit_usd=LIMIT)
    app = open_page("caps")
    gateway._set(gateway.caps[cap["id"]], "cap.update", None, limit_usd="1.00")
    app.button(key=f"cap_{cap['id']}_delete").click().run()
    assert "Nothing was changed" in texts(app)
    assert list(gateway.caps) == [cap["id"]]
    app.button(key=f"cap_{cap['id']}_delete").click().run()
    assert gateway.caps == {}


def test_who_is_over_is_read_from_the_window_that_runs(gateway: FakeGateway) -> None:
    assert arming.recount(draft()).over_count == len(OVER)
    gateway.now = datetime(2026, 12, 1, tzinfo=UTC)
    assert arming.recount(draft()).over_count == 0
    gateway.now -= timedelta(microseconds=1)
    assert arming.recount(draft()).over_count == len(OVER)


def draft() -> CapDraft:
    return CapDraft(scope="customer", subject="*", window="month", limit_nano_usd=200 * 10**9)


def test_services_are_the_fake(gateway: FakeGateway) -> None:
    assert bootstrap.services().gateway.caps() == ()
