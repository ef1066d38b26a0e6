"""Corrections: an operator's word on a call whose cost was not known, appended and never an edit (contract §10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from gateway.changes import Actor, Changes, ControlError
from gateway.stores import records
from gateway.stores.corrections import find_receipt, is_corrected
from toolkit.core.corrections import correction
from toolkit.core.errors import CorrectionError
from toolkit.core.pricing import Priced, PriceList, Unpriced, list_at, price
from toolkit.core.receipts import Receipt, usage_of_row
from toolkit.core.rederive import how_priced
from toolkit.core.usage import Usage

ONLY_OWNERS_AND_ADMINS_CORRECT = "Only owners and admins can correct receipts."


class ReceiptControl(Changes):
    """Corrects receipts, one after the other."""

    async def correct_receipt(
        self, actor: Actor, receipt_id: str, *, usage: Usage | None, price_list: str | None, reason: str
    ) -> str:
        """Settle a receipt without a cost; the id of the row that is appended.

        `usage` is what the provider billed, the recorded one when left out. `price_list` is the id of a loaded list,
        that of the call when left out.
        """

        async def change() -> str:
            before = await self._open_receipt(actor, receipt_id)
            billed = usage if usage is not None else _recorded_usage(before)
            priced = self._priced(before, billed, self._list(before, price_list))
            now = self._clock()

            def make(settle_seq: int) -> Receipt:
                return correction(
                    before,
                    receipt_id=f"rc_{self._new_id(now)}",
                    settled_at=now,
                    settle_seq=settle_seq,
                    node=self._settings.node,
                    usage=billed,
                    priced=priced,
                )

            entry = self._entry(
                actor, "receipt.correct", f"receipt:{receipt_id}", _seen(before), reason=reason, at=now
            )

            def store(connection: Connection, made: Receipt) -> None:
                records.append_audit(connection, replace(entry, after=_seen(made)))

            try:
                made = await self._ledger.correct(self._policy.current.book(actor.organization), make, store)
            except CorrectionError as error:
                raise ControlError("not_correctable", f"{error}.") from None
            return made.receipt_id

        return await self._change(actor, ONLY_OWNERS_AND_ADMINS_CORRECT, change)

    async def _open_receipt(self, actor: Actor, receipt_id: str) -> Receipt:
        """The receipt, when its cost is not known yet."""

        def read(connection: Connection) -> tuple[Receipt | None, bool]:
            return find_receipt(connection, actor.organization, receipt_id), is_corrected(
                connection, receipt_id
            )

        found, corrected = await self._writer.read(read)
        if found is None:
            raise ControlError("not_found", "There is no receipt of that id.")
        if corrected:
            raise ControlError("not_correctable", "The receipt is corrected already.")
        if found.corrects is not None or found.cost_nano_usd is not None:
            raise ControlError(
                "not_correctable", "The receipt has a cost; only one without a cost is corrected."
            )
        if found.status not in ("served", "abandoned"):
            raise ControlError(
                "not_correctable", f"The receipt is {found.status}: there is no cost to settle."
            )
        return found

    def _list(self, before: Receipt, price_list: str | None) -> PriceList:
        loaded = {prices.id: prices for prices in self._policy.current.prices}
        if price_list is None:
            own = loaded.get(before.price_list or "") or list_at(loaded.values(), before.admitted_at)
            assert own is not None, "a gateway starts with at least one price list"
            return own
        if price_list not in loaded:
            message = f"price_list is the id of a loaded list: {', '.join(sorted(loaded))}."
            raise ControlError("invalid_request", message, "price_list")
        return loaded[price_list]

    def _priced(self, before: Receipt, usage: Usage, prices: PriceList) -> Priced:
        """The cost, or the reason why there still is none."""
        listed = {provider.name: provider.prices for provider in self._settings.providers}
        by = how_priced(before.row(), listed)
        found = price(prices, by.provider, by.model, usage, before.admitted_at, tier=by.tier)
        if isinstance(found, Unpriced):
            message = f"By price list {prices.id} a call of {by.model} in tier {by.tier} has no price: {found.reason}."
            raise ControlError("invalid_request", message, "price_list")
        return found


def _recorded_usage(before: Receipt) -> Usage:
    usage = usage_of_row(before.row())
    if before.status != "served" or not (usage.meters() or usage.units):
        message = "The receipt does not know what was billed: send the usage that the provider states."
        raise ControlError("invalid_request", message, "usage")
    return usage


def _seen(receipt: Receipt) -> dict[str, Any]:
    """A receipt as the audit trail shows it: what a correction changes, and no customer."""
    names = ("receipt_id", "status", "cost_nano_usd", "counted_nano_usd", "counted_tokens", "unpriced_reason",
             "price_list", "price_row")  # fmt: skip
    return {name: getattr(receipt, name) for name in names}
