"""The sentences: all of them used, none made elsewhere, and nobody's name able to do anything in them."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest

from console import cap_wording, model_wording, wording
from console.gateway_views import CapView
from console.launch import APP
from console.state import CapDraft, Mistake, draft_of
from tests.console.test_lint import MODULES

WORDS = (wording, cap_wording, model_wording)
HOSTILE = "![a](https://e.example/x.png)\u202e=cmd<b>"


@pytest.mark.parametrize("words", WORDS, ids=lambda words: str(words.__name__))
def test_every_word_is_used_and_every_used_word_is_there(words: ModuleType) -> None:
    name = words.__name__.rpartition(".")[2]
    asked = {
        word
        for path in MODULES
        for word in re.findall(rf"(?<!_)\b{name}\.([A-Za-z_]+)", path.read_text("utf-8"))
    }
    source = "\n".join(inspect.getsource(module) for module in WORDS)
    assert asked - set(vars(words)) == set()
    assert {word for word in _own(words) - asked if len(re.findall(rf"\b{word}\b", source)) < 2} == set()


def test_sentences_are_tidy() -> None:
    constants = [value for words in WORDS for name, value in vars(words).items() if name.isupper()]
    texts = [value for value in constants if isinstance(value, str)]
    assert len(texts) > 50
    assert [text for text in texts if text != text.strip() or "  " in text] == []


def test_no_sentence_mentions_the_wrong_status() -> None:
    assert not any("429" in inspect.getsource(words) for words in WORDS)
    assert "402" in model_wording.arm_rule_md(draft())


@pytest.mark.parametrize("make", [cap_wording.armed_since, cap_wording.cap_rule])
def test_a_name_in_plain_text_is_made_inert(make: object) -> None:
    words = make(hostile_cap())  # type: ignore[operator]
    assert "\u202e" not in words
    assert "⟨U+202E⟩" in words


def test_what_goes_to_markdown_carries_no_name() -> None:
    named = CapDraft(scope="customer", subject=HOSTILE, window="month", limit_nano_usd=10**9)
    assert "e.example" not in model_wording.arm_rule_md(named) + model_wording.armed_md(
        named
    ) + cap_wording.cap_name(named)
    assert "e.example" not in cap_wording.cap_terms_md(hostile_cap())


def test_dollars_in_markdown_are_no_formula() -> None:
    assert r"**\$200.00 per month**" in model_wording.arm_rule_md(draft())


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("", "not an amount"),
        ("-1", "not an amount"),
        ("1e3", "not an amount"),
        ("1,000", "not an amount"),
        ("nan", "not an amount"),
        ("0.0000001", "7 decimals"),
    ],
)
def test_an_amount_that_is_none_is_said_in_one_line(limit: str, says: str) -> None:
    found = draft_of(
        "each_customer", None, window="month", limit_text=limit, admission="reserve", unpriced="refuse"
    )
    assert isinstance(found, Mistake)
    assert says in found.words


def test_an_amount_with_six_decimals_is_kept_exactly() -> None:
    found = draft_of(
        "each_customer", None, window="day", limit_text=" $0.000001 ", admission="after", unpriced="serve"
    )
    assert isinstance(found, CapDraft)
    assert (found.limit_nano_usd, found.subject, found.admission) == (1_000, "*", "after")


@pytest.mark.parametrize("control", ["window", "admission", "unpriced"])
def test_a_value_that_is_on_no_list_is_refused(control: str) -> None:
    controls = {"window": "month", "admission": "reserve", "unpriced": "refuse", control: "other"}
    found = draft_of("each_customer", None, limit_text="1", **controls)
    assert isinstance(found, Mistake)


def test_the_icon_lies_beside_the_app() -> None:
    assert (APP.parent / "assets" / "icon.png").read_bytes().startswith(b"\x89PNG")


def draft() -> CapDraft:
    return CapDraft(scope="customer", subject="*", window="month", limit_nano_usd=200 * 10**9)


def hostile_cap() -> CapView:
    return CapView(
        id=1,
        name=HOSTILE,
        scope="customer",
        subject=HOSTILE,
        provider=None,
        model=HOSTILE,
        tag=None,
        window="month",
        limit_nano_usd=10**9,
        token_limit=5,
        request_limit=6,
        hard_stop=True,
        admission="reserve",
        unpriced="refuse",
        refusal_status=402,
        version=1,
        updated_at=None,
        updated_by=HOSTILE,
        armed_at=None,
    )


def _own(words: ModuleType) -> set[str]:
    """The constants and functions that a module makes itself."""
    source = inspect.getsource(words)
    made = re.findall(r"^def ([a-z]\w*)", source, re.M) + re.findall(r"^([A-Z][A-Z_]*)\b", source, re.M)
    return set(made) & set(vars(words))
