"""Files as bytes: unpacked when they are gzip, read as often as they are opened, hashed as they lie on disk."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from toolkit.core.errors import LoadError

MOST_BYTES = 4 * 1024**3
"""The largest file, unpacked, that is read into memory whole."""
LONGEST_LINE = 64 * 1024**2

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One file, or the bytes of one. `sha256` is of the bytes as they lie on disk.

    `promised` is the hash that a `.sha256` file beside it names, null where there is none.
    """

    name: str
    sha256: str
    source: Path | bytes
    promised: str | None = None

    @property
    def is_as_promised(self) -> bool:
        """Whether the file is the one that its `.sha256` was written for, where there is one."""
        return self.promised in (None, self.sha256)

    @property
    def broken_promise(self) -> str:
        """What is wrong where it is not."""
        return f"hashes to {self.sha256}; the .sha256 beside it says {self.promised}"

    @property
    def is_packed(self) -> bool:
        """Whether it is gzip."""
        with self._raw() as raw:
            return raw.read(len(_GZIP)) == _GZIP

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The unpacked bytes from their start. Raises LoadError, also inside the block, when they cannot be read."""
        is_packed = self.is_packed
        try:
            with self._raw() as raw:
                if is_packed:
                    with gzip.GzipFile(fileobj=raw) as unpacked:
                        yield io.BufferedReader(unpacked)
                else:
                    yield raw
        except (EOFError, OSError, zlib.error) as error:
            what = "is gzip that does not unpack, cut off?" if is_packed else "cannot be read:"
            raise LoadError(f"{what} {error}", file=self.name) from error

    def content(self) -> bytes:
        """All of it. Raises LoadError as `open` does, and when it is larger than MOST_BYTES."""
        with self.open() as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise LoadError(f"is larger than {MOST_BYTES:,} bytes", file=self.name)
        return content

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with its number from 1 and its line end; steady in memory."""
        with self.open() as stream:
            number = 0
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise LoadError(
                        f"is longer than {LONGEST_LINE:,} bytes; no row is", file=self.name, line=number
                    )
                yield number, line

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Non-empty lines with their number, without line ends and byte order mark."""
        for number, line in self.raw_lines():
            text = bare(number, line)
            if text:
                yield number, text

    def _raw(self) -> IO[bytes]:
        if isinstance(self.source, bytes):
            return io.BytesIO(self.source)
        try:
            return self.source.open("rb")
        except OSError as error:
            raise LoadError(f"cannot be read: {error}", file=self.name) from error


def bare(number: int, line: bytes) -> bytes:
    """A line without its end, and the first without the byte order mark."""
    text = line.removesuffix(b"\n").removesuffix(b"\r")
    return text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text


def read_blob(path: Path) -> Blob:
    """A file on disk. Raises LoadError when it cannot be read whole."""
    sidecar = path.with_name(path.name + ".sha256")
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        promised = sidecar.read_text("ascii").split()[0] if sidecar.is_file() else None
    except (OSError, UnicodeDecodeError, IndexError) as error:
        raise LoadError(f"cannot be read: {error}", file=str(path)) from error
    return Blob(name=str(path), sha256=digest, source=path, promised=promised)


def blob_of(name: str, packed: bytes) -> Blob:
    """Bytes that are already here."""
    return Blob(name=name, sha256=hashlib.sha256(packed).hexdigest(), source=packed)
