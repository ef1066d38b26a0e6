"""Every notebook runs from top to bottom on the bundled month, is small, and is a pair of files that say the same."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat
import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
TEXTS = sorted(NOTEBOOKS.glob("*.py"))
LONGEST_RUN_S = 30.0
MOST_BYTES = 500_000
PLOTLY = "application/vnd.plotly.v1+json"

notebook = pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)


@pytest.fixture
def own_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting, kernel or history of whoever runs the tests is read or written."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


def test_there_is_a_notebook_and_each_has_both_files() -> None:
    assert [path.stem for path in TEXTS] == [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))]
    assert "explore_spend" in [path.stem for path in TEXTS]


@notebook
@pytest.mark.usefixtures("own_jupyter")
def test_it_runs_from_top_to_bottom_and_stays_small(text: Path) -> None:
    book = nbformat.read(text.with_suffix(".ipynb"), as_version=4)
    started = time.monotonic()
    # The last cell of each notebook asserts that its sums tie to the ledger.
    nbclient.NotebookClient(
        book, kernel_name="python3", timeout=120, resources={"metadata": {"path": NOTEBOOKS}}
    ).execute()
    assert time.monotonic() - started < LONGEST_RUN_S
    assert len(nbformat.writes(book)) < MOST_BYTES
    assert "agree with the ledger" in book.cells[-1].outputs[-1]["text"]
    shown = [data for data in _outputs(book) if PLOTLY in data]
    assert shown, "no figure was drawn"
    for data in shown:
        assert list(data) == [PLOTLY], "a figure carries its own copy of a library"
        config = data[PLOTLY]["config"]
        assert (config["showSendToCloud"], config["displayModeBar"]) == (False, False), "a share button"
        assert "plotlyServerURL" not in config


@notebook
def test_both_files_say_the_same_and_hold_no_output(text: Path) -> None:
    book = json.loads(text.with_suffix(".ipynb").read_text("utf-8"))
    written = jupytext.reads(text.read_text("utf-8"), fmt="py:percent")
    assert [_meaning(cell) for cell in book["cells"]] == [_meaning(cell) for cell in written.cells], (
        f"run `jupytext --sync notebooks/{text.name}`"
    )
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@notebook
def test_it_has_one_cell_of_parameters(text: Path) -> None:
    written = jupytext.reads(text.read_text("utf-8"), fmt="py:percent")
    tagged = [cell for cell in written.cells if "parameters" in cell["metadata"].get("tags", ())]
    assert len(tagged) == 1


def _meaning(cell: Any) -> tuple[str, str, list[str]]:
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    return cell["cell_type"], source, cell["metadata"].get("tags", [])


def _outputs(book: Any) -> list[dict[str, Any]]:
    """The data of everything that the cells show."""
    return [
        output["data"]
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]
