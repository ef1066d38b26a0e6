"""`capline`: the command line. Each family of commands is a module; here they are put together and their errors worded.

It starts the gateway and the console by name and talks to the gateway over HTTP; it imports neither.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from importlib import metadata

import httpx

from console.commands.terminal import CANNOT, CannotDo, Parser
from toolkit.core.errors import CaplineError

_FAMILIES = ("up", "scene", "keys", "caps", "export", "ledger", "analysis", "prices")
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Whatever a user can set right is one line on standard error."""
    try:
        chosen = parser().parse_args(arguments)
        code = int(chosen.run(chosen))
        sys.stdout.flush()  # Here, so that a reader who left is noticed within this function.
        return code
    except (CannotDo, CaplineError) as error:
        return _cannot(str(error))
    except httpx.HTTPError as error:
        return _cannot(f"the connection broke off ({type(error).__name__}): {error}")
    except BrokenPipeError:
        # Whoever read this has seen enough; Python must not complain about it at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CANNOT
    except OSError as error:
        return _cannot(f"{error.filename or 'the system'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _INTERRUPTED


def parser() -> Parser:
    """Every command."""
    whole = Parser(prog="capline", description="Dollar caps per customer, and receipts that prove them.")
    whole.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in _FAMILIES:
        importlib.import_module(f"console.commands.{name}").add(commands)
    return whole


def _cannot(words: str) -> int:
    sys.stderr.write(f"capline: {words}\n")
    return CANNOT


class _Version(argparse.Action):
    """Looked up only when asked for: it takes longer than the rest of the parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"capline {metadata.version('capline')}\n")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
