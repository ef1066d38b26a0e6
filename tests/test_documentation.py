"""The README and docs do what they say: their examples run, and no setting, code, command or route is left out.

A fenced block under `<!-- run -->` is run, a `<!-- prints -->` block under it says which lines its output has in this
order (`…` stands for anything within a line), a `<!-- settings -->` block is read as a capline.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest

from console import cli
from gateway import settings
from gateway.demo import history
from gateway.refusals import KINDS, RefusalCode
from gateway.settings import Settings
from tests.support.exports import Export, abandoned, chained, refused, served
from tests.support.servers import ADMIN_TOKEN, DemoProviderProcess, GatewayProcess
from toolkit.core.overlay import operator_content
from toolkit.core.receipts import RECEIPT_COLUMNS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").glob("*.md"),
]

GATEWAY_URL = "http://127.0.0.1:8787"
"""Where the README's gateway answers; the tests' one has a free port."""
OTHERS_VARIABLES = {"CAPLINE_GATEWAY_URL", "CAPLINE_CONSOLE_PORT", "CAPLINE_CONSOLE_DIR"}
"""Read by the command line and the console, so no settings of the gateway."""

_BLOCK = re.compile(r"^<!-- (run|prints|settings) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A marked block. `line` is where it stands in its document."""

    marker: str
    language: str
    text: str
    line: int


def blocks(document: str) -> list[Block]:
    """The marked blocks of a document in their order."""
    return [
        Block(found[1], found[2], found[3], document.count("\n", 0, found.start()) + 3)
        for found in _BLOCK.finditer(document)
    ]


class Demo:
    """A folder as `make run` leaves it, with a gateway and a demo provider that answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        database_url = f"sqlite:///{folder / 'var/demo/capline.db'}"
        history.load(database_url, folder / "var" / "demo" / "key", _first_days(folder))
        (folder / "var" / "admin_token").write_text(f"{ADMIN_TOKEN}\n", "utf-8")
        self.provider = DemoProviderProcess(folder / "provider")
        self.gateway = GatewayProcess(folder, self.provider.start().url, CAPLINE_DATABASE_URL=database_url)
        self.gateway.secret = "the README has a key of its own"
        self.gateway.start()

    def run(self, block: Block) -> str:
        """Run a block as the reader would; its output."""
        text = block.text.replace(GATEWAY_URL, self.gateway.url)
        command = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[block.language]
        done = subprocess.run(
            [*command, text],
            cwd=self.folder,
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"README.md:{block.line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        self.gateway.close()
        self.provider.close()

    def _environ(self) -> dict[str, str]:
        """The tests' environment without keys, addresses and proxies, and this Python's commands first."""
        theirs = ("CAPLINE_", "OPENAI_", "ANTHROPIC_")
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(theirs) and not name.lower().endswith("_proxy")
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**kept, "PATH": path, "CAPLINE_PORT": str(self.gateway.port)}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    started = Demo(tmp_path_factory.mktemp("demo"))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def curl() -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt-get install curl")


def _first_days(folder: Path) -> Path:
    """The beginning of the demo month: what the README shows is the same, and it loads and verifies in a moment."""
    part = folder / "month.parquet"
    pq.write_table(pq.read_table(history.sample_file()).slice(0, 2_000), part)
    return part


def misses(output: str, wanted: str) -> str | None:
    """The first wanted line that the output does not have after the ones before it; a long line may be folded."""
    seen_to = 0
    for line in filter(None, map(str.strip, wanted.splitlines())):
        pattern = re.compile(".*?".join(map(re.escape, line.split("…"))))
        found = pattern.search(output, seen_to)
        if found is None:
            return line
        seen_to = found.end()
    return None


@pytest.mark.usefixtures("curl")
def test_every_example_of_the_readme_runs_and_prints_what_it_says(demo: Demo) -> None:
    output, ran = "", 0
    for block in blocks(README):
        if block.marker == "run":
            output, ran = demo.run(block), ran + 1
        elif block.marker == "prints":
            assert (missed := misses(output, block.text)) is None, (
                f"README.md:{block.line}: {missed}\n{output}"
            )
    assert ran >= 8


def test_every_header_of_an_answer_is_in_the_readme(demo: Demo) -> None:
    documented = set(re.findall(r"`([a-z-]+)`", section("Response headers")))
    secret = demo.gateway.make_key()["key"]
    question = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
    cap = demo.gateway.make_cap(scope="customer", subject="headers", limit_usd="0.01")
    try:
        answers = [
            demo.gateway.post("/v1/chat/completions", body, secret=secret, tags="customer:headers")
            for body in ({**question, "max_tokens": 10}, {**question, "max_tokens": 9_000})
        ]
    finally:
        demo.gateway.delete_cap(cap)
    assert [answer.status_code for answer in answers] == [200, 402]
    ours = {
        name
        for answer in answers
        for name in answer.headers
        if name.startswith("x-capline-") or "retry" in name
    }
    assert {"x-capline-cost-usd", "x-capline-budget-remaining", "x-should-retry"} <= ours <= documented


def test_every_route_of_the_operators_is_in_the_readme(demo: Demo) -> None:
    routes = set(demo.gateway.api("GET", "/api/openapi.json").json()["paths"])
    documented = set(re.findall(r"`(/[^`]*)`", rows_of(section("Operator API"))))
    assert documented == routes


def test_every_setting_is_in_the_readme_with_its_default() -> None:
    documented = dict(re.findall(r"^\| `(CAPLINE_[A-Z_]+)` \| (.*?) \|", section("Settings"), re.MULTILINE))
    defaults = Settings()
    told_in_words = {
        "CAPLINE_ADMIN_TOKEN": "none",
        "CAPLINE_PRICES_DIR": "the bundled lists",
        "CAPLINE_OPERATOR_PRICES": "none",
        "CAPLINE_HEADS_FILE": "none",
        "CAPLINE_HEADS_URL": "none",
        "CAPLINE_SIGNING_KEY": "none",
    }
    expected = {
        name: told_in_words.get(name, f"`{getattr(defaults, field)}`")
        for field in (setting.name for setting in fields(Settings))
        if field not in ("providers", "var_dir")  # a table of its own, and set in code only
        for name in [f"CAPLINE_{field.upper()}"]
    }
    assert documented == expected


def test_the_readme_names_every_variable_that_turns_a_provider_on_and_no_other() -> None:
    vendors = {name for vendor in settings._VENDORS for name in (vendor.key_variable, vendor.url_variable)}
    assert set(re.findall(r"`(\w+_(?:API_KEY|BASE_URL))`", README)) == vendors
    ours = {f"CAPLINE_{setting.name.upper()}" for setting in fields(Settings)} | vendors | OTHERS_VARIABLES
    assert set(re.findall(r"CAPLINE_[A-Z_]+[A-Z]", README)) <= ours


def test_the_readmes_settings_file_is_read(tmp_path: Path) -> None:
    (found,) = [block for block in blocks(README) if block.marker == "settings"]
    path = tmp_path / "capline.toml"
    path.write_text(found.text, "utf-8")
    read = Settings.load({}, path)
    assert (read.undeclared_output, read.providers[0].prices) == ("refuse", "groq")


def test_every_refusal_code_is_in_the_readme_with_status_and_types() -> None:
    row = re.compile(r"^\| `(\w+)` \| (\d{3}) \| `(\w+)` / `(\w+)` \|", re.MULTILINE)
    documented = {
        found[1]: (int(found[2]), found[3], found[4]) for found in row.finditer(section("Refusals"))
    }
    expected = {code: (kind.status, kind.openai_type, kind.anthropic_type) for code, kind in KINDS.items()}
    assert documented == expected
    assert set(expected) == set(get_args(RefusalCode))


def test_every_command_is_in_the_readme() -> None:
    documented = set(re.findall(r"^\| `capline ([a-z-]+)` \|", section("Command line"), re.MULTILINE))
    assert documented == set(_subcommands(cli.parser()))


def test_every_field_of_a_new_cap_is_in_the_readme(demo: Demo) -> None:
    shapes = demo.gateway.api("GET", "/api/openapi.json").json()["components"]["schemas"]
    documented = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", section("Caps"), re.MULTILINE)))
    )
    assert documented == set(shapes["CapCreate"]["properties"])


def test_the_node_verifier_of_the_chain_recipe_tells_true_from_false(node: str, tmp_path: Path) -> None:
    (program,) = [block for block in blocks(_document("chain")) if block.language == "js"]
    assert len(program.text.splitlines()) <= 30
    script = tmp_path / "verify.mjs"
    script.write_text(program.text, "utf-8")
    rows = chained(
        [
            served(1),
            served(2, customer='zoë 日本 "\\\n\u2028\x7f', units={"web_search": 2}),
            abandoned(3),
            refused(4),
        ]
    )
    whole = Export(rows).jsonl()
    assert _verdict(node, script, whole) == (0, "ok: 4 rows")
    dear = {"cost_nano_usd": 6 * 10**15 + 1, "counted_nano_usd": 6 * 10**15 + 1}
    beyond = chained([served(1, **dear), served(2, cost_nano_usd=6 * 10**15, counted_nano_usd=6 * 10**15)])
    large = Export(beyond).jsonl()
    assert _verdict(node, script, large) == (0, "ok: 2 rows")
    code, words = _verdict(node, script, large.replace(b"12000000000000001", b"12000000000000000"))
    assert (code, words.startswith("not")) == (1, True)
    for place, forged in {
        "a cost": whole.replace(b'"cost_nano_usd":', b'"cost_nano_usd":1', 1),
        "a customer": whole.replace(b'"customer":"cust-1"', b'"customer":"cust-9"', 1),
        "a row": b"".join(line for number, line in enumerate(whole.splitlines(keepends=True)) if number != 2),
        "the end": whole[: whole.rindex(b"\n", 0, -1) + 1],
    }.items():
        code, words = _verdict(node, script, forged)
        assert (code, words.startswith("not")) == (1, True), f"{place}: {words}"


def test_the_chain_recipe_names_every_column() -> None:
    named = re.findall(r"`(\w+)`", _document("chain").partition("## The columns")[2])
    assert [name for name in named if name in RECEIPT_COLUMNS][: len(RECEIPT_COLUMNS)] == list(
        RECEIPT_COLUMNS
    )


def test_the_wire_page_shows_refusals_as_they_come(demo: Demo) -> None:
    shown = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", _document("wire"), re.M | re.S)]
    secret = demo.gateway.make_key()["key"]
    cap = demo.gateway.make_cap(scope="customer", subject="wire", window="day", limit_usd="0.01")
    question = {"max_tokens": 9_000, "messages": [{"role": "user", "content": "Hello"}]}
    try:
        answers = [
            demo.gateway.post(path, {"model": model, **question}, secret=secret, tags="customer:wire")
            for path, model in (("/v1/chat/completions", "gpt-4o"), ("/v1/messages", "claude-sonnet-4-5"))
        ]
    finally:
        demo.gateway.delete_cap(cap)
    assert [_skeleton(answer.json()) for answer in answers] == [_skeleton(body) for body in shown]
    named = set(re.findall(r"^([a-z-]+): ", _document("wire"), re.MULTILINE))
    assert all(set(answer.headers) - {"date", "content-length"} == named for answer in answers)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_within_the_repository_leads_somewhere(document: Path) -> None:
    text = document.read_text("utf-8")
    headings = {_anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        assert not path or (document.parent / path).exists(), f"{document.name}: {target}"
        assert path or anchor in headings, f"{document.name}: {target}"


def section(title: str) -> str:
    """The part of the README under a heading."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows_of(text: str) -> str:
    """The table rows of a text."""
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def _skeleton(value: Any) -> Any:
    """The names of an object at every depth, and the words that never vary."""
    if isinstance(value, dict):
        return {name: _skeleton(inner) for name, inner in value.items() if name != "message"}
    return (
        value if value in ("insufficient_quota", "billing_error", "budget_exceeded", "error", None) else "…"
    )


def _document(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _verdict(node: str, script: Path, export: bytes) -> tuple[int, str]:
    path = script.with_name("export.jsonl")
    path.write_bytes(export)
    done = subprocess.run([node, script, path], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def _subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    (found,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found.choices)


def test_the_readmes_file_of_own_prices_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", section("Prices"), re.DOTALL)
    path = tmp_path / "own.json"
    path.write_text(block, "utf-8")
    assert operator_content(path)["rows"][0]["model"] == "gpt-5-mini"
