"""Caps and amounts as people write and read them: `customer:* month 20`, "$20.00 per month".

The grammar is SCOPE:SUBJECT WINDOW USD [ADMISSION]; whatever is wrong is named by its part.
"""

from __future__ import annotations

from typing import TypeVar, get_args

from toolkit.core.caps import EACH, Admission, Cap, validate_cap
from toolkit.core.errors import InvalidCap, MoneyError
from toolkit.core.money import NANO_PER_USD, limit_text, parse_usd
from toolkit.core.scopes import SCOPES
from toolkit.core.windows import WINDOWS

GRAMMAR = "SCOPE:SUBJECT WINDOW USD [ADMISSION], such as 'customer:* month 20'"

_Word = TypeVar("_Word", bound=str)


def parse_cap_text(text: str, *, cap_id: int = 1, admission: Admission = "reserve") -> Cap:
    """One cap out of the command line's text; raises InvalidCap naming the part that is wrong.

    A subject may hold blanks: the window, the amount and the admission are read from the end.

    >>> cap = parse_cap_text("customer:* month 20 floor")
    >>> cap.subject, cap.window, cap.limit_nano_usd, cap.admission
    ('*', 'month', 20000000000, 'floor')
    """
    words = text.split(" ")
    if len(words) > 3 and words[-1] in get_args(Admission):
        admission = _one_of(words.pop(), get_args(Admission), "admission")
    if len(words) < 3:
        raise InvalidCap("cap", f"{text!r} is not a cap; write {GRAMMAR}")
    *target, window, usd = words
    scope, colon, subject = " ".join(target).partition(":")
    if not colon or not subject:
        raise InvalidCap(
            "subject", f"{' '.join(target)!r} names no subject; write SCOPE:SUBJECT, such as customer:*"
        )
    try:
        limit = parse_usd(usd)
    except MoneyError as error:
        raise InvalidCap("limit_usd", f"the limit {error}") from error
    return validate_cap(
        Cap(
            id=cap_id,
            scope=_one_of(scope, SCOPES, "scope"),
            subject=subject,
            window=_one_of(window, WINDOWS, "window"),
            limit_nano_usd=limit,
            admission=admission,
        )
    )


def cap_words(cap: Cap) -> str:
    """A cap as the start of a sentence: its limits, its window, and its subject where that is one of many.

    >>> cap_words(parse_cap_text("customer:* day 10"))
    '$10.00 per day'
    >>> cap_words(parse_cap_text("project:search never 1500.5"))
    '$1,500.50 in all for project search'
    """
    limits = [
        f"${with_commas(limit_text(limit))}" if unit == "usd" else counted(limit, unit.removesuffix("s"))
        for unit, limit in cap.limits
    ]
    span = "in all" if cap.window == "never" else f"per {cap.window}"
    narrowed = [
        f"{name} {value}"
        for name, value in zip(cap.match._fields, cap.match, strict=True)
        if value is not None
    ]
    whom = [] if cap.scope == "customer" and cap.subject == EACH else [_whom(cap)]
    scoped = f" for {', '.join([*whom, *narrowed])}" if whom or narrowed else ""
    return f"{' and '.join(limits)} {span}{scoped}"


def dollars(nano_usd: int) -> str:
    """A total for people: two decimals, half to even; never a bare $0.00 for an amount that is not zero.

    >>> dollars(1_234_565_000_000), dollars(1), dollars(0)
    ('$1,234.56', '<$0.01', '$0.00')
    """
    cent = NANO_PER_USD // 100
    whole, rest = divmod(abs(nano_usd), cent)
    cents = whole + (rest * 2 > cent or (rest * 2 == cent and whole % 2 == 1))
    sign = "-" if nano_usd < 0 else ""
    if cents == 0 and nano_usd != 0:
        return f"{sign}<$0.01"
    return f"{sign}${cents // 100:,}.{cents % 100:02d}"


def with_commas(amount: str) -> str:
    """Decimal text with a comma at each thousand."""
    whole, point, fraction = amount.partition(".")
    return f"{int(whole):,}{point}{fraction}"


def counted(number: int, noun: str) -> str:
    """A number and its noun: `1 customer`, `2 customers`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def without_price(calls: int, *, more: bool) -> str:
    """The calls that a cap refuses for want of a price, apart from those that its limit stops.

    >>> without_price(1_225, more=True), without_price(1, more=False)
    ('1,225 more calls would be refused because their model has no price', \
'1 call would be refused because its model has no price')
    """
    noun = counted(calls, "more call" if more else "call")
    return f"{noun} would be refused because {'its' if calls == 1 else 'their'} model has no price"


def _whom(cap: Cap) -> str:
    return f"each {cap.scope}" if cap.subject == EACH else f"{cap.scope} {cap.subject}"


def _one_of(word: str, allowed: tuple[_Word, ...], part: str) -> _Word:
    for known in allowed:
        if word == known:
            return known
    raise InvalidCap(part, f"the {part} {word!r} is not one of {', '.join(allowed)}")
