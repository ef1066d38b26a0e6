"""Who a call belongs to: the tag grammar and the attribution that every cap and receipt reads.

The tag header is bytes. It is split on commas first and each piece decoded as UTF-8 on its own, so that one
bad piece cannot hide another; values are compared as they stand, without case folding, trimming or
normalisation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from toolkit.core.errors import InvalidTags

Scope = Literal["organization", "project", "key", "customer", "run"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""From the least to the most specific: of equal caps the more specific one is named."""

LONGEST_VALUE = 128
MOST_FREE_TAGS = 8
NAMED_NAMESPACES = ("customer", "project", "run")
"""The namespaces that name a scope; any other is a free tag."""

_NAMESPACE = re.compile(rb"[a-z][a-z0-9_-]{0,31}")
_NAMED = frozenset(name.encode() for name in NAMED_NAMESPACES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """What the tag header said. `customer_invalid` tells a bad customer value from none at all."""

    customer: str | None = None
    customer_invalid: bool = False
    project: str | None = None
    run: str | None = None
    free: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Every scope that one call belongs to. `tags` are `namespace:value` texts in the order they came."""

    organization: str
    project: str | None = None
    key_id: str | None = None
    customer: str | None = None
    run: str | None = None
    tags: tuple[str, ...] = ()
    provider: str = ""
    model: str = ""

    def subject(self, scope: Scope) -> str | None:
        """This call's id in `scope`, None when it has none."""
        if scope == "customer":
            return self.customer
        if scope == "key":
            return self.key_id
        if scope == "organization":
            return self.organization
        return self.project if scope == "project" else self.run

    def tag(self, namespace: str) -> str | None:
        """The first value of a free tag's namespace."""
        prefix = f"{namespace}:"
        return next((tag.removeprefix(prefix) for tag in self.tags if tag.startswith(prefix)), None)


def parse_tags(lines: Iterable[bytes]) -> Tags:
    """Every line of the tag header to `Tags`; unknown or malformed pieces are dropped.

    The first piece of a namespace decides, a bad first `customer:` piece included (R007-R015).
    """
    known: dict[bytes, str | None] = {}
    free: list[str] = []
    for line in lines:
        for piece in line.split(b","):
            namespace, colon, raw = piece.lstrip(b" \t").partition(b":")
            if not colon or _NAMESPACE.fullmatch(namespace) is None:
                continue
            value = _value(raw)
            if namespace in _NAMED:
                known.setdefault(namespace, value)
            elif value is not None and len(free) < MOST_FREE_TAGS:
                free.append(f"{namespace.decode()}:{value}")
    return Tags(
        customer=known.get(b"customer"),
        customer_invalid=b"customer" in known and known[b"customer"] is None,
        project=known.get(b"project"),
        run=known.get(b"run"),
        free=tuple(free),
    )


def project_of(tags: Tags, key_project: str | None) -> str | None:
    """The project a call counts in: the key's own, else the tagged one.

    Raises InvalidTags when the key has a project and the tag names another.
    """
    if key_project is not None and tags.project not in (None, key_project):
        raise InvalidTags("This key belongs to a project; the project tag names a different one.")
    return key_project if key_project is not None else tags.project


def is_free_namespace(text: str) -> bool:
    """Whether `text` is a namespace that a free tag can have."""
    return text not in NAMED_NAMESPACES and _NAMESPACE.fullmatch(text.encode()) is not None


def _value(raw: bytes) -> str | None:
    try:
        value = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return value if 1 <= len(value) <= LONGEST_VALUE else None
