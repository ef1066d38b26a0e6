"""The data that ships with Capline: price lists and the bundled sample.

`data/` is no package. A wheel carries its files in `toolkit/_data`; a checkout has them beside `toolkit`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from toolkit.core.errors import LoadError
from toolkit.core.pricefile import load_price_folder
from toolkit.core.pricing import PriceList
from toolkit.frames import Receipts
from toolkit.loading import load

_PACKAGE = Path(__file__).resolve().parent
PLACES = (_PACKAGE / "_data", _PACKAGE.parent / "data")
"""Where bundled files are looked for, first match first."""


def find(name: str) -> Path:
    """A bundled file or folder such as `prices`; LoadError when this installation has none."""
    for place in PLACES:
        if (place / name).exists():
            return place / name
    raise LoadError("this installation came without this file; reinstall it, or make it", file=f"data/{name}")


def load_sample() -> Receipts:
    """The bundled sample: some months of invented receipts, without a chain."""
    return load(find("sample/receipts.parquet"))


@cache
def load_prices() -> tuple[PriceList, ...]:
    """Every bundled price list, oldest first; read once.

    >>> [prices.id[:10] for prices in load_prices()] == sorted(prices.id[:10] for prices in load_prices())
    True
    """
    return load_price_folder(find("prices"))
