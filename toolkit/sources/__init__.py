"""The export families that can be loaded, told apart by content and header, never by a file's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from toolkit.core.errors import LoadError, VerifyError
from toolkit.frames import RECEIPT_SCHEMA
from toolkit.sources import litellm
from toolkit.sources.common import Part, json_object
from toolkit.sources.files import Blob
from toolkit.sources.receipt_forms import Csv, Form, JsonLines, Parquet
from toolkit.sources.receipts import Export

KNOWN = "a Capline ledger export (JSONL, CSV, Parquet), plain receipts Parquet, LiteLLM spend logs (JSONL)"

_OURS: Mapping[str, Callable[[Blob], Form]] = MappingProxyType(
    {"csv": Csv, "jsonl": JsonLines, "parquet": Parquet}
)
_FOREIGN: Mapping[str, Callable[[Blob], Part]] = MappingProxyType({litellm.KIND: litellm.read_spend_logs})


def read(blob: Blob) -> Part:
    """All of a file's rows by the one reader that knows its form. Raises LoadError when none does."""
    kind = _kind_of(blob)
    return _FOREIGN[kind](blob) if kind in _FOREIGN else Export(blob, _OURS[kind](blob)).whole()


def export_of(blob: Blob) -> Export:
    """One of our own exports, to be read batch by batch. Raises VerifyError for a file of another system."""
    kind = _kind_of(blob)
    if kind in _FOREIGN:
        raise VerifyError(f"{blob.name}: {kind} hold no proof; load them with tk.load")
    return Export(blob, _OURS[kind](blob))


def _kind_of(blob: Blob) -> str:
    with blob.open() as stream:
        start = stream.read(4)
    if start == b"PAR1":
        return "parquet"
    if start.startswith(b"PK"):
        raise LoadError("is a zip archive; unpack it first", file=blob.name)
    number, first = next(((number, line) for number, line in blob.lines() if line.strip()), (1, b""))
    if not first:
        raise LoadError("is empty; there is nothing to load", file=blob.name)
    if first.lstrip().startswith((b"{", b"[")):
        return _kind_of_json(blob, number, first)
    if _is_receipts_csv(blob):
        return "csv"
    raise LoadError(f"is of no known kind; known are {KNOWN}", file=blob.name, line=number)


def _kind_of_json(blob: Blob, number: int, first: bytes) -> str:
    try:
        keys = json_object(first).keys()
    except ValueError as error:
        raise LoadError(f"{error}; one JSON object a line is wanted", file=blob.name, line=number) from error
    if "recipe" in keys or {"receipt_id", "row_hash"} <= keys:
        return "jsonl"
    if keys >= litellm.SIGNATURE:
        return litellm.KIND
    if {"spend", "startTime", "users", "models"} <= keys:
        reason = "holds LiteLLM's daily sums; export rows with /spend/logs/v2, or with summarize=false"
        raise LoadError(reason, file=blob.name, line=number)
    raise LoadError(f"is of no known kind; known are {KNOWN}", file=blob.name, line=number)


def _is_receipts_csv(blob: Blob) -> bool:
    for _, line in blob.lines():
        if not line.startswith(b"# "):
            names = line.decode("utf-8", "replace").replace('"', "").split(",")
            return len(set(names) & set(RECEIPT_SCHEMA)) * 2 > len(RECEIPT_SCHEMA)
    return False
