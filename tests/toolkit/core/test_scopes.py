"""Tags byte for byte (R001-R019) and the scopes that a call belongs to."""

from __future__ import annotations

import pytest

from toolkit.core.errors import InvalidTags
from toolkit.core.scopes import SCOPES, Attribution, Tags, is_free_namespace, parse_tags, project_of


def customer(*lines: bytes) -> str | None:
    return parse_tags(lines).customer


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"customer:8812", "8812"),  # R001
        (b"customer:a'; DROP--", "a'; DROP--"),  # R002
        ("customer:zoë".encode(), "zoë"),  # R007
        (b"customer:a,customer:b", "a"),  # R009
        (b"customer:a,b", "a"),  # R011: no comma inside a value
        (b"customer:Acme", "Acme"),  # R012
        (b"customer:acme", "acme"),
        (b"customer:acme ", "acme "),
        (b"customer: acme", " acme"),
        (b"customer:a:b", "a:b"),
        (b"customer:\t", "\t"),
        (b"customer:e\xcc\x81", "e\u0301"),  # decomposed: no Unicode normalisation
        (b"customer:\xc3\xa9", "\u00e9"),
        (b" \t customer:a", "a"),  # blanks before a namespace are dropped
        (b"project:p, customer:a", "a"),
        (b"customer:*", "*"),
        (b"Customer:a", None),  # a namespace is lower-case
        (b"customer :a", None),
        (b"customer", None),
        (b"", None),
        (b",,,", None),
    ],
)
def test_the_value_runs_unchanged_to_the_comma(line: bytes, named: str | None) -> None:
    tags = parse_tags([line])
    assert (tags.customer, tags.customer_invalid) == (named, False)


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (b"", False),
        (b"a", True),
        (b"a" * 127, True),
        (b"a" * 128, True),
        (b"a" * 129, False),
        ("ë".encode() * 128, True),  # R010: 128 characters of 256 bytes
        ("ë".encode() * 129, False),
        ("😀".encode() * 128, True),
        (b"\xff", False),
        (b"ok\xc3", False),
        (b"\xed\xa0\x80", False),  # half a surrogate pair is not UTF-8
    ],
)
def test_r010_r014_a_value_has_1_to_128_characters_of_utf8(value: bytes, taken: bool) -> None:
    tags = parse_tags([b"customer:" + value])
    assert tags.customer == (value.decode() if taken else None)
    assert tags.customer_invalid is not taken


def test_r013_ids_with_a_long_common_prefix_never_collapse() -> None:
    assert customer(b"customer:" + b"a" * 128 + b"1") is None


def test_r008_every_line_is_read() -> None:
    assert customer(b"project:p", b"customer:a") == "a"


def test_r007_a_bad_piece_hides_no_other() -> None:
    tags = parse_tags([b"agent:\xff,project:p", b"run:\xfe,customer:a"])
    assert tags == Tags(customer="a", project="p")


def test_r009_a_bad_first_customer_decides_too() -> None:
    tags = parse_tags([b"customer:,customer:b"])
    assert (tags.customer, tags.customer_invalid) == (None, True)


def test_r019_other_namespaces_are_free_tags_and_the_first_eight_are_kept() -> None:
    pieces = ",".join(f"tag{number}:v" for number in range(9))
    assert parse_tags([pieces.encode()]).free == tuple(f"tag{number}:v" for number in range(8))


@pytest.mark.parametrize(
    ("namespace", "taken"),
    [
        ("a", True),
        ("agent_2-x", True),
        ("a" * 32, True),
        ("a" * 33, False),
        ("2a", False),
        ("_a", False),
        ("Agent", False),
        ("ägent", False),
        ("", False),
    ],
)
def test_r019_a_namespace_is_a_short_lower_case_name(namespace: str, taken: bool) -> None:
    tags = parse_tags([f"{namespace}:v".encode()])
    assert tags.free == ((f"{namespace}:v",) if taken else ())
    assert is_free_namespace(namespace) is taken


@pytest.mark.parametrize("namespace", ["customer", "project", "run"])
def test_a_namespace_that_names_a_scope_is_no_free_tag(namespace: str) -> None:
    assert parse_tags([f"{namespace}:v".encode()]).free == ()
    assert not is_free_namespace(namespace)


def test_a_free_value_out_of_bounds_is_dropped_and_takes_no_place() -> None:
    pieces = [b"a:", b"b:" + b"x" * 129, b"c:\xff", *(b"d:%d" % number for number in range(8))]
    assert parse_tags([b",".join(pieces)]).free == tuple(f"d:{number}" for number in range(8))


@pytest.mark.parametrize(
    ("tagged", "of_key", "counted"),
    [(None, None, None), ("p", None, "p"), (None, "q", "q"), ("q", "q", "q")],
)
def test_a_key_of_a_project_always_counts_there(
    tagged: str | None, of_key: str | None, counted: str | None
) -> None:
    assert project_of(Tags(project=tagged), of_key) == counted


def test_a_tag_that_names_another_project_than_the_keys_is_refused_without_an_echo() -> None:
    with pytest.raises(InvalidTags, match="names a different one") as refused:
        project_of(Tags(project="canary"), "q")
    assert "canary" not in str(refused.value)


def test_a_call_has_one_subject_in_every_scope() -> None:
    who = Attribution(organization="o", project="p", key_id="k", customer="c", run="r")
    assert [who.subject(scope) for scope in SCOPES] == ["o", "p", "k", "c", "r"]


def test_r016_what_a_call_does_not_name_it_does_not_have() -> None:
    who = Attribution(organization="o")
    assert [who.subject(scope) for scope in SCOPES] == ["o", None, None, None, None]


def test_the_first_value_of_a_free_tag_decides() -> None:
    who = Attribution(organization="o", tags=("agent:a", "agent:b", "team:x:y", "agents:c"))
    assert (who.tag("agent"), who.tag("team"), who.tag("age")) == ("a", "x:y", None)
