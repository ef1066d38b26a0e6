"""The export families that can be loaded, told apart by content and header, never by a file's name."""

from __future__ import annotations

from toolkit.core.errors import LoadError
from toolkit.frames import RECEIPT_SCHEMA
from toolkit.sources import litellm, receipts
from toolkit.sources.common import Blob, Part, json_object, lines_of

KNOWN = "a Capline ledger export (JSONL, CSV, Parquet), plain receipts Parquet, LiteLLM spend logs (JSONL)"


def read(blob: Blob) -> Part:
    """The file's rows by the one reader that knows its form. Raises LoadError when none does."""
    number, first = next(lines_of(blob.content), (1, b""))
    if not blob.content.removeprefix(b"\xef\xbb\xbf").strip():
        raise LoadError("is empty; there is nothing to load", file=blob.name)
    if blob.content.startswith(b"PAR1"):
        return receipts.read_parquet(blob)
    if blob.content.startswith(b"PK"):
        raise LoadError("is a zip archive; unpack it first", file=blob.name)
    if first.lstrip().startswith((b"{", b"[")):
        return _read_json(blob, number, first)
    if _is_receipts_csv(blob.content):
        return receipts.read_csv(blob)
    raise LoadError(f"is of no known kind; known are {KNOWN}", file=blob.name, line=number)


def _read_json(blob: Blob, number: int, first: bytes) -> Part:
    try:
        keys = json_object(first).keys()
    except ValueError as error:
        raise LoadError(f"{error}; one JSON object a line is wanted", file=blob.name, line=number) from error
    if "recipe" in keys or {"receipt_id", "row_hash"} <= keys:
        return receipts.read_jsonl(blob)
    if keys >= litellm.SIGNATURE:
        return litellm.read_spend_logs(blob)
    if {"spend", "startTime", "users", "models"} <= keys:
        reason = "holds LiteLLM's daily sums; export rows with /spend/logs/v2, or with summarize=false"
        raise LoadError(reason, file=blob.name, line=number)
    raise LoadError(f"is of no known kind; known are {KNOWN}", file=blob.name, line=number)


def _is_receipts_csv(content: bytes) -> bool:
    for _, line in lines_of(content):
        if not line.startswith(b"# "):
            names = line.decode("utf-8", "replace").replace('"', "").split(",")
            return len(set(names) & set(RECEIPT_SCHEMA)) * 2 > len(RECEIPT_SCHEMA)
    return False
