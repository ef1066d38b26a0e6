"""Our header names under the configured prefix, and the figures that ride on answers (contract §9, R093-R105)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache

from gateway.upstream import RawHeaders
from toolkit.core.decisions import Admitted, CapLook
from toolkit.core.money import usd_down, usd_text
from toolkit.core.windows import period_at

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
    }
)
_NOT_ANSWERED = _HOP_BY_HOP | frozenset({b"content-length", b"content-encoding", b"date", b"server"})


class Names:
    """Header names under one prefix, in lower case."""

    def __init__(self, prefix: str) -> None:
        self.prefix = f"{prefix}-".lower()
        self._raw_prefix = self.prefix.encode()
        self.tags = f"{self.prefix}tags".encode()
        self.request_id = f"{self.prefix}request-id"
        self.cost_usd = f"{self.prefix}cost-usd"
        self._budget = f"{self.prefix}budget-"

    def to_provider(self, headers: RawHeaders) -> Iterator[tuple[str, str]]:
        """A client's headers without ours, hop-by-hop ones and those that the hop sets itself."""
        dropped = _dropped(_NOT_SENT, headers)
        for name, value in headers:
            if name not in dropped and not name.startswith(self._raw_prefix):
                yield name.decode("latin-1"), value.decode("latin-1")
        yield "accept-encoding", "identity"

    def to_client(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        """A provider's headers without hop-by-hop ones, those that are set anew, and any that pose as ours."""
        dropped = _dropped(_NOT_ANSWERED, headers)
        return [
            (name, value)
            for name, value in headers
            if name not in dropped and not name.startswith(self._raw_prefix)
        ]

    def on_served(self, decision: Admitted, at: datetime) -> dict[str, str]:
        """The pair of the tightest armed cap; the customer's own and its three figures where one is armed."""
        look = decision.customer or decision.named
        if look is None:
            return {}
        headers = self.pair(look)
        if decision.customer is not None:
            headers[f"{self._budget}remaining"] = usd_down(max(0, look.headroom))
            headers[f"{self._budget}cap"] = usd_down(look.limit)
            headers.update(self.resets_at(look, at))
        return headers

    def on_refused(self, look: CapLook, at: datetime) -> dict[str, str]:
        """The pair, and for a customer cap the instant at which it opens again."""
        return {**self.pair(look), **(self.resets_at(look, at) if look.cap.scope == "customer" else {})}

    def pair(self, look: CapLook) -> dict[str, str]:
        """Scope and window of one cap."""
        return {f"{self._budget}scope": look.cap.scope, f"{self._budget}window": look.cap.window}

    def resets_at(self, look: CapLook, at: datetime) -> dict[str, str]:
        """When the cap's period ends; nothing for one that never does."""
        end = period_at(look.cap.window, at).end
        return {} if end is None else {f"{self._budget}resets-at": reset_text(end)}

    def cost(self, cost_nano_usd: int | None) -> dict[str, str]:
        """The priced cost, absent when unpriced."""
        return {} if cost_nano_usd is None else {self.cost_usd: usd_text(cost_nano_usd)}


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
        if name == b"connection":
            always = always.union([part.strip().lower() for part in value.split(b",")])
    return always
