"""LiteLLM spend logs (JSON lines of `LiteLLM_SpendLogs`) as receipts.

Rules, each because a spend log leaves it open:

- Identity is `request_id`. The row with the later `updated_at` supersedes an earlier one of another export.
- `spend` is LiteLLM's own computation, read as decimal text and rounded once, half to even, to nano-USD. It
  is the receipt's cost and what it counted; no provider stated it, so `provider_cost_nano_usd` stays null,
  and none of our lists priced it, so `price_list` does too.
- A spend of 0 with tokens is what LiteLLM writes for a model it has no price for, and for a free one. Nothing
  tells the two apart, so the cost is null, with reason `zero_spend_with_tokens`.
- A cache hit never reached a provider: served, cost 0, and no tokens, because none were billed.
- A failure cost nothing when its code says that the provider refused (4xx, 503, 529; not Azure's 400 and
  408). After any other code the provider may have billed: `abandoned`, cost null, `outcome_unknown`.
- `metadata.usage_object` says which convention counts: Anthropic's `input_tokens` excludes the cache,
  OpenAI's `prompt_tokens` and `input_tokens` include it. Without one only the whole prompt is known: it
  stands in `input_tokens`, the cache meters stay null, and `usage_source` is `partial`. Counts that
  contradict the row's own total set the row aside.
- A time without an offset, a negative or missing spend, a row without an id: set aside, with line and column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from toolkit.core.conventions import anthropic_messages, openai_chat
from toolkit.core.money import LARGEST_NANO_USD, NANO_PER_USD
from toolkit.core.receipts import RECEIPT_COLUMNS, usage_columns
from toolkit.core.usage import Usage, UsageProblem
from toolkit.core.windows import instant_text, parse_instant
from toolkit.sources.common import Part, Rejected, json_object, typed
from toolkit.sources.files import Blob

KIND = "litellm_spend_logs"
SIGNATURE = frozenset(("request_id", "spend", "startTime", "custom_llm_provider"))
"""Keys that every spend log row has and no other export does."""

_AMOUNT = re.compile(r"\d{1,20}(\.\d{1,60})?([eE][+-]?\d{1,2})?", re.ASCII)
_TAG = re.compile(r"[a-z][a-z0-9_-]{0,31}:.+", re.ASCII | re.DOTALL)
_BLANK: Mapping[str, Any] = dict.fromkeys(RECEIPT_COLUMNS)


class _BadRow(ValueError):
    """A row that cannot become a receipt: the column at fault and why."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column = column


def read_spend_logs(blob: Blob) -> Part:
    """Every row of a spend log that can become a receipt, and the others with their reason."""
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    snapshots: list[str | None] = []
    rejected: list[Rejected] = []
    for number, line in blob.lines():
        try:
            raw = json_object(line)
            row, written = _receipt(raw), _instant(raw, "updated_at") if raw.get("updated_at") else None
        except _BadRow as error:
            rejected.append(Rejected(number, error.column, str(error)))
        except ValueError as error:
            rejected.append(Rejected(number, None, str(error)))
        else:
            rows.append(row)
            numbers.append(number)
            snapshots.append(None if written is None else instant_text(written))
    columns = {column: [row[column] for row in rows] for column in RECEIPT_COLUMNS}
    frame, mistyped = typed(columns, numbers, snapshots)
    return Part(kind=KIND, frame=frame, rejected=tuple(sorted((*rejected, *mistyped), key=_line)))


def _line(rejected: Rejected) -> int:
    return rejected.line or 0


def _receipt(raw: Mapping[str, Any]) -> dict[str, Any]:
    metadata = _object(raw, "metadata")
    admitted_at, settled_at = _instant(raw, "startTime"), _instant(raw, "endTime")
    provider = _text(raw, "custom_llm_provider")
    outcome = _outcome(raw, metadata, provider)
    usage, source = _usage(raw, metadata)
    return {
        **_BLANK,
        "receipt_id": f"litellm:{_required_text(raw, 'request_id')}",
        "operation_id": _text(raw, "litellm_call_id") or _required_text(raw, "request_id"),
        "attempt": 1,
        "admitted_at": instant_text(admitted_at),
        "settled_at": instant_text(settled_at),
        "organization": _text(raw, "organization_id") or "default",
        "project": _text(raw, "team_id"),
        "key_id": _text(raw, "api_key"),
        "customer": _text(raw, "end_user"),
        "run": _text(raw, "session_id"),
        "tags": _tags(raw),
        "provider": provider,
        "dialect": "litellm",
        "route": _text(raw, "call_type") or "unknown",
        "model_requested": _text(raw, "model_group") or _text(raw, "model"),
        "model_served": _bare_model(raw, provider),
        "http_status": _code(metadata),
        "latency_ms": (settled_at - admitted_at) // timedelta(milliseconds=1),
        "node": "litellm",
        "basis": "measured",
        "verified": False,
        **_cost(raw, outcome, usage, source),
    }


def _outcome(raw: Mapping[str, Any], metadata: Mapping[str, Any], provider: str | None) -> str:
    """`served`, `cached`, `failed` (known not to bill) or `abandoned`."""
    status = _text(raw, "status") or _text(metadata, "status")
    if status == "success":
        return "cached" if _text(raw, "cache_hit") in ("True", "true") else "served"
    if status != "failure":
        raise _BadRow("status", f"{status!r} is neither success nor failure")
    code = _code(metadata)
    if code is None or (provider is not None and provider.startswith("azure") and code in (400, 408)):
        return "abandoned"
    return "failed" if 400 <= code < 500 or code in (503, 529) else "abandoned"


def _cost(raw: Mapping[str, Any], outcome: str, usage: Usage, source: str) -> dict[str, Any]:
    """Status, meters, cost and its reason when there is none."""
    spend = nano_from(raw.get("spend"))
    if outcome == "cached":
        usage, source = Usage(), "none"
    reason = None
    if spend == 0 and outcome == "abandoned":
        reason = "outcome_unknown"
    elif spend == 0 and outcome == "served":
        reason = "zero_spend_with_tokens" if usage.tokens else "usage_missing"
    elif outcome == "abandoned":
        outcome = "failed"
    return {
        **usage_columns(usage),
        "status": "served" if outcome == "cached" else outcome,
        "usage_source": source,
        "cost_nano_usd": None if reason else spend,
        "counted_nano_usd": 0 if reason else spend,
        "counted_tokens": usage.tokens,
        "unpriced_reason": reason,
    }


def nano_from(spend: Any) -> int:
    """LiteLLM's dollars, a JSON number or decimal text, to nano-USD, half to even; never through a float."""
    text = str(spend)
    if isinstance(spend, bool) or not _AMOUNT.fullmatch(text):
        raise _BadRow("spend", f"{text[:40]} is no amount in US dollars, zero or more")
    nano = round(Fraction(text) * NANO_PER_USD)
    if nano > LARGEST_NANO_USD:
        raise _BadRow("spend", f"{text[:40]} is more than 9,000,000,000 US dollars")
    return nano


def _usage(raw: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[Usage, str]:
    """Disjoint meters, and whether their split is final or only the totals are known."""
    prompt, completion, total = (
        _count(raw, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    said = _object(metadata, "usage_object")
    if not said:
        if total is not None and total != (prompt or 0) + (completion or 0):
            raise _BadRow("total_tokens", f"{total} is not {prompt} prompt + {completion} completion tokens")
        return Usage(input=prompt, output=completion), "partial" if prompt or completion else "none"
    theirs = "input_tokens" in said and "input_tokens_details" not in said and "total_tokens" not in said
    usage = anthropic_messages(said) if theirs else openai_chat(_openai_shape(said))
    if isinstance(usage, UsageProblem):
        raise _BadRow("metadata", f"usage_object: {usage.reason}")
    if total is not None and usage.tokens != total:
        reason = f"{total} is not the {usage.tokens} tokens of metadata.usage_object"
        raise _BadRow("total_tokens", reason)
    return usage, "final"


def _openai_shape(said: Mapping[str, Any]) -> dict[str, Any]:
    """LiteLLM's form of OpenAI's usage as OpenAI's chat usage.

    A Responses usage has its counts under other names; cache reads and writes may stand beside the details
    too, in Anthropic's words.
    """
    if "input_tokens" in said:
        names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
        names |= {f"{theirs}_details": f"{ours}_details" for theirs, ours in names.items()}
        said = {names.get(name, name): value for name, value in said.items()}
    details = dict(_object(said, "prompt_tokens_details"))
    for ours, theirs in (
        ("cached_tokens", said.get("cache_read_input_tokens")),
        ("cache_write_tokens", details.get("cache_creation_tokens")),
        ("cache_write_tokens", said.get("cache_creation_input_tokens")),
    ):
        if theirs is not None and details.setdefault(ours, theirs) != theirs:
            raise _BadRow("metadata", f"usage_object: {ours} is both {details[ours]} and {theirs}")
    return {**said, "prompt_tokens_details": details}


def _bare_model(raw: Mapping[str, Any], provider: str | None) -> str | None:
    model = _text(raw, "model")
    return model.removeprefix(f"{provider}/") if model is not None and provider is not None else model


def _code(metadata: Mapping[str, Any]) -> int | None:
    code = str(_object(metadata, "error_information").get("error_code"))
    return int(code) if code.isascii() and code.isdecimal() and len(code) == 3 else None


def _tags(raw: Mapping[str, Any]) -> list[str]:
    """Request tags; one without a namespace of our grammar gets the namespace `tag`."""
    value = raw.get("request_tags")
    tags = json_list(value) if isinstance(value, str) else value
    if tags is None:
        return []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _BadRow("request_tags", "is no list of texts")
    return [tag if _TAG.fullmatch(tag) else f"tag:{tag}" for tag in tags]


def json_list(text: str) -> Any:
    """The list in a JSON text, as dumps write it; None for an empty text."""
    return json_object(b'{"list":%s}' % text.encode())["list"] if text else None


def _instant(raw: Mapping[str, Any], name: str) -> datetime:
    text = raw.get(name)
    try:
        return parse_instant(_required_text(raw, name))
    except ValueError as error:
        raise _BadRow(name, f"{text!r} is no time with an offset") from error


def _object(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A nested object, also when it stands as JSON text, as dumps write it; empty when it is absent."""
    value = raw.get(name)
    if isinstance(value, str) and value:
        value = json_object(value.encode())
    if value is not None and value != "" and not isinstance(value, Mapping):
        raise _BadRow(name, "is no object")
    return value or {}


def _text(raw: Mapping[str, Any], name: str) -> str | None:
    """A text, null when it is absent or empty."""
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise _BadRow(name, f"{value} is no text")
    return value or None


def _required_text(raw: Mapping[str, Any], name: str) -> str:
    value = _text(raw, name)
    if value is None:
        raise _BadRow(name, "is missing")
    return value


def _count(raw: Mapping[str, Any], name: str) -> int | None:
    count = raw.get(name)
    if count is not None and (type(count) is not int or count < 0):
        raise _BadRow(name, f"{count} is no count of tokens")
    return count
