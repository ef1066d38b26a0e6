"""The rule of the price lists: which rates of genai-prices another source confirms, and from when to when.

genai-prices proposes every rate and every date. A rate holds where a litellm release made during its
interval states the same one and no later release states another. Older releases bound it: it is taken back
in time to the last release that contradicts it, and no further.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from price_sources import PROVIDERS, TIERS, GenaiModel, Rates, SecondOpinion, Segment, Sheet

SIGNED = "signed"
CORE = {"chat": ("input", "output"), "embedding": ("input",)}
NEVER = datetime.date.min
ALWAYS = datetime.date.max

Row = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """One litellm release: its name on rows, the day of its release and its opinions."""

    name: str
    day: datetime.date
    models: dict[str, dict[str, SecondOpinion]]


@dataclass(frozen=True)
class Signature:
    """A rate or a fee of one model that is taken from the provider's own page."""

    provider: str
    model: str
    tier: str
    above: int | None
    start: datetime.date | None
    rates: Rates
    fees: Rates

    @classmethod
    def read(cls, entry: dict[str, Any]) -> Signature:
        """One entry of the signed file; it must name the page and the reason."""
        if not (entry["url"].startswith("https://") and entry["reason"]):
            raise SystemExit(f"{entry['model']}: a signature needs a page and a reason")
        start = entry.get("effective_from")
        return cls(
            entry["provider"],
            entry["model"],
            entry.get("tier", "standard"),
            entry.get("prompt_above"),
            datetime.date.fromisoformat(start[:10]) if start else None,
            {meter: Decimal(rate) for meter, rate in entry.get("rates", {}).items()},
            {item: Decimal(fee) for item, fee in entry.get("fees", {}).items()},
        )


@dataclass(frozen=True)
class Evidence:
    """What one release says of one model in one tier."""

    name: str
    day: datetime.date
    sheet: Sheet


@dataclass(frozen=True)
class Span:
    """Agreed rates and the days between which they hold (`end` excluded)."""

    start: datetime.date
    end: datetime.date
    rates: Rates
    source: str


@dataclass
class Group:
    """Ids of one genai-prices model that litellm prices alike."""

    model: GenaiModel
    opinion: SecondOpinion
    ids: list[str]
    moving: bool
    tiers: dict[str, Sheet]


# --------------------------------------------------------------------------- which ids share a price


def is_moving(model_id: str) -> bool:
    """Whether an id is a pointer whose meaning changes with time."""
    return model_id.endswith("latest")


def stem(model_id: str) -> str:
    """An id without its date and in one spelling."""
    return re.sub(r"-(\d{4}-\d{2}-\d{2}|\d{8})$", "", model_id).replace(".", "-")


def newest(snapshots: list[Snapshot], provider: str) -> dict[str, SecondOpinion]:
    """The newest opinion of each id; snapshots come newest first."""
    opinions: dict[str, SecondOpinion] = {}
    for snapshot in snapshots:
        for model_id, opinion in snapshot.models[provider].items():
            opinions.setdefault(model_id, opinion)
    return {model_id: opinion for model_id, opinion in opinions.items() if opinion.kind != "other"}


def group_ids(models: list[GenaiModel], opinions: dict[str, SecondOpinion]) -> list[Group]:
    """Groups of ids that genai-prices takes for one model and litellm prices without contradiction."""
    groups: list[Group] = []
    for model_id in sorted(opinions, key=lambda text: (len(text), text)):
        opinion = opinions[model_id]
        model = next((one for one in models if one.matches(model_id)), None)
        if model is None:
            continue
        for group in groups:
            if group.model is model and _joins(group, model_id, opinion):
                group.ids.append(model_id)
                group.tiers = _union(group.tiers, opinion.tiers)
                break
        else:
            groups.append(Group(model, opinion, [model_id], is_moving(model_id), opinion.tiers))
    return groups


def _joins(group: Group, model_id: str, opinion: SecondOpinion) -> bool:
    kin = stem(model_id) in {stem(one) for one in group.ids}
    same = _shape(opinion) == _shape(group.opinion) and opinion.fees == group.opinion.fees
    limits = (opinion.kind, opinion.max_input_tokens, opinion.max_output_tokens)
    own = (group.opinion.kind, group.opinion.max_input_tokens, group.opinion.max_output_tokens)
    if group.moving or is_moving(model_id) or limits != own or not (kin or same):
        return False
    return not any(
        _differ(group.tiers[tier].get(above, {}), rates)
        for tier in opinion.tiers.keys() & group.tiers.keys()
        for above, rates in opinion.tiers[tier].items()
    )


def _shape(opinion: SecondOpinion) -> dict[str, set[int | None]]:
    """The tiers and thresholds that a release prices."""
    return {tier: set(sheet) for tier, sheet in opinion.tiers.items()}


def _differ(one: Rates, other: Rates) -> bool:
    return any(one[meter] != other[meter] for meter in one.keys() & other.keys())


def _union(one: dict[str, Sheet], other: dict[str, Sheet]) -> dict[str, Sheet]:
    both: dict[str, Sheet] = {}
    for tier in one.keys() | other.keys():
        sheets = (one.get(tier, {}), other.get(tier, {}))
        thresholds = sheets[0].keys() | sheets[1].keys()
        both[tier] = {above: sheets[1].get(above, {}) | sheets[0].get(above, {}) for above in thresholds}
    return both


# --------------------------------------------------------------------------- when two sources agree


def gather(
    group: Group, provider: str, tier: str, segment: Segment, snapshots: list[Snapshot]
) -> list[Evidence]:
    """What the releases made during the segment say of the group, newest first."""
    found = []
    for snapshot in snapshots:
        listed = [snapshot.models[provider][one] for one in group.ids if one in snapshot.models[provider]]
        known = [opinion for opinion in listed if opinion.kind == group.opinion.kind]
        if known and (segment.start or NEVER) <= snapshot.day < (segment.end or ALWAYS):
            merged: dict[str, Sheet] = {}
            for opinion in known:
                merged = _union(merged, opinion.tiers)
            found.append(Evidence(snapshot.name, snapshot.day, merged.get(tier, {})))
    return found


def confirm(
    segment: Segment, before: Segment | None, above: int | None, evidence: list[Evidence], group: Group
) -> list[Span]:
    """The parts of a segment in which its rates at one prompt size are agreed, oldest first."""
    core = CORE[group.opinion.kind]
    if group.opinion.kind == "embedding" and "output" in segment.sheet[above]:
        return []  # one of the two takes a chat model for an embedding
    claimed = segment.sheet[above]
    heard = [one for one in evidence if not _lags(one, segment, before)]
    chosen = next((one for one in heard if _agrees(claimed, one.sheet.get(above, {}), core)), None)
    if chosen is None:
        return []
    agreed = {meter: rate for meter, rate in claimed.items() if chosen.sheet[above].get(meter) == rate}
    conflicts = {one.day: _conflicts(one, segment, above, agreed, group) for one in heard}
    start, end = segment.start or NEVER, segment.end or ALWAYS
    if group.moving:  # what it meant before the first release that lists it is not known
        start = max(start, min(conflicts))
    if any(day > chosen.day and wrong & set(core) for day, wrong in conflicts.items()):
        end = chosen.day  # a later release states another price: ours is known up to here
    days = sorted(day for day in conflicts if day < end) or [start]
    return _spans([start, *days, end], [conflicts.get(day, set()) for day in days], agreed, chosen.name, core)


def _agrees(claimed: Rates, stated: Rates, core: tuple[str, ...]) -> bool:
    return all(meter in claimed and claimed[meter] == stated.get(meter) for meter in core)


def _lags(evidence: Evidence, segment: Segment, before: Segment | None) -> bool:
    """Whether a release still shows the price that a dated change replaced."""
    return (
        before is not None
        and _shows(evidence.sheet, before.sheet)
        and not _shows(evidence.sheet, segment.sheet)
    )


def _shows(stated: Sheet, sheet: Sheet) -> bool:
    return stated.keys() == sheet.keys() and not any(_differ(stated[above], sheet[above]) for above in sheet)


def _conflicts(
    evidence: Evidence, segment: Segment, above: int | None, agreed: Rates, group: Group
) -> set[str]:
    """The agreed meters that a release contradicts; all if it knows a long-context price and we do not."""
    most = group.opinion.max_input_tokens or group.model.context_window or 0
    unknown = [one for one in evidence.sheet.keys() - segment.sheet.keys() if one is not None and one < most]
    if unknown and above is None:
        return set(agreed)
    stated = evidence.sheet.get(above, {})
    return {meter for meter in stated.keys() & agreed.keys() if stated[meter] != agreed[meter]}


def _spans(
    edges: list[datetime.date], conflicts: list[set[str]], agreed: Rates, source: str, core: tuple[str, ...]
) -> list[Span]:
    """Cut an interval at the releases: a meter is taken back in time to the last one that contradicts it."""
    spans: list[Span] = []
    later = [*itertools.accumulate(reversed(conflicts), set[str].union)][::-1]
    near = [later[0], *later]
    for start, end, wrong in zip(edges[:-1], edges[1:], near, strict=True):
        rates = {meter: rate for meter, rate in agreed.items() if meter not in wrong}
        if start >= end or not set(core) <= rates.keys():
            continue
        add_span(spans, Span(start, end, rates, source))
    return spans


def clipped(spans: list[Span], known: list[Span]) -> list[Span]:
    """The parts of spans that lie within known ones."""
    parts: list[Span] = []
    for one in spans:
        for two in known:
            start, end = max(one.start, two.start), min(one.end, two.end)
            if start < end:
                add_span(parts, Span(start, end, one.rates, one.source))
    return parts


def add_span(spans: list[Span], span: Span) -> None:
    """Append a span, or lengthen the last one when nothing changes."""
    if spans and (spans[-1].end, spans[-1].rates, spans[-1].source) == (span.start, span.rates, span.source):
        spans[-1] = Span(spans[-1].start, span.end, span.rates, span.source)
    else:
        spans.append(span)


# --------------------------------------------------------------------------- rows


def group_rows(group: Group, provider: str, snapshots: list[Snapshot], signed: list[Signature]) -> list[Row]:
    """Every agreed row of a group."""
    limits = group_limits(group)
    if limits is None:
        return []
    own = [one for one in signed if one.provider == provider and one.model == group_name(group)]
    rows: list[Row] = []
    for tier in TIERS:
        timeline = group.model.timelines.get(tier, [])
        for before, segment in zip([None, *timeline], timeline, strict=False):
            evidence = gather(group, provider, tier, segment, snapshots)
            evidence += [
                Evidence(SIGNED, one.start, {one.above: one.rates})
                for one in own
                if one.rates and one.tier == tier and one.start is not None and one.start == segment.start
            ]
            spans = {above: confirm(segment, before, above, evidence, group) for above in segment.sheet}
            for above in [one for one in spans if one is not None]:
                if above < limits[0]:
                    spans[None] = clipped(spans[None], spans[above])
                spans[above] = clipped(spans[above], spans[None])
            priced = segment if tier == "standard" else group.model.timelines["standard"][-1]
            stated = group.opinion.fees.items() | {fee for one in own for fee in one.fees.items()}
            fees = dict(sorted(priced.fees.items() & stated))
            rows += [
                _row(group, provider, tier, above, span, fees, limits)
                for above in spans
                for span in spans[above]
            ]
    if any((row["prompt_above"] or 0) >= limits[0] for row in rows):
        for row in rows:  # a hold must cover every prompt that a row prices
            row["max_input_tokens"] = max(limits[0], widest_prompt(group, provider, snapshots))
    return rows


def widest_prompt(group: Group, provider: str, snapshots: list[Snapshot]) -> int:
    """The largest prompt that any release gives the group; some gave a long context that has ended."""
    known = [snapshot.models[provider].get(one) for snapshot in snapshots for one in group.ids]
    return max((opinion.max_input_tokens or 0 for opinion in known if opinion is not None), default=0)


def group_limits(group: Group) -> tuple[int, int] | None:
    """The largest prompt and answer in tokens, or nothing when one is not known."""
    most_in = group.opinion.max_input_tokens or group.model.context_window
    most_out = group.opinion.max_output_tokens
    return None if most_in is None or most_out is None else (most_in, most_out)


def group_name(group: Group) -> str:
    """The id that both sources know, undated before dated."""
    both = [one for one in group.ids if one in {group.model.id, *group.model.exact_ids()}]
    return group.model.id if group.model.id in group.ids else (both or group.ids)[0]


def _row(
    group: Group,
    provider: str,
    tier: str,
    above: int | None,
    span: Span,
    fees: Rates,
    limits: tuple[int, int],
) -> Row:
    name = group_name(group)
    return {
        "provider": provider,
        "model": name,
        "aliases": [one for one in group.ids if one != name],
        "kind": group.opinion.kind,
        "tier": tier,
        "prompt_above": above,
        "effective_from": _instant(span.start),
        "effective_to": _instant(span.end),
        "rates": {meter: text(rate) for meter, rate in span.rates.items()},
        "fees": {item: text(fee) for item, fee in fees.items()},
        "max_input_tokens": limits[0],
        "max_output_tokens": limits[1],
        "sources": ["genai-prices", span.source],
    }


def _instant(day: datetime.date) -> str | None:
    return None if day in (NEVER, ALWAYS) else f"{day.isoformat()}T00:00:00Z"


def text(rate: Decimal) -> str:
    """A decimal without exponent or trailing zeros."""
    return format(rate.normalize(), "f") if rate else "0"


def add_exact_ids(rows: list[Row], groups: list[Group], known: set[str]) -> None:
    """Add ids that only genai-prices names: another spelling, or the date, of an id that both know."""
    for group in groups:
        stems = {stem(one) for one in group.ids}
        extra = {one for one in group.model.exact_ids() - known if stem(one) in stems and not group.moving}
        for row in rows:
            if row["model"] == group_name(group):
                row["aliases"] += sorted(extra)


def settle_aliases(rows: list[Row]) -> None:
    """Sort aliases and drop those that another model claims."""
    names = {row["model"] for row in rows}
    claims = Counter(one for model, one in {(row["model"], one) for row in rows for one in row["aliases"]})
    for row in rows:
        row["aliases"] = sorted({one for one in row["aliases"] if one not in names and claims[one] == 1})


def compile_rows(
    genai: dict[str, list[GenaiModel]], snapshots: list[Snapshot], signed: list[Signature]
) -> list[Row]:
    """All rows on which two sources agree, in a fixed order."""
    compiled: list[Row] = []
    for provider in PROVIDERS:
        opinions = newest(snapshots, provider)
        groups = group_ids(genai.get(provider, []), opinions)
        rows = [row for group in groups for row in group_rows(group, provider, snapshots, signed)]
        add_exact_ids(rows, groups, set(opinions))
        settle_aliases(rows)
        compiled += rows
    return sorted(compiled, key=_order)


def _order(row: Row) -> tuple[str, str, int, int, str]:
    above = -1 if row["prompt_above"] is None else row["prompt_above"]
    return row["provider"], row["model"], TIERS.index(row["tier"]), above, row["effective_from"] or ""
