"""What the data plane reads on every call: keys, caps and price lists, as one immutable snapshot.

A change of the control plane is committed first and then swaps the snapshot, so the next request sees it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from toolkit.core.caps import CapBook
from toolkit.core.pricing import PriceList

Role = Literal["owner", "admin", "member", "viewer", "billing"]
ROLES: tuple[Role, ...] = ("owner", "admin", "member", "viewer", "billing")
CHANGES_CAPS = frozenset({"owner", "admin"})
SEES_CAPS = frozenset({"owner", "admin", "member", "viewer"})

_NO_CAPS = CapBook()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who is calling. A key without a role may use the data plane and nothing else; one with a role the reverse."""

    key_id: str
    organization: str
    name: str = ""
    project: str | None = None
    role: Role | None = None
    require_customer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """An immutable snapshot. `keys` maps the digest of a secret to its key; `books` an organization to its caps."""

    keys: Mapping[str, Principal] = field(default_factory=dict)
    books: Mapping[str, CapBook] = field(default_factory=dict)
    prices: tuple[PriceList, ...] = ()
    admin_token_hash: str | None = None

    def book(self, organization: str) -> CapBook:
        """The caps in force for an organization."""
        return self.books.get(organization, _NO_CAPS)

    def with_book(self, organization: str, book: CapBook) -> Policy:
        """This snapshot with one organization's caps exchanged."""
        return replace(self, books={**self.books, organization: book})

    def with_keys(self, keys: Mapping[str, Principal]) -> Policy:
        """This snapshot with all keys exchanged."""
        return replace(self, keys=keys)


class PolicyHolder:
    """The current snapshot; whoever commits a change swaps it."""

    def __init__(self, current: Policy) -> None:
        self.current = current


def digest(secret: str) -> str:
    """How a secret is kept and looked up: its SHA-256. Secrets are random 256-bit texts, so no salt is wanted."""
    return hashlib.sha256(secret.encode()).hexdigest()
