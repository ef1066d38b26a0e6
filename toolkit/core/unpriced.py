"""Why a call has no price, and what its operator can do about it: one sentence for each reason."""

from __future__ import annotations

from collections.abc import Mapping

_CORRECT = "POST /api/receipts/{receipt_id}/correct"

WHAT_TO_DO: Mapping[str, str] = {
    "model_unknown": "No list has this id. Add the model to your operator prices, or list the id there as an alias of "
    f"a model that costs the same; then settle earlier calls: {_CORRECT} with the new price_list.",
    "fine_tune_base_not_listed": "A fine-tune is never priced as its base. Add a row ft:<base> to your operator "
    f"prices with what the provider charges for it; then settle earlier calls: {_CORRECT} with the new price_list.",
    "no_list_price_for_service_tier": "The model is listed, the tier it was served in is not: a contract's tier has no "
    f"list price. Add a row of that tier to your operator prices; then settle earlier calls: {_CORRECT}.",
    "no_rate_at_that_time": "The model is listed, but not for that instant. Take the list that was in force then, or "
    f"add an operator row whose effective_from is early enough; then settle earlier calls: {_CORRECT}.",
    "rate_missing": "The row lacks a rate or fee for something that was billed, such as audio or a tool. Add it in an "
    f"operator row of the same model and tier; then settle earlier calls: {_CORRECT} with the new price_list.",
    "usage_missing": "The answer came without a usage. Ask for one where the provider leaves it out by default, and "
    f"state what it billed: {_CORRECT} with usage.",
    "usage_invalid": "The usage holds what is no count, or a part larger than its whole. Check the usage convention in "
    f"the provider's settings; state what it billed: {_CORRECT} with usage.",
    "usage_inconsistent": "The parts of the usage miss its own total. Check the usage convention in the provider's "
    f"settings; state what it billed: {_CORRECT} with usage.",
    "outcome_unknown": "The call was sent and its end was not seen, so it counts at its hold. Look up what the "
    f"provider billed: {_CORRECT} with usage frees the rest of the hold.",
    "possibly_billed": f"The provider may have billed this error. Look up what it billed: {_CORRECT} with usage.",
}


def what_to_do(reason: str | None) -> str:
    """The advice for a reason; one that another system gave is its own to explain.

    >>> what_to_do("usage_missing").startswith("The answer came without a usage")
    True
    """
    return WHAT_TO_DO.get(
        reason or "", f"Look up what the provider billed and state it: {_CORRECT} with usage."
    )
