"""Forms as clients send them, read in place: every field where it lies, and nothing that could be read in two ways."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.forms import NotAForm, form_fields, text_of, with_text

NAMES = st.text(
    st.characters(codec="ascii", exclude_categories=["C"], exclude_characters='"\\'), min_size=1, max_size=20
)
FORM = "multipart/form-data; boundary=x"


def sent(fields: dict[str, str], audio: bytes) -> tuple[bytes, str]:
    """A form as a common client writes it: (body, content type)."""
    parts: list[tuple[str, tuple[str | None, str | bytes]]] = [
        (name, (None, text)) for name, text in fields.items()
    ]
    request = httpx.Request("POST", "http://a.test", files=[*parts, ("the file", ('a"b;name=model', audio))])
    return request.read(), request.headers["content-type"]


@given(st.dictionaries(NAMES, st.text(max_size=50), max_size=5), st.binary(max_size=200))
def test_every_field_is_found_where_it_lies(fields: dict[str, str], audio: bytes) -> None:
    fields.pop("the file", None)
    body, content_type = sent(fields, audio)
    found = form_fields(body, content_type)
    file = found.pop("the file")
    assert body[file.start : file.end] == audio
    assert file.is_file
    assert {name: text_of(body, field) for name, field in found.items()} == fields


@given(
    st.dictionaries(NAMES, st.text(max_size=50), min_size=1, max_size=5),
    st.binary(max_size=200),
    st.text(max_size=9),
)
def test_one_value_is_exchanged_and_nothing_else(fields: dict[str, str], audio: bytes, text: str) -> None:
    fields.pop("the file", None)
    for name in fields:
        body, content_type = sent(fields, audio)
        changed = with_text(body, form_fields(body, content_type)[name], text)
        boundary = content_type.partition("=")[2].encode()
        expected, other_type = sent({**fields, name: text}, audio)
        assert changed.replace(boundary, b"B") == expected.replace(
            other_type.partition("=")[2].encode(), b"B"
        )


@given(st.binary(max_size=300))
def test_what_is_no_form_is_said_to_be_none(noise: bytes) -> None:
    for body in (
        noise,
        b"--x\r\n" + noise,
        b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n' + noise,
    ):
        try:
            found = form_fields(body, FORM)
        except NotAForm:
            continue
        assert all(0 < field.start <= field.end <= len(body) for field in found.values())


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=x",
    ],
)
def test_a_type_without_its_boundary_is_none(content_type: str) -> None:
    with pytest.raises(NotAForm, match="multipart/form-data"):
        form_fields(b"--x--\r\n", content_type)


def test_a_name_may_stand_twice_where_it_is_a_list() -> None:
    part = b'--x\r\ncontent-disposition: form-data; name="timestamp_granularities[]"\r\n\r\nword\r\n'
    assert list(form_fields(part * 2 + b"--x--\r\n", FORM)) == ["timestamp_granularities[]"]
    with pytest.raises(NotAForm, match="more than once"):
        form_fields(part.replace(b"[]", b"") * 2 + b"--x--\r\n", FORM)
