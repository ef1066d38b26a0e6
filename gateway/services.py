"""What every call of the data plane needs, the same for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gateway.headers import Names
from gateway.late import LateEnds
from gateway.ledger import Ledger
from gateway.metrics import Metrics
from gateway.settings import Settings
from gateway.upstream import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of a started gateway that calls share."""

    settings: Settings
    names: Names
    ledger: Ledger
    late: LateEnds
    upstream: Upstream
    metrics: Metrics
    clock: Callable[[], datetime]
