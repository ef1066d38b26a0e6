"""The bench stays runnable: its benchmarks import, its kernel steps work, its table lands between the markers."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import kernel, machine
from bench.figures import BEGIN, END, Figure, below, ratio, table, write_between_markers
from bench.suite import BENCHMARKS, Setting


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_one_function(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{BENCHMARKS[name].module}").benchmark)


def test_the_kernels_steps_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_CALLS", 1)
    figures = kernel.benchmark(Setting(folder=tmp_path, cores=machine.cores(), seconds=1, rounds=1))
    assert len(figures) == 8
    assert all(figure.figure.endswith("µs") for figure in figures)


def test_a_figure_says_whether_its_bar_is_met() -> None:
    assert ratio("r", 1, 14, at_least=1 / 14) == Figure(
        what="r", figure="1/14", bar="at least 1/14", met=True
    )
    assert not ratio("r", 0.69, 1, at_least=0.7).met
    assert below("m", 119.9, 120, "MB").met
    assert not below("m", 120, 120, "MB").met
    assert (
        table([below("m", 120, 120, "MB")]).splitlines()[-1] == "| m | 120 MB | under 120 MB | **missed** |"
    )


def test_only_what_stands_between_the_markers_is_exchanged(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    write_between_markers(page, "new")
    assert page.read_text() == f"above\n{BEGIN}\nnew\n{END}\nbelow\n"
    page.write_text("no markers")
    with pytest.raises(ValueError, match=r"page\.md has no"):
        write_between_markers(page, "new")


def test_what_is_missing_is_said_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.machine.shutil.which", lambda name: None)
    assert bench.main(["requests"]) == 0
    said = capsys.readouterr().out
    assert "nginx (package nginx-light) is not installed" in said
    assert "wrk (package wrk) is not installed" in said


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["request"])
    assert "request is not a benchmark; they are requests, streams" in capsys.readouterr().err
