"""What every command shares about the terminal: parsers, one-line errors, tables, JSON, and progress.

Results go to standard output, everything else to standard error. In a pipe there is no colour, no progress and no
line is folded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

from rich import box
from rich.console import Console
from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from console.formatting import inert

DONE, NO, CANNOT = 0, 1, 2
"""Exit codes: it is done, the answer is no, it cannot be done."""

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
Run: TypeAlias = Callable[[argparse.Namespace], int]
_PIPE_WIDTH = 100_000


class CannotDo(Exception):
    """A command that cannot do what it was asked. The text is one line: what is wrong, where, what to do."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """End the program."""
        self.exit(CANNOT, f"capline: {message}; see `{self.prog} --help`\n")


def command(commands: Commands, name: str, run: Run, summary: str) -> Parser:
    """Add a command that `run` runs; its exit code is what `run` returns."""
    parser = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    parser.set_defaults(run=run)
    return parser


def family(commands: Commands, name: str, summary: str) -> Commands:
    """Add a command that has commands of its own."""
    parser = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    return parser.add_subparsers(dest=f"{name}_command", required=True, metavar="COMMAND")


def add_json(parser: Parser) -> None:
    """The option for scripts."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def printer() -> Console:
    """Standard output."""
    return _console(sys.stdout)


def say(words: str) -> None:
    """A remark for whoever watches, on standard error."""
    _console(sys.stderr).print(Text(words, style="dim"))


def print_json(value: object) -> None:
    """A result for a script."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, totals: bool = False) -> None:
    """Rows under headings; a heading that begins with `>` is of figures. With `totals` the last row is set apart."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        table.add_column(heading.removeprefix(">"), justify="right" if heading.startswith(">") else "left")
    every = list(rows)
    for number, row in enumerate(every, start=1):
        last = totals and number == len(every)
        table.add_row(*(_cell(value) for value in row), style="bold" if last else None)
        if totals and number == len(every) - 1:
            table.add_section()
    _print_block(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Named figures, one a line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in fields:
        table.add_row(name, _cell(value))
    _print_block(table)


@contextlib.contextmanager
def working(words: str) -> Iterator[None]:
    """A sign of life on a terminal while something takes its time."""
    console = _console(sys.stderr)
    if not console.is_terminal:
        yield
        return
    with console.status(words):
        yield


@contextlib.contextmanager
def downloading(words: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal; call what it gives with the bytes of each piece."""
    console = _console(sys.stderr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(words, total=None)
        yield lambda size: progress.update(task, advance=size)


def _print_block(table: Table) -> None:
    """A table without the blanks that fill its last column."""
    console = printer()
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _console(file: Any) -> Console:
    return Console(file=file, highlight=False, width=None if file.isatty() else _PIPE_WIDTH)


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(f"{value:,}" if isinstance(value, int) else inert(None if value is None else str(value)))
