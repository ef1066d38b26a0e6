"""Caps as text: every part of the command line's grammar, and the part at fault named."""

from __future__ import annotations

import pytest

from toolkit.captext import cap_words, counted, dollars, parse_cap_text
from toolkit.core.caps import Cap, Match
from toolkit.core.errors import InvalidCap


@pytest.mark.parametrize(
    ("text", "scope", "subject", "window", "limit", "admission"),
    [
        ("customer:* month 20", "customer", "*", "month", 20_000_000_000, "reserve"),
        ("customer:acme day 0.5 floor", "customer", "acme", "day", 500_000_000, "floor"),
        ("project:a:b never 0", "project", "a:b", "never", 0, "reserve"),
        ("run:night job 7 week 1.000001 after", "run", "night job 7", "week", 1_000_001_000, "after"),
        ("customer:day after year 3", "customer", "day after", "year", 3_000_000_000, "reserve"),
    ],
)
def test_a_cap_is_scope_subject_window_and_dollars(
    text: str, scope: str, subject: str, window: str, limit: int, admission: str
) -> None:
    cap = parse_cap_text(text)
    assert (cap.scope, cap.subject, cap.window) == (scope, subject, window)
    assert (cap.limit_nano_usd, cap.admission) == (limit, admission)
    assert not cap.hard_stop


def test_an_admission_in_the_text_wins_over_the_one_given() -> None:
    assert parse_cap_text("customer:* day 1", admission="after").admission == "after"
    assert parse_cap_text("customer:* day 1 floor", admission="after").admission == "floor"


def test_each_cap_takes_the_id_it_is_given() -> None:
    assert [parse_cap_text("customer:* day 1", cap_id=number).id for number in (1, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("text", "part", "says"),
    [
        ("", "cap", "SCOPE:SUBJECT WINDOW USD"),
        ("customer:* 20", "cap", "SCOPE:SUBJECT WINDOW USD"),
        ("customer month 20", "subject", "customer:*"),
        ("customer: month 20", "subject", "names no subject"),
        ("customers:* month 20", "scope", "organization, project, key, customer, run"),
        ("customer:* fortnight 20", "window", "day, week, month, year, never"),
        ("customer:* month 20$", "limit_usd", "'20$'"),
        ("customer:* month -1", "limit_usd", "'-1'"),
        ("customer:* month 1,000", "limit_usd", "'1,000'"),
        ("customer:* month 1e3", "limit_usd", "'1e3'"),
        ("customer:* month 0.0000001", "limit_usd", "7 decimals"),
        ("customer:a,b month 1", "subject", "without a comma"),
        ("customer:* month 1 later", "limit_usd", "'later'"),
    ],
)
def test_the_part_at_fault_is_named(text: str, part: str, says: str) -> None:
    with pytest.raises(InvalidCap) as caught:
        parse_cap_text(text)
    assert caught.value.field == part
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"limit_nano_usd": 10_000_000_000}, "$10.00 per day"),
        ({"limit_nano_usd": 1_234_500_000_000, "subject": "acme"}, "$1,234.50 per day for customer acme"),
        ({"limit_nano_usd": 1_500_000}, "$0.0015 per day"),
        (
            {"limit_nano_usd": 5_000_000_000, "scope": "project", "window": "never"},
            "$5.00 in all for each project",
        ),
        ({"token_limit": 1_000_000, "request_limit": 50}, "1,000,000 tokens and 50 requests per day"),
        ({"request_limit": 1, "match": Match(model="gpt-4o")}, "1 request per day for model gpt-4o"),
    ],
)
def test_a_cap_reads_as_the_start_of_a_sentence(columns: dict[str, object], words: str) -> None:
    cap = Cap(**({"id": 1, "scope": "customer", "subject": "*", "window": "day"} | columns))  # type: ignore[arg-type]
    assert cap_words(cap) == words


@pytest.mark.parametrize(
    ("nano_usd", "text"),
    [
        (0, "$0.00"),
        (1, "<$0.01"),
        (5_000_000, "<$0.01"),
        (5_000_001, "$0.01"),
        (15_000_000, "$0.02"),
        (25_000_000, "$0.02"),
        (114_990_000_000, "$114.99"),
        (1_043_834_000_000_000, "$1,043,834.00"),
        (-2_500_000_000, "-$2.50"),
        (-1, "-<$0.01"),
    ],
)
def test_totals_have_two_decimals_and_no_false_zero(nano_usd: int, text: str) -> None:
    assert dollars(nano_usd) == text


def test_one_is_not_plural() -> None:
    assert [counted(number, "customer") for number in (0, 1, 2_000)] == [
        "0 customers",
        "1 customer",
        "2,000 customers",
    ]
