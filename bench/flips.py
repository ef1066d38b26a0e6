"""Single-bit changes of an export in each format: how many the loader and `tk.verify` find."""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
from pathlib import Path

import toolkit as tk
from tests.support.gateway import ADMIN, running_gateway
from toolkit.core.errors import CaplineError

FORMATS = ("jsonl", "csv", "parquet")


def exports(folder: Path, *, rows: int) -> dict[str, bytes]:
    """A ledger of that many calls, exported in each format."""
    return asyncio.run(_exports(folder, rows))


def written(path: Path, content: bytes, before: bytes) -> Path:
    """`content` as a file; a Parquet file beside the `.sha256` of what it was `before`."""
    path.write_bytes(content)
    if path.suffix == ".parquet":
        beside = path.with_name(f"{path.name}.sha256")
        beside.write_text(f"{hashlib.sha256(before).hexdigest()}  {path.name}\n")
    return path


def is_found(path: Path, content: bytes, bit: int) -> bool:
    """Whether both the loader and the verifier find one flipped bit."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << (bit % 8)
    written(path, bytes(changed), content)
    return _refuses(path) and _is_bad(path)


def main(rows: int = 10_000, flips: int = 1_000, seed: int = 1) -> bool:
    """Print a line a format; whether every change was found."""
    chosen = random.Random(seed)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, content in exports(Path(folder), rows=rows).items():
            path = Path(folder) / f"export.{kind}"
            places = [chosen.randrange(len(content) * 8) for _ in range(flips)]
            lost = [place for place in places if not is_found(path, content, place)]
            missed += len(lost)
            print(
                f"{kind:8} {len(content):>12,} bytes  {flips:,} bits flipped  {len(lost)} missed {lost[:5]}"
            )
    return missed == 0


async def _exports(folder: Path, rows: int) -> dict[str, bytes]:
    async with running_gateway(folder) as gateway:
        for start in range(0, rows, 50):
            calls = (
                gateway.chat(customer=f"customer {number % 97}")
                for number in range(start, min(start + 50, rows))
            )
            await asyncio.gather(*calls)
        found = {}
        for kind in FORMATS:
            headers = {"authorization": f"Bearer {ADMIN}"}
            reply = await gateway.http.get("/v1/ledger/export", params={"format": kind}, headers=headers)
            found[kind] = reply.content
        return found


def _refuses(path: Path) -> bool:
    try:
        tk.load(path)
    except CaplineError:
        return True
    return False


def _is_bad(path: Path) -> bool:
    try:
        return tk.verify(path).ok is False
    except CaplineError:
        return True


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
