"""Capline's analytics: spend, unpriced usage, what-if and proof over receipts, in plain Polars frames.

    import toolkit as tk
    receipts = tk.load("november.jsonl")
    tk.spend(receipts, by=("customer",), window="month")

Names are imported when first used, so that `toolkit.core`, which the gateway runs on, costs no Polars.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit import datasets, figures
    from toolkit.core.errors import (
        CaplineError,
        InvalidCap,
        LoadError,
        MoneyError,
        PriceListError,
        QueryError,
        VerifyError,
    )
    from toolkit.core.pricing import Priced, Unpriced
    from toolkit.frames import RECEIPT_SCHEMA, Manifest, Receipts
    from toolkit.loading import load
    from toolkit.prices import price, price_lists
    from toolkit.repricing import reprice
    from toolkit.showback import months, spend, unpriced
    from toolkit.verification import Verification, verify
    from toolkit.whatif import WhatIf, what_if

__all__ = [
    "RECEIPT_SCHEMA",
    "CaplineError",
    "InvalidCap",
    "LoadError",
    "Manifest",
    "MoneyError",
    "PriceListError",
    "Priced",
    "QueryError",
    "Receipts",
    "Unpriced",
    "Verification",
    "VerifyError",
    "WhatIf",
    "datasets",
    "figures",
    "load",
    "months",
    "price",
    "price_lists",
    "reprice",
    "spend",
    "unpriced",
    "verify",
    "what_if",
]

# No module is named like a function of the package: importing it would put the module in its place.
_HOMES = {
    "RECEIPT_SCHEMA": "frames",
    "CaplineError": "core.errors",
    "InvalidCap": "core.errors",
    "LoadError": "core.errors",
    "Manifest": "frames",
    "MoneyError": "core.errors",
    "PriceListError": "core.errors",
    "Priced": "core.pricing",
    "QueryError": "core.errors",
    "Receipts": "frames",
    "Unpriced": "core.pricing",
    "Verification": "verification",
    "VerifyError": "core.errors",
    "WhatIf": "whatif",
    "load": "loading",
    "months": "showback",
    "price": "prices",
    "price_lists": "prices",
    "reprice": "repricing",
    "spend": "showback",
    "unpriced": "showback",
    "verify": "verification",
    "what_if": "whatif",
}


def __getattr__(name: str) -> Any:
    if name in ("datasets", "figures"):
        return import_module(f"toolkit.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'toolkit' has no attribute {name!r}")
    value = getattr(import_module(f"toolkit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
