"""The exception tree: what an operator or a caller must fix.

    CaplineError
    ├── MoneyError          a text that is not an amount
    ├── InvalidCap          a cap that cannot bind, with the field at fault
    ├── InvalidTags         a tag that must not be dropped silently
    ├── PriceListError      a price file that must not be used
    ├── LoadError           a file that cannot become receipts
    ├── VerifyError         an export whose proof cannot be attempted
    ├── QueryError          a question that receipts or prices cannot answer as put
    ├── CorrectionError     a receipt that no correction can settle
    └── StoreUnavailable    counters or ledger cannot be trusted now

Outcomes (a refusal, an unpriced answer, a usage that does not add up) are values, never exceptions.
"""

from __future__ import annotations


class CaplineError(Exception):
    """Base of every error that Capline raises on purpose."""


class MoneyError(CaplineError, ValueError):
    """A text that is not an amount of US dollars within the stated decimals."""


class InvalidCap(CaplineError, ValueError):
    """A cap that would not bind as written; `field` names what to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class InvalidTags(CaplineError, ValueError):
    """A tag that contradicts the key it came with."""


class PriceListError(CaplineError, ValueError):
    """A price file whose content, name or rows are wrong."""


class LoadError(CaplineError, ValueError):
    """A file that cannot be loaded whole; names file, line and column where known."""

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, column: str | None = None
    ) -> None:
        parts = (file, f"line {line}" if line is not None else None, f"column {column}" if column else None)
        where = ", ".join(part for part in parts if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.file, self.line, self.column = file, line, column


class VerifyError(CaplineError, ValueError):
    """An export that holds nothing to verify."""


class QueryError(CaplineError, ValueError):
    """A question with a word that is not known; the message lists those that are."""


class CorrectionError(CaplineError, ValueError):
    """A receipt that has a cost already, or never had one to settle."""


class StoreUnavailable(CaplineError, RuntimeError):
    """A counter or ledger write failed, so spend under an armed cap cannot be verified."""
