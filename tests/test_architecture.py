"""Directions and bans that no type checker sees; import-linter holds the directions between packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "toolkit" / "core"
MONEY_MODULES = (
    *("money", "pricing", "estimate", "counters", "admission", "caps", "usage"),
    *sorted(f"conventions/{path.stem}" for path in (CORE / "conventions").glob("*.py")),
)


def test_importing_the_gateway_loads_no_analytics() -> None:
    script = (
        "import gateway.app, sys; print(*({'polars', 'plotly', 'pandas', 'streamlit'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


@pytest.mark.parametrize("module", MONEY_MODULES)
def test_no_float_touches_money(module: str) -> None:
    tree = ast.parse((CORE / f"{module}.py").read_text("utf-8"))
    found = [
        f"{module}.py:{node.lineno}: {ast.unparse(node)}" for node in ast.walk(tree) if _makes_a_float(node)
    ]
    assert found == []


@pytest.mark.parametrize("expression", ["float('1')", "1.5", "1e9", "a / b", "map(float, a)"])
def test_the_float_ban_sees(expression: str) -> None:
    assert any(_makes_a_float(node) for node in ast.walk(ast.parse(expression)))


@pytest.mark.parametrize("expression", ["a // b", "1000", "isinstance(a, (bool, float))", "Fraction(a, b)"])
def test_the_float_ban_allows(expression: str) -> None:
    assert not any(_makes_a_float(node) for node in ast.walk(ast.parse(expression)))


def test_the_kernel_imports_only_the_standard_library_and_itself() -> None:
    modules = sorted(CORE.rglob("*.py"))
    assert modules
    foreign = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules
        for name in _imported(ast.parse(path.read_text("utf-8")))
        if name.split(".")[0] not in sys.stdlib_module_names and not f"{name}.".startswith("toolkit.core.")
    ]
    assert foreign == []


def _makes_a_float(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=float()) | ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return True
        case ast.Call(func=ast.Name("float")):
            return True
        case ast.Call(func=ast.Name(called), args=arguments) if called != "isinstance":
            # `float` handed to `map` and the like; to refuse a float, `isinstance` must name it.
            return any(isinstance(argument, ast.Name) and argument.id == "float" for argument in arguments)
    return False


def _imported(tree: ast.AST) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # Relative imports are banned by ruff, so `module` is always there.
            names.append(node.module or ".")
    return names
