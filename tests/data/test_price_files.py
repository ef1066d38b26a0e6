"""The embedded price lists are what their names say and keep their rules; the compiler keeps them too."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import timeit
import zipfile
from decimal import Decimal
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk
from toolkit.core.pricefile import load_price_file

PRICES = Path(__file__).resolve().parents[2] / "data" / "prices"
DIGESTS = {
    "2026-10-21-15a0a7467c32.json": "15a0a7467c32ffe552d0cb80ff3a7f3d80391d400f8c14e61905bb82256f2526",
    "2026-11-20-26706882974b.json": "26706882974baab9168f15bdde99fe8d3f4a78e24ac092e2ffbc8ba4bcdd320d",
}
METERS = {
    "input",
    "cache_read",
    "cache_write_5m",
    "cache_write_1h",
    "output",
    "audio_input",
    "audio_output",
    "image",
}
COLUMNS = {
    "provider",
    "model",
    "aliases",
    "kind",
    "tier",
    "prompt_above",
    "effective_from",
    "effective_to",
    "rates",
    "fees",
    "max_input_tokens",
    "max_output_tokens",
    "sources",
}
SOMETIMES = {"prompt_from", "peak"}
PROVIDERS = {
    "openai",
    "anthropic",
    "google",
    "mistral",
    "groq",
    "deepseek",
    "xai",
    "aws",
    "azure",
    "cohere",
    "voyageai",
    "openrouter",
}
FEES = {
    "web_search",
    "web_fetch",
    "seconds",
    "requests",
    "image_output_tokens",
    "cache_read_image_tokens",
    "cache_read_audio_tokens",
}
TIER = re.compile(r"standard|((batch|flex|priority|fast)( (us|data-zone))?|us|data-zone)")
INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
AMOUNT = re.compile(r"(0|[1-9]\d*)(\.\d{0,5}[1-9])?")
NOVEMBER = "2026-11-15T12:00:00Z"

Row = dict[str, Any]


def read(name: str) -> dict[str, Any]:
    """One list; a float in it is an error."""

    def refuse(number: str) -> None:
        raise AssertionError(f"{number} is a float")

    content: dict[str, Any] = json.loads((PRICES / name).read_text("utf-8"), parse_float=refuse)
    return content


def digest(content: Any) -> str:
    """SHA-256 of the canonical form."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


LISTS = {name: read(name) for name in DIGESTS}
OLDER, NEWER = (LISTS[name]["rows"] for name in sorted(DIGESTS))
every_list = pytest.mark.parametrize("name", sorted(DIGESTS))


def above(row: Row) -> int:
    """The threshold in one form: a row prices a prompt of more tokens than this, the base row any."""
    if row.get("prompt_from") is not None:
        return int(row["prompt_from"]) - 1
    return -1 if row["prompt_above"] is None else int(row["prompt_above"])


def find(rows: list[Row], provider: str, model: str, at: str = NOVEMBER, **key: Any) -> Row:
    """The one row that prices a model at an instant."""
    wanted = {"tier": "standard", "prompt_above": None, "prompt_from": None, "peak": None} | key
    found = [
        row
        for row in rows
        if row["provider"] == provider
        and model in (row["model"], *row["aliases"])
        and all(row.get(name) == value for name, value in wanted.items())
        and (row["effective_from"] or "") <= at < (row["effective_to"] or "9")
    ]
    assert len(found) == 1, (model, at, key, found)
    return found[0]


def test_the_folder_holds_the_pinned_lists_and_no_other() -> None:
    assert {path.name for path in PRICES.glob("20*.json")} == set(DIGESTS)


@every_list
def test_a_list_is_what_its_name_says(name: str) -> None:
    content = LISTS[name]
    assert digest(content) == DIGESTS[name]
    assert name == f"{content['date']}-{DIGESTS[name][:12]}.json"
    assert (content["schema"], content["currency"]) == ("capline-prices-v1", "USD")
    names = [source["name"] for source in content["sources"]]
    assert names[:2] == ["genai-prices", "litellm"]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[0-9a-f]{64}", source["sha256"]) for source in content["sources"])


def test_one_list_is_from_before_november_and_one_from_within_it() -> None:
    older, newer = sorted(content["date"] for content in LISTS.values())
    assert older < "2026-11-01" <= newer < "2026-12-01"


@every_list
def test_every_row_keeps_to_the_schema(name: str) -> None:
    for row in LISTS[name]["rows"]:
        assert set(row) - SOMETIMES == COLUMNS, row
        assert row["provider"] in PROVIDERS
        assert row["kind"] in {"chat", "embedding", "image", "moderation", "transcription"}
        assert TIER.fullmatch(row["tier"]), row
        assert above(row) == -1 or above(row) > 0
        for edge in ("effective_from", "effective_to"):
            assert row[edge] is None or INSTANT.fullmatch(row[edge]), row
        assert (row["effective_from"] or "") < (row["effective_to"] or "9"), row


@every_list
def test_every_amount_is_minimal_decimal_text_and_enough_to_price_a_call(name: str) -> None:
    for row in LISTS[name]["rows"]:
        assert set(row["rates"]) <= METERS
        assert {"chat": "output", "transcription": "seconds", "image": "image_output_tokens"}.get(
            row["kind"], "input"
        ) in {*row["rates"], *row["fees"]} or row["model"].endswith("transcribe"), row
        assert "input" in row["rates"] or "seconds" in row["fees"], row
        assert set(row["fees"]) <= FEES
        fees = [fee["usd"] if isinstance(fee, dict) else fee for fee in row["fees"].values()]
        assert all(AMOUNT.fullmatch(text) for text in (*row["rates"].values(), *fees)), row


@every_list
def test_every_row_has_limits(name: str) -> None:
    for row in LISTS[name]["rows"]:
        assert row["max_input_tokens"] > above(row), row
        if row["kind"] in {"chat", "image"}:
            assert row["max_output_tokens"] > 0, row
        elif row["kind"] in {"embedding", "moderation"}:
            assert row["max_output_tokens"] == 0, row


@every_list
def test_every_row_has_two_sources(name: str) -> None:
    known = {source["name"] for source in LISTS[name]["sources"]}
    for row in LISTS[name]["rows"]:
        assert len(set(row["sources"])) >= 2 or row["sources"] == ["signed"], row
        assert set(row["sources"]) <= known


def test_a_signature_names_a_page_and_a_reason() -> None:
    signed = json.loads((PRICES / "signed.json").read_text("utf-8"))
    for content in LISTS.values():
        named = [source["sha256"] for source in content["sources"] if source["name"] == "signed"]
        assert named == [digest(signed)]
    for entry in (*signed["rates"], *signed["rules"], *signed["rows"]):
        assert entry["url"].startswith("https://")
        assert len(entry["reason"]) > 40
        assert entry["read"] is None or INSTANT.fullmatch(f"{entry['read']}T00:00:00Z")


@every_list
def test_no_name_has_two_rows_in_force_at_once(name: str) -> None:
    taken: dict[tuple[Any, ...], list[Row]] = {}
    for row in LISTS[name]["rows"]:
        names = [one.lower() for one in (row["model"], *row["aliases"])]
        assert len(set(names)) == len(names), row
        for one in names:
            key = (row["provider"], one, row["tier"], above(row), "peak" in row)
            taken.setdefault(key, []).append(row)
    for rows in taken.values():
        assert len({row["model"] for row in rows}) == 1, rows
        for one, two in combinations(sorted(rows, key=lambda row: row["effective_from"] or ""), 2):
            assert one["effective_to"] is not None, (one, two)
            assert one["effective_to"] <= (two["effective_from"] or ""), (one, two)


@every_list
def test_a_long_context_row_lies_within_base_rows_and_is_no_cheaper(name: str) -> None:
    rows = LISTS[name]["rows"]
    for row in (row for row in rows if above(row) != -1):
        base = [
            one
            for one in rows
            if (one["provider"], one["model"], one["tier"], above(one))
            == (row["provider"], row["model"], row["tier"], -1)
            and (one["effective_from"] or "") < (row["effective_to"] or "9")
            and (row["effective_from"] or "") < (one["effective_to"] or "9")
        ]
        assert base, row
        for one in base:
            for meter in row["rates"].keys() & one["rates"].keys():
                assert Decimal(row["rates"][meter]) >= Decimal(one["rates"][meter]), row


@pytest.mark.parametrize(
    ("provider", "model", "key", "rates"),
    [
        ("openai", "gpt-4o-2024-08-06", {}, {"input": "2.5", "cache_read": "1.25", "output": "10"}),
        ("openai", "gpt-4o-2024-05-13", {}, {"input": "5", "output": "15"}),
        ("openai", "gpt-4o-mini", {}, {"input": "0.15", "cache_read": "0.075", "output": "0.6"}),
        ("openai", "gpt-5-nano-2025-08-07", {}, {"input": "0.05", "cache_read": "0.005", "output": "0.4"}),
        (
            "openai",
            "gpt-5-nano",
            {"tier": "flex"},
            {"input": "0.025", "cache_read": "0.0025", "output": "0.2"},
        ),
        ("openai", "gpt-5", {"tier": "priority"}, {"input": "2.5", "cache_read": "0.25", "output": "20"}),
        ("openai", "gpt-5-pro", {}, {"input": "15", "output": "120"}),
        (
            "openai",
            "gpt-5.6-sol",
            {},
            {
                "input": "4",
                "cache_read": "0.4",
                "cache_write_5m": "5",
                "cache_write_1h": "10",
                "output": "20",
            },
        ),
        (
            "openai",
            "gpt-5.6",
            {"prompt_above": 272000},
            {
                "input": "8",
                "cache_read": "0.8",
                "cache_write_5m": "10",
                "cache_write_1h": "20",
                "output": "30",
            },
        ),
        ("openai", "text-embedding-3-small", {}, {"input": "0.02"}),
        ("openai", "text-embedding-3-large", {}, {"input": "0.13"}),
        (
            "anthropic",
            "claude-sonnet-4-5-20250929",
            {},
            {
                "input": "3",
                "cache_read": "0.3",
                "cache_write_5m": "3.75",
                "cache_write_1h": "6",
                "output": "15",
            },
        ),
        (
            "anthropic",
            "claude-3-haiku-20240307",
            {},
            {
                "input": "0.25",
                "cache_read": "0.03",
                "cache_write_5m": "0.3",
                "cache_write_1h": "0.5",
                "output": "1.25",
            },
        ),
        (
            "anthropic",
            "claude-haiku-5-5",
            {"prompt_above": 100000},
            {
                "input": "0.5",
                "cache_read": "0.05",
                "cache_write_5m": "0.625",
                "cache_write_1h": "1",
                "output": "2.5",
            },
        ),
        (
            "google",
            "gemini-2.5-flash",
            {},
            {"input": "0.3", "cache_read": "0.03", "audio_input": "1", "output": "2.5"},
        ),
        (
            "google",
            "gemini-2.5-pro",
            {"prompt_above": 200000},
            {"input": "2.5", "cache_read": "0.25", "output": "15"},
        ),
        ("mistral", "mistral-large-2512", {}, {"input": "0.5", "cache_read": "0.05", "output": "1.5"}),
        (
            "xai",
            "grok-4.20-0309-reasoning",
            {"prompt_from": 200000},
            {"input": "2.5", "cache_read": "0.4", "output": "5"},
        ),
        (
            "anthropic",
            "claude-opus-5-5",
            {"tier": "fast us"},
            {
                "input": "8.8",
                "cache_read": "0.44",
                "cache_write_5m": "11",
                "cache_write_1h": "17.6",
                "output": "44",
            },
        ),
        (
            "google",
            "gemini-3.8-flash",
            {"tier": "flex"},
            {"input": "0.375", "cache_read": "0.0375", "output": "1.875"},
        ),
        ("aws", "amazon.nova-pro-v1:0", {}, {"input": "0.8", "cache_read": "0.2", "output": "3.2"}),
        (
            "azure",
            "gpt-4o-2024-08-06",
            {"tier": "data-zone"},
            {"input": "2.75", "cache_read": "1.375", "output": "11"},
        ),
        ("openrouter", "openai/gpt-4o", {}, {"input": "2.5", "cache_read": "1.25", "output": "10"}),
        ("mistral", "mistral-large-latest", {}, {"input": "0.5", "cache_read": "0.05", "output": "1.5"}),
        ("openai", "ft:gpt-4o-mini-2024-07-18", {}, {"input": "0.3", "cache_read": "0.15", "output": "1.2"}),
        ("openai", "omni-moderation-latest", {}, {"input": "0"}),
    ],
)
def test_well_known_prices_in_november(
    provider: str, model: str, key: dict[str, Any], rates: dict[str, str]
) -> None:
    assert find(NEWER, provider, model, **key)["rates"] == rates


@pytest.mark.parametrize(
    ("provider", "model", "at", "rates"),
    [
        ("openai", "gpt-5.6-sol", "2026-08-20T23:59:59Z", ("5", "30")),
        ("openai", "gpt-5.6-sol", "2026-08-21T00:00:00Z", ("4", "20")),
        ("openai", "gpt-5.6-luna", "2026-07-29T18:00:00Z", ("1", "6")),
        ("openai", "o3", "2025-06-09T12:00:00Z", ("10", "40")),
        ("openai", "o3", "2025-06-10T00:00:00Z", ("2", "8")),
        ("google", "gemini-4-argon", "2026-11-30T23:59:59Z", ("2", "10")),
        ("google", "gemini-4-argon", "2026-12-01T00:00:00Z", ("4", "20")),
    ],
)
def test_prices_change_at_their_instants(provider: str, model: str, at: str, rates: tuple[str, str]) -> None:
    row = find(NEWER, provider, model, at)
    assert (row["rates"]["input"], row["rates"]["output"]) == rates


@pytest.mark.parametrize("model", ["gpt-9-omega", "gemini-3.8-flash-cyber", "claude-opus-6", "o4-mini-high"])
def test_no_name_is_guessed(model: str) -> None:
    for row in (*OLDER, *NEWER):
        assert model not in (row["model"], *row["aliases"])


def test_a_price_that_the_hour_decides_has_a_row_for_its_peak() -> None:
    plain, peak = (
        [
            row
            for row in NEWER
            if row["model"] == "deepseek-v4-pro"
            and ("peak" in row) is busy
            and (row["effective_from"] or "") <= NOVEMBER < row["effective_to"]
        ]
        for busy in (False, True)
    )
    assert [row["rates"]["input"] for row in (*plain, *peak)] == ["0.66", "1.32"]
    assert peak[0]["peak"]["hours"] == [[1, 4], [6, 10]]
    assert peak[0]["peak"]["weekdays"] == [1, 2, 3, 4, 5]
    assert "2026-10-01" in peak[0]["peak"]["except_dates"]
    calendar_ends = max(peak[0]["peak"]["except_dates"])[:4]
    assert all(row["effective_to"] == f"{int(calendar_ends) + 1}-01-01T00:00:00Z" for row in (*plain, *peak))


def test_the_lists_differ() -> None:
    def names(rows: list[Row]) -> set[str]:
        return {name for row in rows for name in (row["model"], *row["aliases"])}

    assert {"gpt-6.1-terra", "mistral-large-4", "gpt-6-rosalind"} <= names(NEWER) - names(OLDER)
    lite = {"provider": "google", "model": "gemini-3.5-flash-lite", "tier": "batch"}
    assert "cache_read" in find(OLDER, **lite)["rates"]  # it was agreed in October and is not any more
    assert "cache_read" not in find(NEWER, **lite)["rates"]


VECTORS = [
    json.loads(line, parse_float=Decimal)
    for line in (Path(__file__).parent / "pricing_vectors.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize(
    "vector",
    [one for one in VECTORS if one["confidence"] == "high" and "api" in one],
    ids=lambda one: one["id"],
)
def test_the_newest_list_prices_every_vector_of_high_confidence(vector: dict[str, Any]) -> None:
    found = tk.price(
        *(vector[name] for name in ("provider", "api", "model", "usage", "timestamp")),
        context=vector["context"],
    )
    assert found.price_list.startswith(max(DIGESTS)[:10])
    assert found.status == vector["status"]
    if isinstance(found, tk.Unpriced):
        assert found.reason == vector["reason"]
    else:
        micro = Decimal(vector.get("exact_micro_usd", "0"))
        assert found.cost_nano_usd == int((micro * 1_000).to_integral_value())


def test_a_list_loads_within_its_time() -> None:
    path = PRICES / max(DIGESTS)
    load_price_file(path)
    assert (
        min(timeit.repeat(lambda: load_price_file(path), number=1, repeat=9)) < 0.06
    )  # 20 ms on a quiet machine


# --------------------------------------------------------------------------- the compiler


GENAI = """
providers: list[Provider] = [
    Provider(
        id='openai',
        models=[
            ModelInfo(
                id='m',
                match=ClauseOr(or_=[ClauseEquals(equals='m'), ClauseEquals(equals='m-2026-01-01')]),
                context_window=1000,
                prices=[
                    ConditionalPrice(prices=ModelPrice(input_mtok=Decimal('3'), output_mtok=Decimal('9'))),
                    ConditionalPrice(
                        constraint=StartDateConstraint(start_date=datetime.date(2026, 5, 1)),
                        prices=ModelPrice(
                            input_mtok=Decimal('2'), cache_read_mtok=Decimal('0.2'), output_mtok=Decimal('8')
                        ),
                    ),
                ],
            ),
            ModelInfo(
                id='long',
                match=ClauseStartsWith(starts_with='long'),
                prices=ModelPrice(
                    input_mtok=TieredPrices(
                        base=Decimal('1'), tiers=[Tier(start=200000, price=Decimal('2'))]
                    ),
                    output_mtok=Decimal('4'),
                ),
            ),
            ModelInfo(
                id='dust',
                match=ClauseEquals(equals='dust'),
                prices=ModelPrice(input_mtok=Decimal('0.18000000000000002'), output_mtok=Decimal('4')),
            ),
        ],
    ),
]
"""


def litellm(**fields: Any) -> dict[str, Any]:
    """One entry of litellm's table."""
    return {"litellm_provider": "openai", "mode": "chat", "max_output_tokens": 100} | fields


def compile_list(
    folder: Path, current: dict[str, Any], older: dict[str, Any], signed: dict[str, Any] | None = None
) -> list[Row]:
    """The rows that compile.py makes of two small tables and a signed file."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "genai_prices-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("genai_prices/data.py", GENAI)
    for version, table in (("2.0", current), ("1.0", older)):
        with zipfile.ZipFile(folder / f"litellm-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("litellm/model_prices_and_context_window_backup.json", json.dumps(table))
    command = [
        *(sys.executable, str(PRICES / "compile.py"), "--genai", "1.0", "--litellm", "2.0"),
        *(
            "--date",
            "2026-06-01",
            "--history",
            "1.0=2026-03-01",
            "--wheels",
            str(folder),
            "--out",
            str(folder),
        ),
    ]
    if signed is not None:
        (folder / "signed.json").write_text(json.dumps({"version": "1", "rates": [], **signed}), "utf-8")
        command += ["--signed", str(folder / "signed.json")]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("2026-06-01-*.json")
    rows: list[Row] = json.loads(path.read_text("utf-8"))["rows"]
    return rows


def test_only_what_two_sources_state_is_compiled(tmp_path: Path) -> None:
    now = {
        "m": litellm(
            max_input_tokens=900,
            input_cost_per_token=2e-6,
            output_cost_per_token=8e-6,
            cache_creation_input_token_cost=1e-6,
        ),
        "dust": litellm(max_input_tokens=900, input_cost_per_token=1.8e-7, output_cost_per_token=4e-6),
    }
    then = {"m": litellm(max_input_tokens=900, input_cost_per_token=3e-6, output_cost_per_token=9e-6)}
    rows = compile_list(tmp_path / "a", now, then)
    assert [
        (row["effective_from"], row["effective_to"], row["rates"], row["sources"][1]) for row in rows
    ] == [
        (None, "2026-05-01T00:00:00Z", {"input": "3", "output": "9"}, "litellm@1.0"),
        ("2026-05-01T00:00:00Z", None, {"input": "2", "output": "8"}, "litellm"),
    ]
    assert {tuple(row["aliases"]) for row in rows} == {("m-2026-01-01",)}
    assert {row["max_input_tokens"] for row in rows} == {900}


@pytest.mark.parametrize(("limit", "long"), list(product([200000, 1000000], ["2", "3", None])))
def test_a_long_prompt_is_never_priced_at_the_short_rate(
    tmp_path: Path, limit: int, long: str | None
) -> None:
    above = {} if long is None else {"input_cost_per_token_above_200k_tokens": float(long) / 1e6}
    above |= {"output_cost_per_token_above_200k_tokens": 4e-6} if long else {}
    entry = litellm(max_input_tokens=limit, input_cost_per_token=1e-6, output_cost_per_token=4e-6, **above)
    shipped = [row["prompt_above"] for row in compile_list(tmp_path / "a", {"long": entry}, {})]
    if long == "2":
        assert shipped == [None, 200000]
    else:
        assert shipped == ([None] if limit == 200000 else [])


def test_a_later_contradiction_ends_a_row_and_an_earlier_one_begins_it(tmp_path: Path) -> None:
    agreed = {"input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6}
    other = {"input_cost_per_token": 5e-6, "output_cost_per_token": 4e-6}
    above = {"input_cost_per_token_above_200k_tokens": 2e-6, "output_cost_per_token_above_200k_tokens": 4e-6}
    one = {"long": litellm(max_input_tokens=1000000, **agreed, **above)}
    two = {"long": litellm(max_input_tokens=1000000, **other, **above)}
    begun = compile_list(tmp_path / "a", one, two)
    ended = compile_list(tmp_path / "b", two, one)
    assert {(row["effective_from"], row["effective_to"]) for row in begun} == {("2026-06-01T00:00:00Z", None)}
    assert {(row["effective_from"], row["effective_to"]) for row in ended} == {(None, "2026-03-01T00:00:00Z")}


def test_a_signature_adds_what_one_source_states_and_rows_that_none_does(tmp_path: Path) -> None:
    entry = litellm(
        max_input_tokens=900,
        input_cost_per_token=2e-6,
        output_cost_per_token=8e-6,
        cache_creation_input_token_cost_above_12hr=5e-6,
        input_cost_per_token_flex=1e-6,
        output_cost_per_token_flex=4e-6,
    )
    page = {"provider": "openai", "url": "https://page", "reason": "the page says so", "read": None}
    written = {
        "provider": "openai",
        "model": "own",
        "rates": {"input": "7"},
        "max_input_tokens": 1,
        "max_output_tokens": 1,
    }
    signed = {
        "rules": [
            page | {"meters": ["cache_write_1h"]},
            page | {"tiers": ["flex"]},
            page | {"fees": {"web_fetch": "0"}},
        ],
        "rows": [page | {"rows": [written]}],
    }
    rows = compile_list(tmp_path / "a", {"m": entry, "own": entry}, {}, signed)
    now = {
        (row["model"], row["tier"]): (row["rates"], row["fees"], row["sources"])
        for row in rows
        if row["effective_to"] is None
    }
    assert now == {
        ("m", "standard"): (
            {"input": "2", "output": "8", "cache_write_1h": "5"},
            {"web_fetch": "0"},
            ["genai-prices", "litellm", "signed"],
        ),
        ("m", "flex"): ({"input": "1", "output": "4"}, {"web_fetch": "0"}, ["litellm", "signed"]),
        ("own", "standard"): ({"input": "7"}, {}, ["signed"]),
    }
    unsigned = compile_list(tmp_path / "b", {"m": entry}, {})
    assert [(row["tier"], row["rates"]) for row in unsigned] == [("standard", {"input": "2", "output": "8"})]
