"""Measure, print, and write the table into docs/performance.md.

python -m bench                   everything, about eight minutes
python -m bench requests kernel   some of it; the page stays as it is
python -m bench --quick           everything, one short run each: a look, not a figure to quote
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from bench import machine
from bench.figures import Figure, table, write_between_markers
from bench.suite import BENCHMARKS, measure

PAGE = machine.ROOT / "docs" / "performance.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks asked for; 0 when none of them failed to run, whatever they found."""
    chosen = _parser().parse_args(arguments)
    cores, missing = machine.cores(), machine.missing()
    for name in missing:
        print(f"{name} is not installed: what needs it is left out")
    if not cores.apart:
        print("there is one core: the load shares it with what is measured, so read no rates")
    seconds, rounds = (1, 1) if chosen.quick else (chosen.seconds, chosen.rounds)
    parts: list[str] = []
    failed = False
    for name in chosen.names or BENCHMARKS:
        entry = BENCHMARKS[name]
        absent = [program for program in entry.needs if any(text.startswith(program) for text in missing)]
        if absent:
            parts.append(f"### {entry.title}\n\nNot measured: {', '.join(absent)} is not installed.")
            continue
        print(f"\n{entry.title} …", flush=True)
        try:
            figures = _alone(name, seconds, rounds, cores)
        except (OSError, RuntimeError) as error:
            print(f"{name} could not be measured: {error}", file=sys.stderr)
            failed = True
            continue
        print(table(figures))
        parts.append(f"### {entry.title}\n\n{table(figures)}")
    if not (chosen.names or chosen.quick or failed):
        write_between_markers(PAGE, "\n\n".join(["", *parts, ""]))
        print(f"\nwritten to {PAGE.relative_to(machine.ROOT)}")
    return int(failed)


def _alone(name: str, seconds: int, rounds: int, cores: machine.Cores) -> Sequence[Figure]:
    """In a process of its own, so that a million receipts of one benchmark are gone before the next."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, name, seconds, rounds, cores).result()


def _known(name: str) -> str:
    if name not in BENCHMARKS:
        raise argparse.ArgumentTypeError(f"{name} is not a benchmark; they are {', '.join(BENCHMARKS)}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="How fast Capline is on this machine."
    )
    parser.add_argument(
        "names", nargs="*", type=_known, help=f"of {', '.join(BENCHMARKS)}; all when none is named"
    )
    parser.add_argument("--seconds", type=int, default=4, help="of one run of one load")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each load; the median counts")
    parser.add_argument("--quick", action="store_true", help="one short run of each")
    return parser


if __name__ == "__main__":
    sys.exit(main())
