"""`load`: what is found, what is refused, and that overlapping exports unite in any order."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from tests.support.exports import Export, abandoned, chained, correction, refused, served
from toolkit.loading import _unite
from toolkit.sources import read
from toolkit.sources.files import blob_of

DATA = Path(__file__).resolve().parents[1] / "data" / "exports"
TRAPS = DATA / "traps"
LOST = abandoned(7)
ROWS = chained([*(served(number) for number in range(6)), refused(6), LOST, correction(8, LOST)])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("empty.csv", "is empty; there is nothing to load"),
        ("header_only.csv", "line 1: is of no known kind"),
        ("bom_crlf.csv", "line 1: is of no known kind"),
        ("truncated_last_line.csv", "line 1: is of no known kind"),
        ("nul_and_invalid_utf8.csv", "line 1: is of no known kind"),
        ("jsonl_truncated.jsonl", "line 1: is of no known kind"),
        ("cost.csv.gz", "line 1: is of no known kind"),
    ],
)
def test_a_trap_is_refused_by_its_name(name: str, why: str) -> None:
    with pytest.raises(tk.LoadError, match=why) as caught:
        tk.load(TRAPS / name)
    assert caught.value.file == str(TRAPS / name)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b" \r\n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"PAR1rest", "no Parquet file"),
        (b"\x1f\x8brest", "does not unpack"),
        (b"[{}]", "one JSON object a line is wanted"),
        (b'{"request_id": 1,\n"spend": 0}', "one JSON object a line is wanted"),
        (b'{"a": 1}', "is of no known kind"),
        (b"\x00\x01\x02", "is of no known kind"),
        (b"# only comments\n", "is of no known kind"),
    ],
)
def test_content_that_is_no_export_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "receipts.jsonl"
    path.write_bytes(content)
    with pytest.raises(tk.LoadError, match=why):
        tk.load(path)


def test_the_name_of_a_file_means_nothing(tmp_path: Path) -> None:
    shutil.copy(DATA / "litellm_spend_logs.jsonl", tmp_path / "receipts.parquet")
    assert tk.load(tmp_path / "receipts.parquet").manifest.files[0].kind == "litellm_spend_logs"


def test_nothing_given_is_an_error() -> None:
    with pytest.raises(tk.LoadError, match="nothing was given"):
        tk.load()


@pytest.mark.parametrize("missing", ["absent.jsonl", "absent-*.jsonl", "s3://bucket/november.jsonl"])
def test_what_is_not_there_is_named(tmp_path: Path, missing: str) -> None:
    path = missing if "://" in missing else str(tmp_path / missing)
    with pytest.raises(tk.LoadError) as caught:
        tk.load(path)
    assert caught.value.file == path


def test_folders_and_globs_take_every_visible_file_but_hashes(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(Export(ROWS[:4]).jsonl())
    (tmp_path / "two").write_bytes(Export(ROWS[4:]).csv())
    (tmp_path / ".hidden").write_text("no export")
    (tmp_path / "two.sha256").write_text(tk.load(tmp_path / "two").manifest.files[0].sha256)
    for path in (tmp_path, tmp_path / "[ot]*[eo]"):
        manifest = tk.load(path).manifest
        assert [Path(file.name).name for file in manifest.files] == ["one", "two"]
        assert manifest.loaded == len(ROWS)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(tk.LoadError, match="holds no file"):
        tk.load(tmp_path)


def test_a_file_whose_name_looks_like_a_glob_is_found(tmp_path: Path) -> None:
    (tmp_path / "november[1].jsonl").write_bytes(Export(ROWS).jsonl())
    assert tk.load(tmp_path / "november[1].jsonl").manifest.loaded == len(ROWS)


def test_foreign_and_own_exports_load_together(tmp_path: Path) -> None:
    (tmp_path / "ours").write_bytes(Export(ROWS).jsonl())
    manifest = tk.load(tmp_path, DATA / "litellm_spend_logs.jsonl").manifest
    assert [file.kind for file in manifest.files] == ["receipts", "litellm_spend_logs"]
    assert manifest.loaded == len(ROWS) + 6
    assert manifest.complete is None


@given(parts=st.lists(st.sets(st.integers(0, len(ROWS) - 1)), min_size=1, max_size=4), data=st.data())
def test_exports_unite_to_the_same_receipts_in_any_order(parts: list[set[int]], data: st.DataObject) -> None:
    exports = [Export([ROWS[number] for number in sorted(part)]) for part in parts]
    wanted = sorted({ROWS[number].receipt_id for part in parts for number in part})
    forms = [data.draw(st.sampled_from([Export.jsonl, Export.csv, Export.parquet])) for _ in exports]
    read_parts = [
        read(blob_of(str(number), form(export)))
        for number, (export, form) in enumerate(zip(exports, forms, strict=True))
    ]
    frames = []
    for order in itertools.islice(itertools.permutations(read_parts), 6):
        union = _unite(order)
        assert union.conflicts.height == 0
        frames.append(union.kept.drop("file", "line").sort("receipt_id"))
    assert frames[0]["receipt_id"].to_list() == wanted
    assert all(frame.equals(frames[0]) for frame in frames)


def test_the_manifest_accounts_for_every_row(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(Export(ROWS[:5]).jsonl())
    (tmp_path / "b").write_bytes(Export(ROWS[3:]).parquet())
    (tmp_path / "c").write_bytes(json.dumps(ROWS[0].row()).encode() + b"\ncut")
    receipts = tk.load(tmp_path, strict=False)
    counts = [(file.read, file.loaded, file.rejected, file.duplicates) for file in receipts.manifest.files]
    assert counts == [(5, 5, 0, 0), (6, 4, 0, 2), (2, 0, 1, 1)]
    manifest = receipts.manifest
    assert manifest.read == manifest.loaded + manifest.rejected + manifest.duplicates == 13
    assert receipts.frame.collect().height == manifest.loaded
    assert receipts.rejected.height == manifest.rejected


def test_two_contents_of_one_receipt_are_refused_or_both_set_aside(tmp_path: Path) -> None:
    """Neither can be believed, so neither is counted, whatever the order of the files."""
    other = chained([served(0, customer="someone-else")])
    (tmp_path / "a").write_bytes(Export(ROWS).jsonl())
    (tmp_path / "b").write_bytes(Export(other).jsonl())
    with pytest.raises(tk.LoadError, match=r"receipt r00000 differs from the one in .*a, line 2"):
        tk.load(tmp_path)
    frames = [
        tk.load(*[tmp_path / name for name in order], strict=False).frame.collect() for order in ("ab", "ba")
    ]
    assert frames[0].equals(frames[1])
    assert "r00000" not in frames[0]["receipt_id"]
    receipts = tk.load(tmp_path, strict=False)
    assert receipts.rejected["reason"].str.contains("elsewhere with other content").sum() == 2
    assert receipts.manifest.read == receipts.manifest.loaded + receipts.manifest.rejected


class _Gateway(BaseHTTPRequestHandler):
    """A gateway that knows one token and one path, and one that sends elsewhere."""

    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["authorization"]))
        body = Export(ROWS).jsonl()
        if "redirect" in self.path:
            self.send_response(302)
            self.send_header("location", "/elsewhere")
            body = b""
        elif self.headers["authorization"] != "Bearer secret":
            self.send_response(401)
        else:
            self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a gateway on this machine."""
    monkeypatch.setattr(_Gateway, "seen", [], raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Gateway) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_gateways_export_is_fetched_with_the_token(gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPLINE_ADMIN_TOKEN", "secret")
    url = f"{gateway}/v1/ledger/export?month=2026-11&format=jsonl"
    receipts = tk.load(url)
    assert receipts.manifest.loaded == len(ROWS)
    assert receipts.manifest.files[0].name == url


@pytest.mark.parametrize(
    ("token", "path", "why"),
    [
        ("secret", "/elsewhere", "is no ledger export"),
        ("", "/v1/ledger/export", "needs the admin token"),
        ("wrong", "/v1/ledger/export", "answered HTTP 401"),
        ("secret", "/v1/ledger/export?redirect=1", "answered HTTP 302"),
    ],
)
def test_a_url_that_gives_no_export_is_refused(
    gateway: str, monkeypatch: pytest.MonkeyPatch, token: str, path: str, why: str
) -> None:
    monkeypatch.setenv("CAPLINE_ADMIN_TOKEN", token)
    with pytest.raises(tk.LoadError, match=why):
        tk.load(gateway + path)
    assert all(path.startswith("/v1/ledger/export") for path, _ in _Gateway.seen), "no token to another path"


def test_a_gateway_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPLINE_ADMIN_TOKEN", "secret")
    with pytest.raises(tk.LoadError, match="did not answer"):
        tk.load("http://127.0.0.1:1/v1/ledger/export")


def test_loading_does_not_depend_on_how_much_polars_infers(tmp_path: Path) -> None:
    """A value that first appears far down is kept: nothing is inferred from the first rows."""
    rows = chained([*(served(number, run=None) for number in range(300)), served(300, run="late")])
    (tmp_path / "a").write_bytes(Export(rows).jsonl())
    assert tk.load(tmp_path).frame.filter(pl.col("run") == "late").collect().height == 1
