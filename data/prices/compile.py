"""Compile an immutable price list from exact releases of genai-prices and litellm.

    python data/prices/compile.py --genai 0.2.3 --litellm 1.110.2 --date 2026-11-20 \\
        --history 1.97.0=2026-08-16 --wheels DIR --out data/prices

`--history` names older litellm releases with their dates: they confirm (or bound) prices of the past and
models that have since been retired. The same inputs give the same bytes. README.md beside this file has the
rule and the commands that made the lists here.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from agreement import SIGNED, Signed, Snapshot, compile_rows
from price_sources import Wheel, read_genai, read_litellm

SCHEMA = "capline-prices-v1"


def canonical(document: Any) -> bytes:
    """The bytes that the name of a list is the hash of."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def readable(document: dict[str, Any]) -> str:
    """The same document with one row on a line."""

    def line(value: Any) -> str:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)

    def member(key: str, value: Any) -> str:
        if not isinstance(value, list):
            return f"{line(key)}: {line(value)}"
        return f"{line(key)}: [\n" + ",\n".join(line(item) for item in value) + "\n]"

    return "{\n" + ",\n".join(member(key, document[key]) for key in sorted(document)) + "\n}\n"


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
    parser.add_argument(
        "--date", required=True, type=datetime.date.fromisoformat, help="later release date of the two"
    )
    parser.add_argument(
        "--history", nargs="*", default=[], metavar="VERSION=DATE", help="older litellm releases"
    )
    parser.add_argument("--signed", type=Path, help="file of signatures; without it there are none")
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
        name = f"litellm@{version}"
        wheels[name] = Wheel.find(options.wheels, "litellm", version)
        snapshots.append(Snapshot(name, datetime.date.fromisoformat(day), read_litellm(wheels[name])))
    snapshots.sort(key=lambda snapshot: snapshot.day, reverse=True)
    if snapshots[0].name != "litellm":
        raise SystemExit("--history names a release that is newer than --date")
    sources = [{"name": name, "version": one.version, "sha256": one.sha256} for name, one in wheels.items()]
    signed = Signed()
    if options.signed is not None:
        content = json.loads(options.signed.read_text(encoding="utf-8"))
        digest = hashlib.sha256(canonical(content)).hexdigest()
        sources.append({"name": SIGNED, "version": content["version"], "sha256": digest})
        signed = Signed.read(content)
    document = {
        "schema": SCHEMA,
        "date": options.date.isoformat(),
        "currency": "USD",
        "sources": sources,
        "rows": compile_rows(read_genai(genai), snapshots, signed),
    }
    path = write(document, options.out)
    sys.stdout.write(f"{path.name}: {len(document['rows'])} rows\n")


if __name__ == "__main__":
    main()
