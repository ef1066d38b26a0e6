"""`load`: files, folders, globs and a gateway's export URL to one frame of receipts.

Exports overlap, so rows are united by `receipt_id`, to the same result in any order of the files. Two rows of
one id that differ are no repeat: a strict load refuses them, else both are set aside.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl

from toolkit.core.errors import LoadError
from toolkit.frames import RECEIPT_SCHEMA, Manifest, Receipts, SourceFile, in_order, rejected_frame
from toolkit.sources import read
from toolkit.sources.common import Part, Rejected
from toolkit.sources.files import Blob, blob_of, read_blob

EXPORT_ROUTE = "/v1/ledger/export"
TOKEN_VARIABLE = "CAPLINE_ADMIN_TOKEN"


def load(*paths_or_urls: str | os.PathLike[str], strict: bool = True) -> Receipts:
    """Receipts from files, folders, globs, or a gateway's `http(s)://…/v1/ledger/export?…`.

    A file is recognised by its content and may be gzip. A folder means every visible file in it but `.sha256`
    ones. For a URL the bearer token is `CAPLINE_ADMIN_TOKEN`. Bad rows of a foreign export are set aside in
    `.rejected`, never taken as zero; an export of our own is whole or, unless `strict=False`, refused.

    Raises:
        LoadError: names file, line and column of what cannot be loaded.
    """
    blobs = [blob for given in paths_or_urls for blob in _blobs(os.fspath(given))]
    if not blobs:
        raise LoadError("nothing was given to load")
    parts = [read(blob) for blob in blobs]
    if strict:
        for fault in (fault for part in parts for fault in part.faults):
            raise fault
    union = _unite(parts)
    if strict and union.conflicts.height:
        raise _conflict(union.conflicts, blobs)
    return _receipts(blobs, parts, union)


def expand(given: str) -> list[Path]:
    """The files that a path, a folder or a glob means, sorted; LoadError when there are none."""
    path = Path(given)
    if path.is_dir():
        found = [file for file in path.iterdir() if file.is_file() and not _is_beside(file.name)]
    elif path.exists():
        return [path]
    elif glob.has_magic(given):
        found = [Path(name) for name in glob.glob(given, recursive=True) if Path(name).is_file()]
    else:
        raise LoadError("there is no such file or folder", file=given)
    if not found:
        raise LoadError("holds no file to load", file=given)
    return sorted(found)


def _is_beside(name: str) -> bool:
    return name.startswith(".") or name.endswith(".sha256")


def _blobs(given: str) -> Iterator[Blob]:
    if given.startswith(("http://", "https://")):
        yield _fetched(given)
    elif "://" in given:
        raise LoadError("only files and http(s) URLs can be loaded", file=given)
    else:
        yield from map(read_blob, expand(given))


def _fetched(url: str) -> Blob:
    """A gateway's export. The token goes to that route alone and follows no redirect."""
    import httpx

    if urlsplit(url).path != EXPORT_ROUTE:
        raise LoadError(f"is no ledger export; its path is {EXPORT_ROUTE}", file=url)
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise LoadError(f"needs the admin token or an operator key in {TOKEN_VARIABLE}", file=url)
    try:
        timeout = httpx.Timeout(30, read=300)
        answer = httpx.get(url, headers={"authorization": f"Bearer {token}"}, timeout=timeout)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise LoadError(f"the gateway did not answer: {error}", file=url) from error
    if answer.status_code != httpx.codes.OK:
        raise LoadError(f"the gateway answered HTTP {answer.status_code}", file=url)
    return blob_of(url, answer.content)


@dataclass(frozen=True, slots=True)
class _Union:
    """Rows of `PART_SCHEMA` with their `file` number: those to load, and those whose ids contradict."""

    kept: pl.DataFrame
    conflicts: pl.DataFrame


def _unite(parts: Sequence[Part]) -> _Union:
    every = pl.concat(
        [
            part.frame.with_columns(pl.lit(number, dtype=pl.Int64).alias("file"))
            for number, part in enumerate(parts)
        ]
    )
    repeated = every.filter(pl.col("receipt_id").is_duplicated())
    once = every.filter(~pl.col("receipt_id").is_duplicated())
    latest = pl.col("snapshot").max().over("receipt_id")
    newest = repeated.filter(pl.col("snapshot").eq_missing(latest)).sort("file", "line")
    distinct = newest.unique(subset=RECEIPT_SCHEMA.names(), keep="first", maintain_order=True)
    contradict = pl.col("receipt_id").is_duplicated()
    return _Union(pl.concat([once, distinct.filter(~contradict)]), distinct.filter(contradict))


def _conflict(conflicts: pl.DataFrame, blobs: Sequence[Blob]) -> LoadError:
    one, other = conflicts.sort("receipt_id", "file", "line").head(2).iter_rows(named=True)
    place = f"{blobs[one['file']].name}, line {one['line']}"
    reason = f"receipt {one['receipt_id']} differs from the one in {place}"
    return LoadError(reason, file=blobs[other["file"]].name, line=other["line"])


def _receipts(blobs: Sequence[Blob], parts: Sequence[Part], union: _Union) -> Receipts:
    files: list[SourceFile] = []
    rejected: list[tuple[str, int | None, str | None, str]] = []
    for number, (blob, part) in enumerate(zip(blobs, parts, strict=True)):
        mine = pl.col("file") == number
        contradicting = union.conflicts.filter(mine).sort("line")
        aside = [
            *part.rejected,
            *(
                Rejected(
                    line, "receipt_id", f"receipt {receipt_id} stands here and elsewhere with other content"
                )
                for receipt_id, line in contradicting.select("receipt_id", "line").iter_rows()
            ),
        ]
        rejected.extend((blob.name, *row) for row in aside)
        read_rows = part.frame.height + len(part.rejected)
        loaded = union.kept.filter(mine).height
        files.append(
            SourceFile(
                name=blob.name,
                kind=part.kind,
                sha256=blob.sha256,
                read=read_rows,
                loaded=loaded,
                rejected=len(aside),
                duplicates=read_rows - loaded - len(aside),
                header=part.header,
                footer=part.footer,
                complete=False if part.faults else part.complete,
            )
        )
    frame = in_order(union.kept.lazy().select(RECEIPT_SCHEMA.names())).collect()
    return Receipts(frame.lazy(), rejected_frame(rejected), Manifest(tuple(files)))
