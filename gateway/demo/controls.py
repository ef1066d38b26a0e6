"""What a request, or the whole provider, can be told to do differently: delays, lengths and faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

LONGEST_WAIT_MS: Final = 600_000
MOST_TOKENS: Final = 1_000_000
HEADER_PREFIX: Final = "x-demo-"

_Wait = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_WAIT_MS)]
_FAULT = "^(none|status:[45][0-9]{2}|spend-limit|drop-before|drop-mid|hang|slow-headers|no-usage|null-usage|bad-usage)$"


class Controls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request's orders. The header of a field is `x-demo-` and its name with hyphens."""

    delay_ms: _Wait = 0
    """Before the answer: a JSON answer's headers, a stream's first event (its headers leave at once)."""
    chunk_delay_ms: _Wait = 0
    """Before every piece of a stream that carries text."""
    chunks: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)] = 10
    """How many pieces of text a stream has, never more than it has tokens."""
    output_tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)] = 40
    """How long each choice would like to be; the request's own limit still bounds it."""
    fault: Annotated[str, msgspec.Meta(pattern=_FAULT)] = "none"

    def overridden(self, headers: Mapping[str, str]) -> Controls:
        """These orders with those in `headers` put over them. Raises msgspec.ValidationError."""
        found = {name: headers[header] for name, header in _HEADERS.items() if header in headers}
        if not found:
            return self
        return msgspec.convert({**msgspec.structs.asdict(self), **found}, Controls, strict=False)


_HEADERS: Final = {name: HEADER_PREFIX + name.replace("_", "-") for name in Controls.__struct_fields__}
