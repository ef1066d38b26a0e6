"""Reading counts: what is a count, what is none, and what does not add up.

Absent and null are None, an explicit 0 stays 0. A bool, a text, a fraction or a negative number is no count, and
neither is a part that is larger than its whole: those raise `InvalidUsage`. Parts that miss a stated whole raise
`InconsistentUsage`, and what a price needs but nobody said raises `MissingUsage`. `guarded` makes the problems of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from toolkit.core.usage import Quantity, Usage, UsageProblem, UsageReason

LARGEST_COUNT = 2**63 - 1
"""No counter holds more. A receipt carries less still (`toolkit.core.usage.within_receipt`)."""
LONGEST_SECONDS = Decimal(10**9)
MOST_DECIMALS = 12


class _Problem(ValueError):
    reason: UsageReason


class InvalidUsage(_Problem):
    """A count that is no count, or a part larger than its whole."""

    reason = "usage_invalid"


class InconsistentUsage(_Problem):
    """Parts that do not make their stated whole."""

    reason = "usage_inconsistent"


class MissingUsage(_Problem):
    """A count without which nothing is known."""

    reason = "usage_missing"


def guarded(raw: Any, convention: Callable[[Mapping[str, Any]], Usage]) -> Usage | UsageProblem:
    """What a convention makes of a raw usage object; no object at all is missing, another value is invalid."""
    if not isinstance(raw, Mapping):
        return UsageProblem("usage_missing" if raw is None else "usage_invalid")
    try:
        return convention(raw)
    except _Problem as problem:
        return UsageProblem(problem.reason)


def count(raw: Mapping[str, Any], name: str) -> int | None:
    """The count under a name, or None when it is absent."""
    found = raw.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= LARGEST_COUNT:
        raise InvalidUsage
    return found


def seconds(raw: Mapping[str, Any], name: str) -> Quantity | None:
    """The seconds under a name, which may be a fraction and then are a Decimal; None when absent."""
    found = raw.get(name)
    if not isinstance(found, Decimal):
        return count(raw, name)
    if not found.is_finite() or not 0 <= found <= LONGEST_SECONDS:
        raise InvalidUsage
    if -int(found.as_tuple().exponent) > MOST_DECIMALS:
        raise InvalidUsage
    return found


def part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under a name, empty when it is absent."""
    found = raw.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidUsage
    return found


def entries(raw: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The list of objects under a name, empty when it is absent."""
    found = raw.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
        raise InvalidUsage
    return found


def rest(whole: int, *parts: int | None) -> int:
    """What is left of a whole without its parts."""
    left = whole - added(parts)
    if left < 0:
        raise InvalidUsage
    return left


def added(counts: Iterable[int | None]) -> int:
    """The sum of counts; those that were not reported add nothing."""
    return sum([each or 0 for each in counts])


def check_whole(whole: int | None, *parts: int | None) -> None:
    """Raises InconsistentUsage where a whole is stated, some part is too, and the parts do not make it."""
    if whole is not None and any(each is not None for each in parts) and added(parts) != whole:
        raise InconsistentUsage


def check_part(inner: int | None, whole: int | None) -> None:
    """Raises InvalidUsage for a part that is larger than its whole."""
    if (inner or 0) > (whole or 0):
        raise InvalidUsage
