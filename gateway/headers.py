"""Our header names under the configured prefix, and the figures that ride on answers (contract §9, R093-R105)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from functools import lru_cache

from gateway.upstream import RawHeaders
from toolkit.core.caps import Cap
from toolkit.core.decisions import Admitted
from toolkit.core.money import usd_down, usd_text
from toolkit.core.scopes import Scope
from toolkit.core.windows import Window, period_at

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Beside the hop-by-hop ones, those that the gateway sets itself, towards the provider and towards the client.
_NOT_SENT = _HOP_BY_HOP | frozenset(
    {
        b"host",
        b"content-length",
        b"accept-encoding",
        b"expect",
        b"authorization",
        b"x-api-key",
        b"x-goog-api-key",
        b"api-key",
    }
)
_NOT_ANSWERED = _HOP_BY_HOP | frozenset({b"content-length", b"content-encoding", b"date", b"server"})


class Names:
    """Header names under one prefix, in lower case. What rides on every answer is made as bytes, once where it can."""

    def __init__(self, prefix: str) -> None:
        self.prefix = f"{prefix}-".lower()
        self._raw_prefix = self.prefix.encode()
        self.tags = f"{self.prefix}tags".encode()
        self.request_id = f"{self.prefix}request-id"
        self.replayed = f"{self.prefix}idempotent-replayed"
        self._raw_request_id = self.request_id.encode()
        self._raw_cost_usd = f"{self.prefix}cost-usd".encode()
        self._budget = f"{self.prefix}budget-"
        self._raw_remaining = f"{self._budget}remaining".encode()
        self._of_cap = lru_cache(maxsize=1024)(self._make_of_cap)

    def to_provider(self, headers: RawHeaders) -> list[tuple[str, str]]:
        """A client's headers without ours, hop-by-hop ones and those that the hop sets itself."""
        dropped, ours = _dropped(_NOT_SENT, headers), self._raw_prefix
        sent = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in headers
            if name not in dropped and not name.startswith(ours)
        ]
        sent.append(("accept-encoding", "identity"))
        return sent

    def to_client(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        """A provider's headers without hop-by-hop ones, those that are set anew, and any that pose as ours."""
        dropped, ours = _dropped(_NOT_ANSWERED, headers), self._raw_prefix
        return [(name, value) for name, value in headers if name not in dropped and not name.startswith(ours)]

    def on_answer(self, operation_id: str, cost_nano_usd: int | None = None) -> list[tuple[bytes, bytes]]:
        """The request's id, and the priced cost, absent when unpriced."""
        headers = [(self._raw_request_id, operation_id.encode())]
        if cost_nano_usd is not None:
            headers.append((self._raw_cost_usd, usd_text(cost_nano_usd).encode()))
        return headers

    def on_served(self, decision: Admitted, at: datetime) -> list[tuple[bytes, bytes]]:
        """The pair of the tightest armed cap; the customer's own and its three figures where one is armed."""
        customer = decision.customer
        if customer is not None:
            remaining = usd_down(max(0, customer.headroom)).encode()
            of_cap = self._of_cap(customer.cap.scope, customer.cap.window, customer.limit, at.date())
            return [*of_cap, (self._raw_remaining, remaining)]
        named = decision.named
        return [] if named is None else self._of_cap(named.cap.scope, named.cap.window, None, at.date())

    def on_refused(self, cap: Cap, at: datetime) -> dict[str, str]:
        """The pair, and for a customer cap the instant at which it opens again."""
        pair = self.pair(cap.scope, cap.window)
        return {**pair, **self._resets_at(cap.window, at)} if cap.scope == "customer" else pair

    def pair(self, scope: Scope, window: Window) -> dict[str, str]:
        """Scope and window of one cap."""
        return {f"{self._budget}scope": scope, f"{self._budget}window": window}

    def _make_of_cap(
        self, scope: Scope, window: Window, limit: int | None, day: date
    ) -> list[tuple[bytes, bytes]]:
        """What a cap's answers of one day have in common; the figures where its limit is given."""
        headers = self.pair(scope, window)
        if limit is not None:
            headers[f"{self._budget}cap"] = usd_down(limit)
            headers.update(self._resets_at(window, datetime.combine(day, time(), UTC)))
        return raw(headers.items())

    def _resets_at(self, window: Window, at: datetime) -> dict[str, str]:
        """When a window's period ends; nothing for one that never does."""
        end = period_at(window, at).end
        return {} if end is None else {f"{self._budget}resets-at": reset_text(end)}


@lru_cache(maxsize=1024)
def reset_text(end: datetime) -> str:
    """A period's end as RFC 3339; periods end on whole seconds."""
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")


def raw(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Text headers as ASGI wants them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _dropped(always: frozenset[bytes], headers: RawHeaders) -> frozenset[bytes]:
    """`always`, and the headers that a Connection header declares to be hop-by-hop."""
    for name, value in headers:
        if name == b"connection" and value not in always:
            always = always.union([part.strip().lower() for part in value.split(b",")])
    return always
