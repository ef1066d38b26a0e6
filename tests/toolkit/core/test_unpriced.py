from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from toolkit.core.unpriced import WHAT_TO_DO, what_to_do
from toolkit.core.usage import UsageReason

KERNEL = Path(__file__).parents[3] / "toolkit" / "core"


def test_every_reason_of_the_kernel_has_its_advice() -> None:
    source = (KERNEL / "pricing.py").read_text("utf-8")
    given = {
        *re.findall(r'reason="([a-z_]+)"', source),
        *re.findall(r'(?:return|if|else) "([a-z]+_[a-z_]+)"', source),
    }
    assert {"model_unknown", "no_rate_at_that_time", "fine_tune_base_not_listed", "rate_missing"} <= given
    assert given | set(get_args(UsageReason)) <= WHAT_TO_DO.keys()


def test_every_advice_ends_in_what_settles_earlier_calls() -> None:
    for reason in (*WHAT_TO_DO, None, "some_other_system"):
        assert "/correct" in what_to_do(reason)
        assert what_to_do(reason).endswith(".")
