"""Reading counts: what is a count, what is none, and what does not add up.

Absent and null are None, an explicit 0 stays 0. A bool, a text, a fraction or a negative number is no count, and
neither is a part that is larger than its whole: those raise `InvalidUsage`. Parts that miss a stated whole raise
`InconsistentUsage`. `guarded` makes the problems of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolkit.core.money import LARGEST_INTEGER
from toolkit.core.usage import Usage, UsageProblem


class InvalidUsage(ValueError):
    """A count that is no count, or a part larger than its whole."""


class InconsistentUsage(ValueError):
    """Parts that do not make their stated whole."""


def guarded(
    raw: Any, convention: Callable[[Mapping[str, Any]], Usage | UsageProblem]
) -> Usage | UsageProblem:
    """What a convention makes of a raw usage object; no object at all is missing, another value is invalid."""
    if not isinstance(raw, Mapping):
        return UsageProblem("usage_missing" if raw is None else "usage_invalid")
    try:
        return convention(raw)
    except InvalidUsage:
        return UsageProblem("usage_invalid")
    except InconsistentUsage:
        return UsageProblem("usage_inconsistent")


def count(raw: Mapping[str, Any], name: str) -> int | None:
    """The count under a name, or None when it is absent."""
    found = raw.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= LARGEST_INTEGER:
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


def rest(whole: int, *parts: int | None) -> int:
    """What is left of a whole without its parts."""
    left = whole - sum([each or 0 for each in parts])
    if left < 0:
        raise InvalidUsage
    return left


def check_part(inner: int | None, whole: int | None) -> None:
    """Raises InvalidUsage for a part that is larger than its whole."""
    if (inner or 0) > (whole or 0):
        raise InvalidUsage
