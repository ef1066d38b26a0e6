"""Compile an immutable price list from exact releases of genai-prices and litellm.

    python data/prices/compile.py --genai 0.2.3 --litellm 1.110.2 --date 2026-11-20 \\
        --history 1.97.0=2026-08-16 --wheels DIR --out data/prices

genai-prices proposes every rate and every date; a rate ships where a litellm release states the
same one and no later release states another. `--history` names older litellm releases with their
dates: they confirm (or bound) prices of the past and models that have since been retired. The same
inputs give the same bytes. See README.md beside this file for the rule in full.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from price_sources import (
    PROVIDERS,
    TIERS,
    GenaiModel,
    Rates,
    SecondOpinion,
    Segment,
    Sheet,
    Wheel,
    read_genai,
    read_litellm,
)

SCHEMA = "capline-prices-v1"
CORE = {"chat": ("input", "output"), "embedding": ("input",)}
METERS = {"input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "audio_input", "audio_output", "image"}
EMBEDDING_METERS = {"input", "audio_input", "image"}
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
    tiers: dict[str, Sheet] = field(default_factory=dict)


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
    same = (opinion.tiers, opinion.fees) == (group.opinion.tiers, group.opinion.fees)
    limits = (opinion.kind, opinion.max_input_tokens, opinion.max_output_tokens)
    own = (group.opinion.kind, group.opinion.max_input_tokens, group.opinion.max_output_tokens)
    if group.moving or is_moving(model_id) or limits != own or not (kin or same):
        return False
    return not any(
        _differ(group.tiers[tier].get(above, {}), rates)
        for tier in opinion.tiers.keys() & group.tiers.keys()
        for above, rates in opinion.tiers[tier].items()
    )


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


def gather(group: Group, provider: str, tier: str, segment: Segment, snapshots: list[Snapshot]) -> list[Evidence]:
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
    meters = EMBEDDING_METERS if group.opinion.kind == "embedding" else METERS
    claimed = {meter: rate for meter, rate in segment.sheet[above].items() if meter in meters}
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
    return before is not None and _shows(evidence.sheet, before.sheet) and not _shows(evidence.sheet, segment.sheet)


def _shows(stated: Sheet, sheet: Sheet) -> bool:
    return stated.keys() == sheet.keys() and not any(_differ(stated[above], sheet[above]) for above in sheet)


def _conflicts(evidence: Evidence, segment: Segment, above: int | None, agreed: Rates, group: Group) -> set[str]:
    """The agreed meters that a release contradicts; all of them when it knows a long-context price that we do not."""
    most = group.opinion.max_input_tokens or 0
    unknown = [one for one in evidence.sheet.keys() - segment.sheet.keys() if one is not None and one < most]
    if unknown and above is None:
        return set(agreed)
    stated = evidence.sheet.get(above, {})
    return {meter for meter in stated.keys() & agreed.keys() if stated[meter] != agreed[meter]}


def _spans(
    edges: list[datetime.date], conflicts: list[set[str]], agreed: Rates, source: str, core: tuple[str, ...]
) -> list[Span]:
    """Cut an interval at the releases: between two of them a meter holds where neither contradicts it."""
    spans: list[Span] = []
    near = [conflicts[0], *(one | two for one, two in zip(conflicts, conflicts[1:], strict=False)), conflicts[-1]]
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


def group_rows(group: Group, provider: str, snapshots: list[Snapshot]) -> list[Row]:
    """Every agreed row of a group."""
    limits = group_limits(group)
    if limits is None:
        return []
    rows: list[Row] = []
    for tier in TIERS:
        timeline = group.model.timelines.get(tier, [])
        for before, segment in zip([None, *timeline], timeline, strict=False):
            evidence = gather(group, provider, tier, segment, snapshots)
            spans = {above: confirm(segment, before, above, evidence, group) for above in segment.sheet}
            for above in [one for one in spans if one is not None]:
                if above < limits[0]:
                    spans[None] = clipped(spans[None], spans[above])
                spans[above] = clipped(spans[above], spans[None])
            priced = segment if tier == "standard" else group.model.timelines["standard"][-1]
            fees = {item: fee for item, fee in priced.fees.items() if group.opinion.fees.get(item) == fee}
            rows += [_row(group, provider, tier, above, span, fees, limits) for above in spans for span in spans[above]]
    return rows


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
    group: Group, provider: str, tier: str, above: int | None, span: Span, fees: Rates, limits: tuple[int, int]
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


def compile_rows(genai: dict[str, list[GenaiModel]], snapshots: list[Snapshot]) -> list[Row]:
    """All rows on which two sources agree, in a fixed order."""
    compiled: list[Row] = []
    for provider in PROVIDERS:
        opinions = newest(snapshots, provider)
        groups = group_ids(genai[provider], opinions)
        rows = [row for group in groups for row in group_rows(group, provider, snapshots)]
        add_exact_ids(rows, groups, set(opinions))
        settle_aliases(rows)
        compiled += rows
    return sorted(compiled, key=_order)


def _order(row: Row) -> tuple[str, str, int, int, str]:
    above = -1 if row["prompt_above"] is None else row["prompt_above"]
    return row["provider"], row["model"], TIERS.index(row["tier"]), above, row["effective_from"] or ""


# --------------------------------------------------------------------------- the file


def canonical(document: Any) -> bytes:
    """The bytes that the name of a list is the hash of."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def readable(document: dict[str, Any]) -> str:
    """The same document with one row on a line."""

    def line(value: Any) -> str:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)

    head = [f"{line(key)}: {line(value)}," for key, value in sorted(document.items()) if key not in ("rows", "sources")]
    parts = [
        f"{line(key)}: [\n" + ",\n".join(line(item) for item in document[key]) + "\n]" for key in ("rows", "sources")
    ]
    return "{\n" + "\n".join(head) + "\n" + ",\n".join(parts) + "\n}\n"


def write(document: dict[str, Any], folder: Path) -> Path:
    """Write a list under the name that its content gives it."""
    digest = hashlib.sha256(canonical(document)).hexdigest()[:12]
    path = folder / f"{document['date']}-{digest}.json"
    path.write_text(readable(document), encoding="utf-8")
    return path


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compile a price list from two registry packages.")
    parser.add_argument("--genai", required=True, help="version of genai-prices")
    parser.add_argument("--litellm", required=True, help="version of litellm")
    parser.add_argument("--date", required=True, type=datetime.date.fromisoformat, help="later release date of the two")
    parser.add_argument("--history", nargs="*", default=[], metavar="VERSION=DATE", help="older litellm releases")
    parser.add_argument("--wheels", required=True, type=Path, help="folder with the wheel files")
    parser.add_argument("--out", required=True, type=Path, help="folder to write to")
    return parser.parse_args()


def main() -> None:
    """Compile one list and print its id."""
    options = arguments()
    genai = Wheel.find(options.wheels, "genai-prices", options.genai)
    current = Wheel.find(options.wheels, "litellm", options.litellm)
    wheels = {"genai-prices": genai, "litellm": current}
    snapshots = [Snapshot("litellm", options.date, read_litellm(current))]
    for version, _, day in (one.partition("=") for one in options.history):
        wheel = Wheel.find(options.wheels, "litellm", version)
        wheels[f"litellm@{version}"] = wheel
        snapshots.append(Snapshot(f"litellm@{version}", datetime.date.fromisoformat(day), read_litellm(wheel)))
    snapshots.sort(key=lambda snapshot: snapshot.day, reverse=True)
    if snapshots[0].name != "litellm":
        raise SystemExit("--history names a release that is newer than --date")
    document = {
        "schema": SCHEMA,
        "date": options.date.isoformat(),
        "currency": "USD",
        "sources": [{"name": name, "version": one.version, "sha256": one.sha256} for name, one in wheels.items()],
        "rows": compile_rows(read_genai(genai), snapshots),
    }
    path = write(document, options.out)
    sys.stdout.write(f"{path.name}: {len(document['rows'])} rows\n")


if __name__ == "__main__":
    main()
