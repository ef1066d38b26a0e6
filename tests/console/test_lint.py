"""What no type checker sees in the console: frames in cache keys, widgets without keys, sentences and sums in pages,
and text that other people chose in places where Streamlit reads Markdown."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CONSOLE = Path(__file__).resolve().parents[2] / "console"
PAGES_SIDE = [
    path for path in CONSOLE.rglob("*.py") if path.name != "cli.py" and "commands" not in path.parts
]
MODULES = sorted(PAGES_SIDE)
PAGES = sorted((CONSOLE / "app_pages").glob("*.py"))
PLAIN = ("str", "int", "bool", "None", "datetime", "date", "Dimensions", "Window", "CapDraft", "tuple")
"""What a cached function may be called with: values whose hash is their whole content."""
WIDGETS = {
    "button", "download_button", "text_input", "selectbox", "segmented_control", "radio", "popover", "dataframe",
    "plotly_chart", "form", "toggle", "checkbox", "multiselect", "number_input",
}  # fmt: skip


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 15
    assert len(PAGES) == 6


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CONSOLE)))
def test_no_cached_function_takes_a_frame(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert [name for function in _cached(tree) for name in _unhashed(function)] == []


def test_the_ban_on_frames_sees_them() -> None:
    source = """
@st.cache_data
def a(frame: pl.DataFrame): ...
@st.cache_resource(max_entries=1)
def b(version: str, rows: list[pl.Series]): ...
@st.cache_data
def c(version: str, _receipts: tk.Receipts): ...
@st.cache_data
def d(anything): ...
@st.cache_data
def fine(version: str, window: Window, by: tuple[str, ...], limit: int | None): ...
"""
    found = [name for function in _cached(ast.parse(source)) for name in _unhashed(function)]
    assert found == ["a(frame)", "b(rows)", "c(_receipts)", "d(anything)"]


def test_every_cache_is_bounded() -> None:
    unbounded = [
        f"{path.name}: {function.name}"
        for path in MODULES
        for function in _cached(ast.parse(path.read_text("utf-8")))
        if function.args.args and "max_entries" not in ast.unparse(function.decorator_list[0])
    ]
    assert unbounded == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CONSOLE)))
def test_every_widget_has_a_key(path: Path) -> None:
    keyless = [
        f"{call.lineno}: {ast.unparse(call.func)}"
        for call in _calls(path)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in WIDGETS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in ("st", "left", "right")
        and not any(keyword.arg == "key" for keyword in call.keywords)
    ]
    assert keyless == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_holds_no_sentence_and_no_arithmetic(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef)]
    docstrings = {ast.get_docstring(node, clean=False) for node in documented}
    sentences = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    ]
    assert set(sentences) <= docstrings
    assert [ast.unparse(node) for node in ast.walk(tree) if _computes(node)] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CONSOLE)))
def test_markdown_is_given_only_words_of_ours(path: Path) -> None:
    """What Streamlit reads as Markdown is a constant of `wording`, or made by one of its `…_md` functions."""
    foreign = [
        f"{call.lineno}: {ast.unparse(call)}"
        for call in _calls(path)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr
        in ("markdown", "caption", "toast", "error", "warning", "info", "success", "write", "title")
        and ast.unparse(call.func).split(".")[0] in ("st", "left", "right")
        and call.args
        and not _is_ours(call.args[0])
    ]
    assert foreign == []


def test_nothing_renders_html() -> None:
    banned = ("unsafe_allow_html", "st.html", "st.iframe", "components.v1")
    assert [
        f"{path.name}: {word}" for path in MODULES for word in banned if word in path.read_text("utf-8")
    ] == []


def _is_ours(argument: ast.expr) -> bool:
    text = ast.unparse(argument)
    module, _, word = text.partition(".")
    if module in ("wording", "cap_wording", "model_wording"):
        return word.split("(")[0].endswith("_md") if isinstance(argument, ast.Call) else word.isupper()
    return text.endswith("_md") or text in ("title", "name")  # parameters that only ever get words of ours


def _computes(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitOr)


def _calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield node


def _cached(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            "st.cache_" in ast.unparse(one) for one in node.decorator_list
        ):
            yield node


def _unhashed(function: ast.FunctionDef) -> list[str]:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [f"{function.name}({one.arg})" for one in arguments if not _is_plain(one)]


def _is_plain(argument: ast.arg) -> bool:
    if argument.annotation is None or argument.arg.startswith("_"):
        return False
    names = {node.id for node in ast.walk(argument.annotation) if isinstance(node, ast.Name)}
    attributes = [node for node in ast.walk(argument.annotation) if isinstance(node, ast.Attribute)]
    return names <= set(PLAIN) and not attributes
