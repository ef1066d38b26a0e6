"""Refusals: one stable code each, with its status, its words and what a client should do about it (contract §8).

A refusal is a value. No body, header or log line of one carries a customer's value or a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

RefusalCode = Literal[
    "budget_exceeded",
    "budget_busy",
    "budget_unverifiable",
    "model_unpriced",
    "output_limit_required",
    "invalid_customer_tag",
    "customer_required",
    "idempotency_running",
    "idempotency_conflict",
    "idempotency_replayed",
    "invalid_api_key",
    "permission_denied",
    "unsupported_route",
    "unknown_provider",
    "response_not_found",
    "request_too_large",
    "invalid_request",
    "provider_unreachable",
]


@dataclass(frozen=True, slots=True)
class _Kind:
    status: int
    openai_type: str
    anthropic_type: str
    retry: bool | None = None
    """True: wanted, after a second. False: said to be useless. None: left to the status."""


_QUOTA = _Kind(402, "insufficient_quota", "billing_error", retry=False)
_BAD_REQUEST = _Kind(400, "invalid_request_error", "invalid_request_error")
_NOT_FOUND = _Kind(404, "not_found_error", "not_found_error")

_USED = _Kind(422, "invalid_request_error", "invalid_request_error")

KINDS: Mapping[RefusalCode, _Kind] = {
    "budget_exceeded": _QUOTA,
    "budget_busy": _Kind(429, "rate_limit_error", "rate_limit_error", retry=True),
    "budget_unverifiable": _Kind(503, "server_error", "overloaded_error", retry=True),
    "model_unpriced": _QUOTA,
    "output_limit_required": _BAD_REQUEST,
    "invalid_customer_tag": _BAD_REQUEST,
    "customer_required": _BAD_REQUEST,
    "idempotency_running": _Kind(409, "invalid_request_error", "invalid_request_error", retry=True),
    "idempotency_conflict": _USED,
    "idempotency_replayed": _USED,
    "invalid_api_key": _Kind(401, "authentication_error", "authentication_error"),
    "permission_denied": _Kind(403, "permission_error", "permission_error"),
    "unsupported_route": _NOT_FOUND,
    "unknown_provider": _NOT_FOUND,
    "response_not_found": _NOT_FOUND,
    "request_too_large": _Kind(413, "invalid_request_error", "invalid_request_error"),
    "invalid_request": _BAD_REQUEST,
    "provider_unreachable": _Kind(502, "server_error", "api_error"),
}

INVALID_CUSTOMER_TAG = "The customer tag must be 1 to 128 characters."


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One refusal, ready to be worded in any dialect. `retry_after` is in whole seconds."""

    code: RefusalCode
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    status_override: int | None = None
    retry_after: int | None = None

    @property
    def status(self) -> int:
        """The HTTP status, a cap's own choice where it has one."""
        return self.status_override or KINDS[self.code].status

    @property
    def openai_type(self) -> str:
        """`error.type` on the OpenAI surface; a 429 is typed as its SDKs expect one."""
        return "rate_limit_error" if self._as_429() else KINDS[self.code].openai_type

    @property
    def anthropic_type(self) -> str:
        """`error.type` on the Anthropic surface."""
        return "rate_limit_error" if self._as_429() else KINDS[self.code].anthropic_type

    def response_headers(self) -> dict[str, str]:
        """The headers that tell a client whether to try again, and when."""
        headers = dict(self.headers)
        retry = KINDS[self.code].retry
        if retry:
            headers["retry-after"] = "1"
        elif retry is False:
            headers["x-should-retry"] = "false"
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return headers

    def _as_429(self) -> bool:
        return self.code == "budget_exceeded" and self.status_override == 429
