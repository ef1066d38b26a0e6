"""Counts of one process, as Prometheus text. No label ever carries a customer's value or a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

HELP: Mapping[str, str] = {
    "requests": "Calls that were admitted, by dialect and how they ended.",
    "refusals": "Requests that were refused, by stable code.",
    "left_early": "Clients that left before their request could be read.",
    "control_changes": "Changes made over the operator API, by action.",
}

_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters that only grow, driven by the event loop: `count("refusals", code="budget_busy")`."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, _Labels], int] = {}

    def count(self, name: str, amount: int = 1, **labels: str | int) -> None:
        """Add to one counter."""
        key = (name, tuple(sorted((label, str(value)) for label, value in labels.items())))
        self._counts[key] = self._counts.get(key, 0) + amount

    def value(self, name: str, **labels: str | int) -> int:
        """What one counter says now."""
        return self._counts.get(
            (name, tuple(sorted((label, str(value)) for label, value in labels.items()))), 0
        )

    def text(self, gauges: Mapping[str, tuple[str, int]]) -> str:
        """Everything as Prometheus text; `gauges` are name to help and value, as just read."""
        return "".join(f"{line}\n" for line in (*self._counter_lines(), *_gauge_lines(gauges)))

    def _counter_lines(self) -> Iterator[str]:
        by_name: dict[str, list[tuple[_Labels, int]]] = {}
        for (name, labels), count in sorted(self._counts.items()):
            by_name.setdefault(name, []).append((labels, count))
        for name, series in by_name.items():
            full = f"capline_{name}_total"
            yield f"# HELP {full} {HELP.get(name, name)}"
            yield f"# TYPE {full} counter"
            for labels, count in series:
                yield f"{full}{_label_text(labels)} {count}"


def _gauge_lines(gauges: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    for name, (words, value) in gauges.items():
        yield f"# HELP capline_{name} {words}"
        yield f"# TYPE capline_{name} gauge"
        yield f"capline_{name} {value}"


def _label_text(labels: _Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{label}="{_escaped(value)}"' for label, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
