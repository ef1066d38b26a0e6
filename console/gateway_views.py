"""What the gateway's answers look like to the console: frozen, typed, and only the fields that a page shows.

`read` is the JSON edge. A field that is missing where the contract promises it is a fault of the gateway and raises
KeyError there, never a silent blank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, cast

from toolkit.core.caps import Admission, UnpricedPolicy
from toolkit.core.scopes import Scope
from toolkit.core.windows import parse_instant

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapView:
    """One stored cap. Limits are null on an axis that has none; `window` also takes `rolling:30d`."""

    id: int
    name: str
    scope: Scope
    subject: str
    provider: str | None
    model: str | None
    tag: str | None
    window: str
    limit_nano_usd: int | None
    token_limit: int | None
    request_limit: int | None
    hard_stop: bool
    admission: Admission
    unpriced: UnpricedPolicy
    refusal_status: int
    version: int
    updated_at: datetime | None
    updated_by: str | None
    armed_at: datetime | None

    @classmethod
    def read(cls, item: Json) -> CapView:
        """A cap as `/api/caps` shows it."""
        match = item.get("match") or {}
        return cls(
            id=item["id"],
            name=item["name"],
            scope=cast(Scope, item["scope"]),
            subject=item["subject"],
            provider=match.get("provider"),
            model=match.get("model"),
            tag=match.get("tag"),
            window=item["window"],
            limit_nano_usd=item["limit_nano_usd"],
            token_limit=item["token_limit"],
            request_limit=item["request_limit"],
            hard_stop=item["hard_stop"],
            admission=cast(Admission, item["admission"]),
            unpriced=cast(UnpricedPolicy, item["unpriced"]),
            refusal_status=item["refusal_status"],
            version=item["version"],
            updated_at=_instant(item.get("updated_at")),
            updated_by=item.get("updated_by"),
            armed_at=_instant(item.get("armed_at")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the ledger, or a copy of it, holds; `first` and `last` are admissions."""

    rows: int
    customers: int
    first: datetime | None
    last: datetime | None

    @classmethod
    def read(cls, item: Json) -> Coverage:
        """What `/api/ledger/coverage` tells."""
        first, last = _instant(item["first"]), _instant(item["last"])
        return cls(rows=item["receipts"], customers=item["customers"], first=first, last=last)


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerView:
    """A customer's value, and the reference that stands for it in URLs."""

    customer: str
    customer_ref: str

    @classmethod
    def read(cls, item: Json) -> CustomerView:
        """A customer as `/api/customers` shows it."""
        return cls(customer=item["customer"], customer_ref=item["customer_ref"])


@dataclass(frozen=True, slots=True, kw_only=True)
class LookView:
    """One cap as a decision saw it on one axis. `verdict` is fits, busy or final."""

    cap_id: int
    name: str
    scope: str
    window: str
    unit: str
    limit: int
    spent: int
    held: int
    hold: int
    binds: bool
    verdict: str
    armed_by: str | None
    armed_at: datetime | None

    @classmethod
    def read(cls, item: Json) -> LookView:
        """One line of a decision trace; dollars stand in the fields that say so."""
        money = "_nano_usd" if item["unit"] == "usd" else ""
        return cls(
            cap_id=item["cap_id"],
            name=item["name"],
            scope=item["scope"],
            window=item["window"],
            unit=item["unit"],
            limit=item[f"limit{money}"],
            spent=item[f"spent{money}"],
            held=item[f"held{money}"],
            hold=item[f"hold{money}"],
            binds=item["binds"],
            verdict=item["verdict"],
            armed_by=item["armed_by"],
            armed_at=_instant(item["armed_at"]),
        )


Tracing: TypeAlias = tuple[LookView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptView:
    """What explains one receipt: its outcome and the caps that were looked at."""

    receipt_id: str
    admitted_at: datetime
    status: str
    refusal_code: str | None
    model_requested: str | None
    hold_nano_usd: int | None
    cap_id: int | None
    cap_window: str | None
    trace: Tracing

    @classmethod
    def read(cls, item: Json) -> ReceiptView:
        """A receipt as `/api/receipts/{id}` shows it."""
        return cls(
            receipt_id=item["receipt_id"],
            admitted_at=parse_instant(item["admitted_at"]),
            status=item["status"],
            refusal_code=item["refusal_code"],
            model_requested=item["model_requested"],
            hold_nano_usd=item["hold_nano_usd"],
            cap_id=item["cap_id"],
            cap_window=item["cap_window"],
            trace=tuple(LookView.read(look) for look in item.get("trace") or ()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One change: who did what to which object, from what to what, and why."""

    at: datetime
    actor: str
    action: str
    subject: str
    before: Json | None
    after: Json | None
    reason: str | None

    @classmethod
    def read(cls, item: Json) -> AuditRow:
        """A change as `/api/audit` shows it."""
        return cls(
            at=parse_instant(item["at"]),
            actor=item.get("actor_name") or item["actor"],
            action=item["action"],
            subject=str(item["object"]),
            before=item.get("before"),
            after=item.get("after"),
            reason=item.get("reason"),
        )


def _instant(text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text)
