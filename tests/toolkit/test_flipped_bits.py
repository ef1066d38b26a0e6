"""Any bit of an export that is flipped is found, and so is any cut: by the loader, and by `tk.verify`.

`python -m bench.flips` does the same with 10,000 rows and a thousand bits a format.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import toolkit as tk
from bench.flips import FORMATS, exports, is_found, written

FLIPS = 150


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One ledger in each format."""
    return exports(tmp_path_factory.mktemp("ledger"), rows=40)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_flipped_bit_is_found(whole: dict[str, bytes], kind: str, tmp_path: Path) -> None:
    content, chosen = whole[kind], random.Random(7)
    path = tmp_path / f"export.{kind}"
    assert tk.verify(written(path, content, content)).ok is not False
    ends = [*range(len(content) * 8 - 3_000, len(content) * 8)]  # the footer, which no hash of rows covers
    places = [chosen.randrange(len(content) * 8) for _ in range(FLIPS)] + chosen.sample(ends, FLIPS)
    missed = [place for place in places if not is_found(path, content, place)]
    assert missed == []


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_every_cut_is_found(whole: dict[str, bytes], kind: str, tmp_path: Path) -> None:
    lines = whole[kind].splitlines(keepends=True)
    path = tmp_path / f"export.{kind}"
    for count in range(len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        with pytest.raises(tk.LoadError):
            tk.load(path)


def test_a_flipped_bit_beside_a_parquet_file_is_found(whole: dict[str, bytes], tmp_path: Path) -> None:
    content = whole["parquet"]
    path = written(tmp_path / "export.parquet", content, content)
    beside = path.with_name(f"{path.name}.sha256")
    promise = beside.read_bytes()
    for bit in range(64 * 8):
        changed = bytearray(promise)
        changed[bit // 8] ^= 1 << (bit % 8)
        beside.write_bytes(changed)
        with pytest.raises(tk.LoadError):
            tk.load(path)
