"""Where the gateway that holds a database's lock can be reached: noted in the lock file, for the command line to read.

A killed gateway leaves its note behind, so whoever reads one sees whether the lock is held, or asks whether it answers.
"""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path


def note_address(database: Path, url: str) -> None:
    """Say in the lock file of `database`, which this process holds, where its API answers; "" when nowhere."""
    _lock_file(database).write_text(f"{url}\n" if url else "", "utf-8")


def noted_address(database: Path) -> str | None:
    """What the holder of the lock said; None when it said nothing."""
    try:
        return _lock_file(database).read_text("utf-8").strip() or None
    except OSError:
        return None


def is_held(database: Path) -> bool:
    """Whether some process holds the lock now; told without the libraries that opening the database takes."""
    with contextlib.suppress(FileNotFoundError), _lock_file(database).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _lock_file(database: Path) -> Path:
    file = database.resolve()
    return file.with_name(f"{file.name}.lock")
