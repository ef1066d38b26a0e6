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
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from price_sources import PROVIDERS, TIERS, GenaiModel, Rates, SecondOpinion, Segment, Sheet, clean

SIGNED = "signed"
CORE = {
    "chat": ("input", "output"),
    "embedding": ("input",),
    "image": ("input", "image_output_tokens"),
    "transcription": ("seconds",),
}
APART = {"seconds": 3_600, "image_output_tokens": 1_000_000, "cache_read_image_tokens": 1_000_000}
APART["cache_read_audio_tokens"] = 1_000_000
"""Meters that a row lists as fees, and how many units their price in a source is for."""
LIMITS = {"image": (200_000, 65_536), "transcription": (1, 0)}
"""Where no source states one: sixteen dense images in, ten of the dearest out; a recording has no tokens."""
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
        check_signature(entry)
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
class Rule:
    """What is signed for many models at once: a page says how a price follows from another.

    `meters` need one source alone in the tier; `models` are taken whole from litellm; `place` is a geography
    whose rates are a multiple of the listed ones; `tiers` are litellm's alone for a model whose standard tier is
    agreed; `fees` are added to the provider's rows.
    """

    provider: str
    tier: str | None
    meters: frozenset[str]
    models: frozenset[str]
    place: str | None
    tiers: tuple[str, ...]
    fees: Rates

    @classmethod
    def read(cls, entry: dict[str, Any]) -> Rule:
        """One rule of the signed file; it must name the page and the reason."""
        check_signature(entry)
        return cls(
            entry["provider"],
            entry.get("tier"),
            frozenset(entry.get("meters", ())),
            frozenset(entry.get("models", ())),
            entry.get("place"),
            tuple(entry.get("tiers", ())),
            {item: Decimal(fee) for item, fee in entry.get("fees", {}).items()},
        )


@dataclass(frozen=True)
class Signed:
    """The whole signed file: rates of one model, rules, and rows that are written out in full."""

    rates: list[Signature] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, content: dict[str, Any]) -> Signed:
        """The file as it was parsed."""
        for entry in content["rows"]:
            check_signature(entry)
        return cls(
            [Signature.read(entry) for entry in content["rates"]],
            [Rule.read(entry) for entry in content["rules"]],
            [_filled(row) for entry in content["rows"] for row in entry["rows"]],
        )

    def written(self, provider: str) -> set[str]:
        """The ids of a provider that no source is asked about."""
        rows = [row for row in self.rows if row["provider"] == provider]
        return {one for row in rows for one in (row["model"], *row["aliases"])}

    def alone(self, provider: str, tier: str) -> set[str]:
        """The meters of a tier for which one source is enough."""
        rules = [one for one in self.rules if one.provider == provider and one.tier in (None, tier)]
        return {meter for one in rules for meter in one.meters}


def check_signature(entry: dict[str, Any]) -> None:
    """A signature names a page, says why, and whether a person has read the page for it."""
    if not (entry["url"].startswith("https://") and entry["reason"] and "read" in entry):
        raise SystemExit(f"{entry}: a signature needs a page, a reason and when it was read")


def _filled(row: Row) -> Row:
    usual: Row = {
        "aliases": [],
        "kind": "chat",
        "tier": "standard",
        "prompt_above": None,
        "effective_from": None,
        "effective_to": None,
        "fees": {},
    }
    return usual | row | {"sources": [SIGNED]}


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


def group_rows(group: Group, provider: str, snapshots: list[Snapshot], signed: Signed) -> list[Row]:
    """Every agreed row of a group."""
    limits = group_limits(group)
    if limits is None or (group.model.draws and group.opinion.kind != "image"):
        return []
    own = [one for one in signed.rates if one.provider == provider and one.model == group_name(group)]
    rows: list[Row] = []
    for tier in TIERS:
        timeline = [_by_kind(segment, group) for segment in group.model.timelines.get(tier, [])]
        alone = signed.alone(provider, tier)
        for before, listed in zip([None, *timeline], timeline, strict=False):
            evidence = gather(group, provider, tier, listed, snapshots)
            evidence += [
                Evidence(SIGNED, one.start, {one.above: one.rates})
                for one in own
                if one.rates and one.tier == tier and one.start is not None and one.start == listed.start
            ]
            segment, evidence = _completed(listed, evidence, alone)
            spans = {above: confirm(segment, before, above, evidence, group) for above in segment.sheet}
            for above in [one for one in spans if one is not None]:
                if above < limits[0]:
                    spans[None] = clipped(spans[None], spans[above])
                spans[above] = clipped(spans[above], spans[None])
            priced = segment if tier == "standard" else group.model.timelines["standard"][-1]
            stated = group.opinion.fees.items() | {fee for one in own for fee in one.fees.items()}
            fees = dict(sorted(priced.fees.items() & stated))
            rows += [
                _row(
                    group,
                    provider,
                    tier,
                    above,
                    span,
                    fees,
                    limits,
                    [SIGNED] if group.opinion.passed_on or alone & span.rates.keys() else [],
                )
                for above in spans
                for span in spans[above]
            ]
    if any((row["prompt_above"] or 0) >= limits[0] for row in rows):
        for row in rows:  # a hold must cover every prompt that a row prices
            row["max_input_tokens"] = max(limits[0], widest_prompt(group, provider, snapshots))
    rows += tier_rows(group, provider, rows, signed, snapshots[0].day)
    return rows + place_rows(group, provider, rows, signed)


def tier_rows(group: Group, provider: str, rows: list[Row], signed: Signed, day: datetime.date) -> list[Row]:
    """The tiers that a rule takes from the newest litellm alone, beside the standard rows of its day."""
    wanted = {tier for rule in signed.rules if rule.provider == provider for tier in rule.tiers}
    at = _instant(day) or ""
    standard = {
        row["prompt_above"]: row
        for row in rows
        if row["tier"] == "standard" and (row["effective_from"] or "") <= at < (row["effective_to"] or "9")
    }
    start = max([row["effective_from"] for row in standard.values() if row["effective_from"]], default=None)
    made: list[Row] = []
    for tier in sorted(wanted - {row["tier"] for row in rows}):
        sheet = group.tiers.get(tier, {})
        if sheet.keys() != standard.keys() or not all(_is_priced(group, rates) for rates in sheet.values()):
            continue
        made += [
            standard[above]
            | {"tier": tier, "effective_from": start, "rates": _plain(rates), "sources": ["litellm", SIGNED]}
            | {"fees": standard[above]["fees"] | _apart(rates)}
            for above, rates in sheet.items()
        ]
    return made


def _is_priced(group: Group, rates: Rates) -> bool:
    return set(CORE[group.opinion.kind]) <= rates.keys()


def _by_kind(segment: Segment, group: Group) -> Segment:
    """An image model's output is images, where genai-prices does not tell them from text."""
    if group.opinion.kind != "image":
        return segment
    sheet = {
        above: rates
        if "image_output_tokens" in rates or "output" not in rates
        else {("image_output_tokens" if meter == "output" else meter): rates[meter] for meter in rates}
        for above, rates in segment.sheet.items()
    }
    return replace(segment, sheet=sheet)


def _completed(segment: Segment, evidence: list[Evidence], alone: set[str]) -> tuple[Segment, list[Evidence]]:
    """Both sides with the meters for which one source is enough; of litellm's, the newest statement."""
    sheet = {above: dict(rates) for above, rates in segment.sheet.items()}
    for above, rates in sheet.items():
        for meter in alone - rates.keys():
            stated = [one.sheet[above][meter] for one in evidence if meter in one.sheet.get(above, {})]
            if stated and segment.end is None:
                rates[meter] = stated[0]
    heard = [
        replace(
            one,
            sheet={
                above: {meter: rate for meter, rate in sheet.get(above, {}).items() if meter in alone} | rates
                for above, rates in one.sheet.items()
            },
        )
        for one in evidence
    ]
    return replace(segment, sheet=sheet), heard


def place_rows(group: Group, provider: str, rows: list[Row], signed: Signed) -> list[Row]:
    """Rows of a geography whose rates are a signed multiple of the ones listed, each rate written out."""
    made: list[Row] = []
    for place, times in group.opinion.places.items():
        if not any(one.provider == provider and one.place == place for one in signed.rules):
            continue
        for row in rows:
            rates = {meter: Decimal(rate) * times for meter, rate in row["rates"].items()}
            tier = place if row["tier"] == "standard" else f"{row['tier']} {place}"
            if all(map(clean, rates.values())):
                exact = {meter: text(rate) for meter, rate in rates.items()}
                made.append(row | {"tier": tier, "rates": exact, "sources": ["litellm", SIGNED]})
    return made


def taken_rows(provider: str, opinions: dict[str, SecondOpinion], signed: Signed) -> list[Row]:
    """Rows of the models that a rule takes whole from the newest litellm, in its tiers."""
    rows: list[Row] = []
    wanted = {one for rule in signed.rules if rule.provider == provider for one in rule.models}
    for model in sorted(wanted & opinions.keys()):
        opinion = opinions[model]
        for tier, sheet in opinion.tiers.items():
            for above, rates in sheet.items():
                if set(CORE[opinion.kind]) <= rates.keys():
                    limits = (opinion.max_input_tokens or 1, opinion.max_output_tokens or 0)
                    span = Span(NEVER, ALWAYS, rates, SIGNED)
                    row = row_of(provider, model, opinion.kind, tier, above, span, opinion.fees, limits)
                    rows.append(row | {"sources": ["litellm", SIGNED]})
    return rows


def widest_prompt(group: Group, provider: str, snapshots: list[Snapshot]) -> int:
    """The largest prompt that any release gives the group; some gave a long context that has ended."""
    known = [snapshot.models[provider].get(one) for snapshot in snapshots for one in group.ids]
    return max((opinion.max_input_tokens or 0 for opinion in known if opinion is not None), default=0)


def group_limits(group: Group) -> tuple[int, int] | None:
    """The largest prompt and answer in tokens, or nothing when one is not known."""
    usual = LIMITS.get(group.opinion.kind, (None, None))
    most_in = group.opinion.max_input_tokens or group.model.context_window or usual[0]
    most_out = usual[1] if group.opinion.max_output_tokens is None else group.opinion.max_output_tokens
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
    more_sources: list[str],
) -> Row:
    name = group_name(group)
    row = row_of(provider, name, group.opinion.kind, tier, above, span, fees, limits)
    row["aliases"] = [one for one in group.ids if one != name]
    row["sources"] = list(dict.fromkeys(["genai-prices", span.source, *more_sources]))
    return row


def row_of(
    provider: str,
    model: str,
    kind: str,
    tier: str,
    above: int | None,
    span: Span,
    fees: Rates,
    limits: tuple[int, int],
) -> Row:
    """One row in the form of the file, without aliases and sources."""
    return {
        "provider": provider,
        "model": model,
        "aliases": [],
        "kind": kind,
        "tier": tier,
        "prompt_above": above,
        "effective_from": _instant(span.start),
        "effective_to": _instant(span.end),
        "rates": _plain(span.rates),
        "fees": {item: text(fee) for item, fee in fees.items()} | _apart(span.rates),
        "max_input_tokens": limits[0],
        "max_output_tokens": limits[1],
    }


def _plain(rates: Rates) -> dict[str, str]:
    return {meter: text(rate) for meter, rate in rates.items() if meter not in APART}


def _apart(rates: Rates) -> dict[str, Any]:
    """The fees of a row that its sources state as rates."""
    return {meter: {"usd": text(rates[meter]), "per": per} for meter, per in APART.items() if meter in rates}


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


def compile_rows(genai: dict[str, list[GenaiModel]], snapshots: list[Snapshot], signed: Signed) -> list[Row]:
    """All rows on which two sources agree, and the signed ones, in a fixed order."""
    compiled: list[Row] = []
    for provider in PROVIDERS:
        opinions = newest(snapshots, provider)
        rows = [row for row in signed.rows if row["provider"] == provider]
        rows += taken_rows(provider, opinions, signed)
        claimed = signed.written(provider) | {row["model"] for row in rows}
        opinions = {one: opinion for one, opinion in opinions.items() if one not in claimed}
        groups = group_ids(genai.get(provider, []), opinions)
        agreed = [row for group in groups for row in group_rows(group, provider, snapshots, signed)]
        add_exact_ids(agreed, groups, set(opinions) | claimed)
        settle_aliases(agreed)
        for rule in signed.rules:
            if rule.provider == provider:
                for row in agreed:
                    row["fees"] |= {item: text(fee) for item, fee in rule.fees.items()}
        compiled += rows + agreed
    return sorted(map(_worded, compiled), key=_order)


def _worded(row: Row) -> Row:
    """xAI's dearer price begins at its threshold, where the others' begin above it."""
    if row["provider"] == "xai" and row["prompt_above"] is not None:
        return row | {"prompt_above": None, "prompt_from": row["prompt_above"] + 1}
    return row


def _order(row: Row) -> tuple[str, str, str, int, bool, str]:
    above = row["prompt_above"] or row.get("prompt_from") or -1
    return (
        row["provider"],
        row["model"],
        row["tier"],
        above,
        "peak" in row,
        row["effective_from"] or "",
    )
