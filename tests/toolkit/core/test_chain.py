"""capline-chain-v1: canonical JSON, links, and a verifier in another language that agrees."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from toolkit.core.chain import GENESIS, RECIPE, ChainCheck, canonical, chain_of, check_chain, row_hash

# Twenty-five lines that know nothing of ours but the recipe.
VERIFIER = """
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const byCodePoint = (a, b) => {
  const [left, right] = [Array.from(a), Array.from(b)];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const difference = left[i].codePointAt(0) - right[i].codePointAt(0);
    if (difference) return difference;
  }
  return left.length - right.length;
};
const canonical = (value) => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const keys = Object.keys(value).sort(byCodePoint);
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
};
let head = "0".repeat(64), seq = 0;
for (const line of readFileSync(process.argv[2], "utf8").trimEnd().split("\\n")) {
  const { row_hash, ...row } = JSON.parse(line);
  const hash = createHash("sha256").update(canonical(row), "utf8").digest("hex");
  if (hash !== row_hash || row.prev_hash !== head || row.chain_seq !== ++seq) process.exit(1);
  head = hash;
}
console.log(head);
"""

AWKWARD = [
    "plain", 'quote " and \\ slash /', "\b\f\n\r\t\x00\x01\x1f\x7f", "ë é e\u0301", "\u2028\u2029", "😀\U0010ffff",
    "<script>&'", "",
]  # fmt: skip


def chain(count: int, **changed: Any) -> list[dict[str, Any]]:
    """Rows of one chain, each linked to the one before."""
    rows: list[dict[str, Any]] = []
    for seq in range(1, count + 1):
        row: dict[str, Any] = {
            "receipt_id": f"r{seq}",
            "organization": "default",
            "admitted_at": "2026-12-01T09:30:00.000000Z",
            "node": "n1",
            "customer": AWKWARD[seq % len(AWKWARD)],
            "tags": AWKWARD,
            "units": {"\uffff": 1, "\U00010000": "1.50", "Z": 0, "a": 2**53 - 1, "": -1},
            "cost_nano_usd": None if seq % 2 else 2**53 - 1,
            "stream": bool(seq % 2),
            "chain_seq": seq,
            "prev_hash": rows[-1]["row_hash"] if rows else GENESIS,
        } | changed
        rows.append(row | {"row_hash": row_hash(row)})
    return rows


def test_the_recipe_has_a_name_and_a_genesis() -> None:
    assert (RECIPE, GENESIS) == ("capline-chain-v1", "0" * 64)


def test_canonical_json_is_sorted_by_code_point_without_spaces_and_leaves_row_hash_out() -> None:
    row = {"b": "ë\n", "a": [1, None, True], "row_hash": "x", "\U00010000": 1, "\uffff": {"d": 1, "c": "1.5"}}
    text = '{"a":[1,null,true],"b":"ë\\n","\uffff":{"c":"1.5","d":1},"\U00010000":1}'
    assert canonical(row) == text.encode()


@pytest.mark.parametrize(
    ("value", "taken"),
    [(2**53 - 1, True), (1 - 2**53, True), (2**53, False), (-(2**53), False), (1.0, False), (True, True)],
)
def test_integers_stay_below_2_to_the_53_and_decimals_are_text(value: Any, taken: bool) -> None:
    if taken:
        canonical({"cost_nano_usd": value})
    else:
        with pytest.raises(ValueError, match="cost_nano_usd is"):
            canonical({"cost_nano_usd": value})


def test_half_a_character_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        canonical({"customer": "\ud800"})


def test_a_chain_holds_and_may_start_after_its_first_row() -> None:
    rows = chain(5)
    assert check_chain(rows) == []
    assert check_chain(rows[2:]) == []
    assert check_chain([]) == []


def test_chains_of_other_nodes_months_and_organizations_may_interleave() -> None:
    others = [
        chain(4, node="n2"),
        chain(4, organization="o2"),
        chain(4, admitted_at="2027-01-01T00:00:00.000000Z"),
        chain(4),
    ]
    assert check_chain(row for rows in zip(*others, strict=True) for row in rows) == []
    assert len({chain_of(rows[0]) for rows in others}) == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("customer", "mallory"),
        ("cost_nano_usd", 0),
        ("units", None),
        ("prev_hash", "f" * 64),
        ("cost_nano_usd", 0.5),
    ],
)
def test_r138_a_changed_field_breaks_the_row_that_was_changed(field: str, value: Any) -> None:
    rows = chain(4)
    rows[2] = rows[2] | {field: value}
    faults = check_chain(rows)
    assert faults[0] == "receipt r3 (chain default/2026-12/n1, seq 3): row_hash does not match the row"


def test_r138_a_rewritten_row_breaks_the_link_of_the_next() -> None:
    rows = chain(4)
    forged = rows[1] | {"customer": "mallory"}
    rows[1] = forged | {"row_hash": row_hash(forged)}
    assert check_chain(rows) == [
        "receipt r3 (chain default/2026-12/n1, seq 3): prev_hash is not the hash of seq 2"
    ]


@pytest.mark.parametrize(
    ("order", "seq", "follows"),
    [([0, 1, 3], 4, 2), ([0, 2, 1, 3], 3, 1), ([0, 1, 1, 2], 2, 2)],
)
def test_r138_rows_that_are_missing_moved_or_repeated_are_named(
    order: list[int], seq: int, follows: int
) -> None:
    rows = chain(4)
    assert check_chain(rows[place] for place in order)[0] == (
        f"receipt r{seq} (chain default/2026-12/n1, seq {seq}): "
        f"follows seq {follows}; rows are missing or out of order"
    )


@pytest.mark.parametrize("changed", [{"prev_hash": "f" * 64}, {"chain_seq": 2}, {"chain_seq": 0}])
def test_the_first_row_and_no_other_follows_the_genesis(changed: dict[str, Any]) -> None:
    assert check_chain(chain(1, **changed)) == [
        f"receipt r1 (chain default/2026-12/n1, seq {changed.get('chain_seq', 1)}): "
        "seq 1, and no other row, must follow 64 zeros"
    ]


def test_a_check_can_be_fed_row_by_row() -> None:
    check = ChainCheck()
    for row in chain(3):
        check.see(row)
    assert (check.faults, len(check.expected)) == ([], 1)


def test_r138_a_verifier_in_another_language_agrees(node: str, tmp_path: Path) -> None:
    script, export = tmp_path / "verify.mjs", tmp_path / "rows.jsonl"
    script.write_text(VERIFIER, "utf-8")
    rows = chain(20)

    def verify() -> subprocess.CompletedProcess[str]:
        lines = [json.dumps(row, ensure_ascii=bool(place % 2)) for place, row in enumerate(rows)]
        export.write_bytes("\n".join(lines).encode() + b"\n")
        command = [node, str(script), str(export)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    good = verify()
    assert (good.returncode, good.stdout.strip()) == (0, rows[-1]["row_hash"]), good.stderr
    rows[9] = rows[9] | {"cost_nano_usd": 1}
    assert verify().returncode == 1
