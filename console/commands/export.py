"""`capline export`: the ledger, or a part of it, as one file."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import IO

from console.commands.connection import add_gateway, connect
from console.commands.terminal import DONE, CannotDo, Commands, command, downloading, say

FORMATS = ("csv", "jsonl", "parquet")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(commands, "export", _export, "write the ledger's receipts to a file")
    parser.add_argument(
        "--from", dest="start", metavar="DATE", help="the first instant, such as 2026-11-01 (UTC)"
    )
    parser.add_argument("--to", dest="end", metavar="DATE", help="the instant to stop before")
    parser.add_argument("--month", metavar="MONTH", help="a whole month, such as 2026-11")
    parser.add_argument("--format", choices=FORMATS, help="else as the file is named, else jsonl")
    parser.add_argument(
        "--after-seq", metavar="SEQ", help="only what came since: next_seq of an earlier footer"
    )
    parser.add_argument(
        "--plain", action="store_true", help="a CSV without its first and last line, for spreadsheets"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="else standard output")
    add_gateway(parser)


def _export(chosen: argparse.Namespace) -> int:
    kind = _format(chosen)
    wanted = {
        "format": kind,
        "from": chosen.start,
        "to": chosen.end,
        "month": chosen.month,
        "after_seq": chosen.after_seq,
        "plain": "1" if chosen.plain else None,
    }
    params = {name: text for name, text in wanted.items() if text is not None}
    if chosen.output is None:
        if kind == "parquet" and sys.stdout.isatty():
            raise CannotDo("Parquet is no text for a terminal; name a file with -o")
        _write(chosen, params, sys.stdout.buffer)
        return DONE
    write_file(chosen, params, chosen.output)
    say(f"Wrote {chosen.output} ({chosen.output.stat().st_size:,} bytes).")
    return DONE


def write_file(chosen: argparse.Namespace, params: dict[str, str], output: Path) -> None:
    """Write the whole export or nothing under its name; a Parquet file gets its `.sha256` beside it."""
    partial = output.with_name(f".{output.name}.part")
    try:
        with partial.open("wb") as file:
            digest = _write(chosen, params, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    if params["format"] == "parquet":
        beside = output.with_name(f"{output.name}.sha256")
        beside.write_text(f"{digest}  {output.name}\n", "utf-8")


def _write(chosen: argparse.Namespace, params: dict[str, str], file: IO[bytes]) -> str:
    hashed = hashlib.sha256()
    with (
        connect(chosen) as api,
        api.stream("/v1/ledger/export", params) as answer,
        downloading("Exporting") as advance,
    ):
        for piece in answer.iter_bytes():
            file.write(piece)
            hashed.update(piece)
            advance(len(piece))
    return hashed.hexdigest()


def _format(chosen: argparse.Namespace) -> str:
    if chosen.format is not None:
        return str(chosen.format)
    suffix = "" if chosen.output is None else chosen.output.suffix.removeprefix(".")
    return suffix if suffix in FORMATS else "jsonl"
