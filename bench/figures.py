"""What the bench found, as a table for people: each figure, and the bar it must clear where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line. `bar` says in words what `met` answers; both are None for a figure that is only reported."""

    what: str
    figure: str
    bar: str | None = None
    met: bool | None = None


def ratio(what: str, part: float, whole: float, *, at_least: float) -> Figure:
    """A part of a whole that must be no smaller than `at_least`; small ones are shown as 1/n."""
    found = part / whole
    return Figure(what=what, figure=share(found), bar=f"at least {share(at_least)}", met=found >= at_least)


def share(found: float) -> str:
    """A ratio as people read it: 0.70, 1/14."""
    return f"1/{1 / found:.1f}".removesuffix(".0") if 0 < found < 0.5 else f"{found:.2f}"


def below(what: str, value: float, bar: float, unit: str) -> Figure:
    """A value that must stay under its bar."""
    return Figure(what=what, figure=f"{value:.3g} {unit}", bar=f"under {bar:g} {unit}", met=value < bar)


def table(figures: Sequence[Figure]) -> str:
    """Markdown; verdicts in words."""
    lines = ["| what | figure | bar | |", "|---|---|---|---|"]
    for figure in figures:
        verdict = "" if figure.met is None else "met" if figure.met else "**missed**"
        lines.append(f"| {figure.what} | {figure.figure} | {figure.bar or ''} | {verdict} |")
    return "\n".join(lines)


def write_between_markers(page: Path, text: str) -> None:
    """Exchange what stands between the markers of a page. Raises ValueError when they are not there."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no {BEGIN} … {END} to write between")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")
