"""`multipart/form-data` read in place: where each field's value lies, so that a file is measured and never copied."""

from __future__ import annotations

import re
from typing import NamedTuple

LARGEST_FIELD = 65_536
"""Bytes of a field that is read as text."""
MOST_FIELDS = 100

_BOUNDARY = re.compile(
    r"multipart/form-data\s*;(?:.*;)?\s*boundary=(?:\"([^\"]{1,70})\"|([^\s;\"]{1,70}))", re.I
)
_PARAMETER = re.compile(r";\s*([A-Za-z*]+)=(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]*))")
_DISPOSITION = re.compile(r"content-disposition:\s*form-data((?:;.*)?)", re.I)


class NotAForm(ValueError):
    """A body that is no form that every reader would read alike; the message names no value."""


class FormField(NamedTuple):
    """One field: its name, whether it is a file, and where its value starts and ends in the body."""

    name: str
    is_file: bool
    start: int
    end: int


def form_fields(body: bytes, content_type: str) -> dict[str, FormField]:
    """The fields of a form by name. Raises NotAForm; a name that stands twice is one too, unless it ends in `[]`."""
    told = _BOUNDARY.match(content_type)
    if told is None:
        raise NotAForm("The request body must be multipart/form-data with its boundary.")
    delimiter = b"--" + (told[1] or told[2]).encode("latin-1")
    if not body.startswith(delimiter + b"\r\n"):
        raise NotAForm("The request body does not begin with the boundary that its type declares.")
    fields: dict[str, FormField] = {}
    at = len(delimiter)
    while not body.startswith(b"--", at):
        field = _field_at(body, at, b"\r\n" + delimiter)
        if field.name in fields and not field.name.endswith("[]"):
            raise NotAForm("The request body has a field more than once.")
        if len(fields) == MOST_FIELDS:
            raise NotAForm(f"The request body has more than {MOST_FIELDS} fields.")
        fields[field.name] = field
        at = field.end + 2 + len(delimiter)
    return fields


def text_of(body: bytes, field: FormField | None) -> str | None:
    """A field's value as text, None where there is no field. Raises NotAForm."""
    if field is None:
        return None
    if field.is_file or field.end - field.start > LARGEST_FIELD:
        raise NotAForm("The request body has a file, or too long a text, where a short text is wanted.")
    try:
        return body[field.start : field.end].decode()
    except UnicodeDecodeError as error:
        raise NotAForm("The request body has a field that is not text.") from error


def with_text(body: bytes, field: FormField, text: str) -> bytes:
    """The body with one field's value exchanged; every other byte stays."""
    return b"".join([body[: field.start], text.encode(), body[field.end :]])


def _field_at(body: bytes, at: int, ends: bytes) -> FormField:
    """The field whose headers begin after the line end at `at`."""
    headers_end = body.find(b"\r\n\r\n", at, at + LARGEST_FIELD)
    if not body.startswith(b"\r\n", at) or headers_end < 0:
        raise NotAForm("The request body has a part without headers.")
    start = headers_end + 4
    end = body.find(ends, start)
    if end < 0:
        raise NotAForm("The request body ends within a part.")
    name, is_file = _named(body[at + 2 : headers_end])
    return FormField(name, is_file, start, end)


def _named(headers: bytes) -> tuple[str, bool]:
    """The name in a part's headers, and whether a file's name stands beside it."""
    lines = [
        line
        for line in headers.decode("latin-1").split("\r\n")
        if line[:20].lower() == "content-disposition:"
    ]
    told = _DISPOSITION.fullmatch(lines[0]) if len(lines) == 1 else None
    found = [] if told is None else _PARAMETER.findall(told[1])
    names = [quoted or plain for key, quoted, plain in found if key.lower() == "name"]
    if len(names) != 1 or _PARAMETER.sub("", told[1] if told else "").strip():
        raise NotAForm("The request body has a part without one plain name.")
    return names[0], any(key.lower().startswith("filename") for key, _, _ in found)
