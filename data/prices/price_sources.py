"""Read the price tables of two registry packages straight out of their wheel files.

Nothing of the packages is imported or run: litellm's table is a JSON member of its wheel, and the
genai-prices table is a literal of constructor calls that is walked as a syntax tree. Every rate is
read from its text as Decimal; no float is ever made.
"""

from __future__ import annotations

import ast
import datetime
import hashlib
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

Rates = dict[str, Decimal]
"""USD per million tokens by meter."""

Sheet = dict[int | None, Rates]
"""Rates by prompt threshold; None is the base, N holds for prompts of more than N tokens."""

TIERS = ("standard", "flex", "priority", "fast", "batch")

PROVIDERS = {
    # ours: (genai-prices id, litellm_provider values, route prefix of litellm)
    "openai": ("openai", ("openai", "text-completion-openai"), "openai/"),
    "anthropic": ("anthropic", ("anthropic",), "anthropic/"),
    "google": ("google", ("gemini",), "gemini/"),
    "mistral": ("mistral", ("mistral",), "mistral/"),
    "groq": ("groq", ("groq",), "groq/"),
    "deepseek": ("deepseek", ("deepseek",), "deepseek/"),
    "xai": ("x-ai", ("xai",), "xai/"),
    "aws": ("aws", ("bedrock", "bedrock_converse"), "bedrock/"),
    "azure": ("azure", ("azure",), "azure/"),
    "cohere": ("cohere", ("cohere", "cohere_chat"), "cohere/"),
    "voyageai": ("voyageai", ("voyage",), "voyage/"),
    "openrouter": ("openrouter", ("openrouter",), "openrouter/"),
}
SLASHED = ("groq", "openrouter")
"""Providers whose own ids have a slash."""
PASSED_ON = {
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "google": "google",
    "mistralai": "mistral",
    "openai": "openai",
    "x-ai": "xai",
}
"""Vendors in OpenRouter's ids, of which the list takes rows, and our names of them."""

MILLION = 1_000_000


@dataclass(frozen=True)
class Wheel:
    """One release of one package, as the file that the registry serves."""

    name: str
    version: str
    path: Path
    sha256: str

    @classmethod
    def find(cls, folder: Path, name: str, version: str) -> Wheel:
        """The only wheel of that release in the folder."""
        found = sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        if len(found) != 1:
            raise SystemExit(f"expected one wheel of {name} {version} in {folder}, found {len(found)}")
        return cls(name, version, found[0], hashlib.sha256(found[0].read_bytes()).hexdigest())

    def member(self, name: str) -> str:
        """One text file of the wheel."""
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name).decode("utf-8")


def clean(rate: Decimal) -> bool:
    """Whether a rate is a list price and not the dust of a float: at most six decimals, not negative."""
    return rate >= 0 and rate == rate.quantize(Decimal("0.000001"))


# --------------------------------------------------------------------------- litellm


@dataclass(frozen=True)
class SecondOpinion:
    """What one litellm release says of one model id; kind `other` is a model that no list can hold."""

    kind: str
    max_input_tokens: int | None
    max_output_tokens: int | None
    tiers: dict[str, Sheet]
    fees: Rates
    places: Rates = field(default_factory=dict)
    """Geographies by their multiple of every rate."""
    passed_on: bool = False
    """Whether a route is priced by what the table says of the vendor's own platform."""


_LITELLM_TABLE = "litellm/model_prices_and_context_window_backup.json"
_LITELLM_KINDS = {
    "chat": "chat",
    "responses": "chat",
    "completion": "chat",
    "embedding": "embedding",
    "image_generation": "image",
    "audio_transcription": "transcription",
}
_HOUR = 3_600
_DATA_ZONE = Decimal("1.1")
_LITELLM_TIERS = {None: "standard", "_flex": "flex", "_priority": "priority", "_batches": "batch"}
_LITELLM_METERS = {
    ("input_cost_per_token", None): "input",
    ("output_cost_per_token", None): "output",
    ("cache_read_input_token_cost", None): "cache_read",
    ("cache_creation_input_token_cost", None): "cache_write_5m",
    ("cache_creation_input_token_cost", "_above_1hr"): "cache_write_1h",
    ("cache_creation_input_token_cost", "_above_12hr"): "cache_write_1h",
    ("input_cost_per_audio_token", None): "audio_input",
    ("output_cost_per_audio_token", None): "audio_output",
    ("input_cost_per_image_token", None): "image",
    ("output_cost_per_image_token", None): "image_output_tokens",
    ("cache_read_input_image_token_cost", None): "cache_read_image_tokens",
    ("cache_read_input_audio_token_cost", None): "cache_read_audio_tokens",
}
_LITELLM_FIELD = re.compile(
    r"(input_cost_per_token|output_cost_per_token|cache_read_input_token_cost|cache_creation_input_token_cost"
    r"|input_cost_per_audio_token|output_cost_per_audio_token|input_cost_per_image_token"
    r"|output_cost_per_image_token|cache_read_input_image_token_cost|cache_read_input_audio_token_cost)"
    r"(_above_1hr|_above_12hr)?(?:_above_(\d+)k_tokens)?(_flex|_priority|_batches)?"
)


def read_litellm(wheel: Wheel) -> dict[str, dict[str, SecondOpinion]]:
    """Opinions by provider and exact model id, of the providers' own platforms only."""
    table = json.loads(wheel.member(_LITELLM_TABLE), parse_float=Decimal)
    read: dict[str, dict[str, SecondOpinion]] = {provider: {} for provider in PROVIDERS}
    torn: set[tuple[str, str]] = set()
    for key in sorted(table):
        for provider, (_, names, prefix) in PROVIDERS.items():
            if table[key].get("litellm_provider") not in names:
                continue
            model = key.removeprefix(prefix)
            opinion = _second_opinion(table[key], provider)
            if "/" in model and provider not in SLASHED:
                continue
            if provider == "azure":
                opinion.places.update(_data_zone(table, model, opinion))
            if read[provider].setdefault(model, opinion).tiers != opinion.tiers:
                torn.add((provider, model))
    for provider, model in torn:  # written twice with two prices: no opinion
        del read[provider][model]
    _pass_on(read)
    return read


def _pass_on(read: dict[str, dict[str, SecondOpinion]]) -> None:
    """OpenRouter asks what the vendor asks: its opinion of a model that the table does not list as its own."""
    routed = read["openrouter"]
    read["openrouter"] = {
        one: routed[one] for one in routed if one.partition("/")[0] in PASSED_ON and ":" not in one
    }
    for vendor, provider in PASSED_ON.items():
        for model, opinion in read[provider].items():
            plain = {tier: sheet for tier, sheet in opinion.tiers.items() if tier == "standard"}
            passed = replace(opinion, tiers=plain, fees={}, places={}, passed_on=True)
            read["openrouter"].setdefault(f"{vendor}/{model}", passed)


def _data_zone(table: dict[str, Any], model: str, opinion: SecondOpinion) -> Rates:
    """Azure's data zones, where the American and the European one state the same multiple of each rate."""
    base = opinion.tiers.get("standard", {}).get(None)
    if not base:
        return {}
    for zone in ("us", "eu"):
        sheets = _litellm_tiers(table.get(f"azure/{zone}/{model}", {}), "azure")
        rates = sheets.get("standard", {}).get(None, {})
        if any(rates.get(meter) != rate * _DATA_ZONE for meter, rate in base.items()):
            return {}
    return {"data-zone": _DATA_ZONE}


def _expressible(entry: dict[str, Any]) -> bool:
    """Whether our meters can say the price: no time of day, no dearer class of tokens unknown to them."""
    unseen = {
        "output_cost_per_reasoning_token": "output_cost_per_token",
        "output_cost_per_image_token": "output_cost_per_token",
        "output_cost_per_video_token": "output_cost_per_token",
        "input_cost_per_video_token": "input_cost_per_token",
    }
    if entry.get("mode") == "image_generation":
        del unseen["output_cost_per_image_token"]  # an image model counts its images apart
    apart = [name for name, usual in unseen.items() if entry.get(name) not in (None, entry.get(usual))]
    return not apart and "off_peak_pricing" not in entry and "tiered_pricing" not in entry


def _second_opinion(entry: dict[str, Any], provider: str) -> SecondOpinion:
    special = entry.get("provider_specific_entry") or {}
    return SecondOpinion(
        _LITELLM_KINDS.get(entry.get("mode", ""), "other") if _expressible(entry) else "other",
        _whole(entry.get("max_input_tokens")),
        0 if entry.get("mode") == "embedding" else _whole(entry.get("max_output_tokens")),
        _litellm_tiers(entry, provider),
        _litellm_fees(entry, provider),
        {"us": Decimal(special["us"])} if provider == "anthropic" and "us" in special else {},
    )


def _litellm_tiers(entry: dict[str, Any], provider: str) -> dict[str, Sheet]:
    tiers: dict[str, Sheet] = {}
    for name, value in entry.items():
        match = _LITELLM_FIELD.fullmatch(name)
        if match is None or value is None or isinstance(value, (str, bool)):
            continue
        base, ttl, thousands, suffix = match.groups()
        meter = _LITELLM_METERS.get((base, ttl))
        rate = Decimal(value) * MILLION
        if meter is None or not clean(rate):
            continue
        above = int(thousands) * 1000 if thousands else None
        if above is not None and provider == "xai":
            above -= 1  # xAI's dearer price begins at N, not above it
        tiers.setdefault(_LITELLM_TIERS[suffix], {}).setdefault(above, {})[meter] = rate
    if (second := entry.get("input_cost_per_second")) is not None:
        hour = (Decimal(second) * _HOUR).quantize(Decimal("0.0001"))
        tiers.setdefault("standard", {}).setdefault(None, {})["seconds"] = hour
    faster = (entry.get("provider_specific_entry") or {}).get("fast")
    if provider == "anthropic" and faster is not None:
        tiers["fast"] = {
            above: {meter: rate * Decimal(faster) for meter, rate in rates.items()}
            for above, rates in tiers["standard"].items()
        }
    return tiers


def _litellm_fees(entry: dict[str, Any], provider: str) -> Rates:
    """The web search fee, where it is one price and is counted by the search."""
    costs = {Decimal(cost) for cost in (entry.get("search_context_cost_per_query") or {}).values()}
    by_query = provider != "google" or entry.get("web_search_billing_unit") == "per_query"
    return {"web_search": costs.pop()} if len(costs) == 1 and by_query else {}


def _whole(value: Any) -> int | None:
    """A token limit as an integer; some are written 4096.0, some as text."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = Decimal(value)
    except ArithmeticError:
        return None
    return int(number) if number == number.to_integral_value() and number > 0 else None


# --------------------------------------------------------------------------- genai-prices


@dataclass(frozen=True)
class Segment:
    """The rates of one tier from one instant to another."""

    start: datetime.date | None
    end: datetime.date | None
    sheet: Sheet
    fees: Rates


@dataclass
class GenaiModel:
    """One model of genai-prices."""

    id: str
    match: dict[str, Any]
    context_window: int | None
    draws: bool
    """Whether images in its output have a price of their own."""
    timelines: dict[str, list[Segment]] = field(default_factory=dict)

    def exact_ids(self) -> set[str]:
        """The ids that its match names in full."""
        return set(_equals(self.match))

    def matches(self, text: str) -> bool:
        """Whether genai-prices takes this id for this model."""
        return _matches(self.match, text)


_GENAI_METERS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write_5m",
    "cache_write_5m_mtok": "cache_write_5m",
    "cache_write_1h_mtok": "cache_write_1h",
    "input_audio_mtok": "audio_input",
    "output_audio_mtok": "audio_output",
    "input_image_mtok": "image",
    "output_image_mtok": "image_output_tokens",
    "cache_image_read_mtok": "cache_read_image_tokens",
    "cache_audio_read_mtok": "cache_read_audio_tokens",
    "audio_hours": "seconds",
}
_GENAI_UNSEEN = (
    ("input_video_mtok", "input_mtok"),
    ("output_video_mtok", "output_mtok"),
)
_GENAI_TIERS = (
    ("flex", {"service_tier": "flex"}),
    ("priority", {"service_tier": "priority"}),
    ("fast", {"speed": "fast"}),
    ("batch", {"processing": "batch"}),
)


def read_genai(wheel: Wheel) -> dict[str, list[GenaiModel]]:
    """Models by provider, in the order in which genai-prices tries them."""
    tree = ast.parse(wheel.member("genai_prices/data.py"))
    table = next(
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and node.value is not None
    )
    ours = {theirs: provider for provider, (theirs, _, _) in PROVIDERS.items()}
    read = {
        ours[provider["id"]]: [_genai_model(model) for model in provider["models"]]
        for provider in _literal(table)
        if provider["id"] in ours
    }
    if "azure" in read:  # genai-prices itself turns to OpenAI's models there
        read["azure"] += read["openai"]
    return read


def _literal(node: ast.expr) -> Any:
    """A literal of constructor calls as plain data: a call becomes its keywords and its name under `_`."""
    if isinstance(node, ast.List):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {
            _literal(key): _literal(value) for key, value in zip(node.keys, node.values, strict=True) if key
        }
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        if name == "Decimal":
            return Decimal(ast.literal_eval(node.args[0]))
        if name == "date":
            return datetime.date(*(ast.literal_eval(argument) for argument in node.args))
        return {"_": name} | {keyword.arg: _literal(keyword.value) for keyword in node.keywords}
    if isinstance(node, ast.Attribute):
        return ast.unparse(node)
    return ast.literal_eval(node)


def _genai_model(raw: dict[str, Any]) -> GenaiModel:
    prices = raw.get("prices", [])
    entries = prices if isinstance(prices, list) else [{"prices": prices}]
    variants = raw.get("price_variants") or []
    draws = any(_differs(entry["prices"], "output_image_mtok", "output_mtok") for entry in entries)
    model = GenaiModel(raw["id"], raw["match"], raw.get("context_window"), draws)
    model.timelines["standard"] = _timeline(entries)
    for tier, when in _GENAI_TIERS:
        chosen = [variant for variant in variants if variant["when"] == when]
        if chosen and model.timelines["standard"]:
            model.timelines[tier] = _timeline(chosen)
    return model


def _timeline(entries: list[dict[str, Any]]) -> list[Segment]:
    """Dated entries as intervals that follow each other; nothing when our meters cannot say the price."""
    dated: list[tuple[datetime.date | None, dict[str, Any]]] = []
    for entry in entries:
        constraint = entry.get("constraint")
        if constraint is not None and constraint["_"] != "StartDateConstraint":
            return []  # the time of day decides
        if any(_differs(entry["prices"], name, usual) for name, usual in _GENAI_UNSEEN):
            return []
        dated.append((constraint["start_date"] if constraint else None, entry["prices"]))
    dated.sort(key=lambda pair: pair[0] or datetime.date.min)
    starts = [start for start, _ in dated]
    if len(set(starts)) != len(starts):
        return []
    ends = [*starts[1:], None]
    return [
        Segment(start, end, _genai_sheet(prices), _genai_fees(prices))
        for (start, prices), end in zip(dated, ends, strict=True)
    ]


def _differs(prices: dict[str, Any], name: str, usual: str) -> bool:
    return prices.get(name) not in (None, prices.get(usual))


def _genai_sheet(prices: dict[str, Any]) -> Sheet:
    """Base rates, and the whole set of rates that holds above each threshold."""
    known = [(meter, prices[name]) for name, meter in _GENAI_METERS.items() if prices.get(name) is not None]
    thresholds = {tier["start"] for _, price in known if isinstance(price, dict) for tier in price["tiers"]}
    sheet: Sheet = {}
    for above in (None, *sorted(thresholds)):
        rates = {meter: _genai_rate(price, above) for meter, price in known}
        sheet[above] = {meter: rate for meter, rate in rates.items() if clean(rate)}
    return sheet


def _genai_rate(price: Any, above: int | None) -> Decimal:
    if not isinstance(price, dict):
        return Decimal(price)
    reached = [tier for tier in price["tiers"] if above is not None and tier["start"] <= above]
    return Decimal(max(reached, key=lambda tier: int(tier["start"]))["price"] if reached else price["base"])


def _genai_fees(prices: dict[str, Any]) -> Rates:
    searches = prices.get("web_searches_kcount")
    return {"web_search": searches / 1000} if isinstance(searches, Decimal) else {}


def _equals(clause: dict[str, Any]) -> Iterator[str]:
    if clause["_"] == "ClauseEquals":
        yield clause["equals"]
    elif clause["_"] == "ClauseOr":
        for part in clause["or_"]:
            yield from _equals(part)


def _matches(clause: dict[str, Any], text: str) -> bool:
    low = text.lower()
    match clause["_"]:
        case "ClauseEquals":
            return low == str(clause["equals"]).lower()
        case "ClauseStartsWith":
            return low.startswith(clause["starts_with"].lower())
        case "ClauseEndsWith":
            return low.endswith(clause["ends_with"].lower())
        case "ClauseContains":
            return clause["contains"].lower() in low
        case "ClauseRegex":
            return re.search(clause["regex"], low) is not None
        case "ClauseOr":
            return any(_matches(part, text) for part in clause["or_"])
        case "ClauseAnd":
            return all(_matches(part, text) for part in clause["and_"])
    raise ValueError(f"unknown clause {clause['_']}")
