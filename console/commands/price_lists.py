"""The price lists at hand: the bundled ones, and those that a gateway merged with its operator's prices."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from console.commands.terminal import CannotDo
from toolkit.core.errors import PriceListError
from toolkit.core.pricefile import load_price_file, price_paths
from toolkit.core.pricing import PriceList

KEPT = (Path("var/price_lists"), Path("var/demo/price_lists"))
"""Where a gateway started in this directory keeps its merged lists."""


def bundled() -> tuple[PriceList, ...]:
    """The lists that ship with Capline, oldest first."""
    from toolkit.prices import price_lists

    return price_lists()


def at_hand() -> tuple[PriceList, ...]:
    """Every list by which a receipt may have been priced here, oldest first."""
    kept = map(load_price_file, chain.from_iterable(map(price_paths, KEPT)))
    return tuple(sorted((*bundled(), *kept), key=lambda prices: prices.date))


def named(wanted: str) -> PriceList:
    """A list by its file, its id or, among the bundled ones, its date. Raises CannotDo."""
    if Path(wanted).is_file():
        try:
            return load_price_file(Path(wanted))
        except PriceListError as error:
            raise CannotDo(f"a price list that must not be used: {error}") from error
    lists = at_hand()
    for prices in lists:
        if wanted == prices.id:
            return prices
    for prices in bundled():
        if wanted == f"{prices.date}":
            return prices
    raise CannotDo(f"there is no price list {wanted!r}; there are {', '.join(prices.id for prices in lists)}")
