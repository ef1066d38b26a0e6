"""Published heads against exports: what was published must stand in the export, row for row."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit.core.errors import LoadError, VerifyError
from toolkit.core.heads import HEAD_RECIPE, Chain, chain_of_head, head_of, signed_bytes


@dataclass(slots=True)
class PublishedHeads:
    """The heads of one file of JSON lines, and what is wrong with the file itself."""

    heads: dict[Chain, dict[int, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def published(self, chain: Chain, seq: int) -> str | None:
        """The hash that was published for a row; None where none was."""
        return self.heads.get(chain, {}).get(seq)

    def missing(self, seen: Mapping[Chain, int], header: Mapping[str, Any]) -> Iterator[str]:
        """Heads of a whole range that lie behind its last rows. `seen`: the last sequence number by chain."""
        organizations = {organization for organization, _, _ in seen}
        start, end = header.get("from"), header.get("to")
        for chain, rows in sorted(self.heads.items()):
            organization, month, node = chain
            first = f"{month}-01T00:00:00.000000Z"
            inside = (start is None or start <= first) and (end is None or first < end)
            if chain in seen or (inside and (not organizations or organization in organizations)):
                last = max(rows)
                if last > seen.get(chain, 0):
                    yield (
                        f"chain {organization}/{month}/{node} was published up to seq {last}; "
                        f"the export ends at seq {seen.get(chain, 0)}"
                    )


def read_heads(path: str | os.PathLike[str], public_key: str | os.PathLike[str] | None) -> PublishedHeads:
    """The heads of a file. With a public key (hexadecimal, or a PEM file) each must carry its signature.

    Raises LoadError for a file that cannot be read, VerifyError for a key that is none.
    """
    name, found = os.fspath(path), PublishedHeads()
    trusted = None if public_key is None else _public_key(os.fspath(public_key))
    signed = False
    try:
        with Path(name).open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    head = head_of(line)
                except ValueError:  # what a crash leaves of a line; those after it say more
                    found.notes.append(f"{name}, line {number}: is no head of recipe {HEAD_RECIPE}")
                    continue
                signed = signed or head.get("signature") is not None
                if fault := _signature_fault(head, trusted):
                    found.faults.append(f"{name}, line {number}: {fault}")
                rows = found.heads.setdefault(chain_of_head(head), {})
                if rows.setdefault(head["chain_seq"], head["row_hash"]) != head["row_hash"]:
                    found.faults.append(
                        f"{name}, line {number}: another row was published at seq {head['chain_seq']} before"
                    )
    except OSError as error:
        raise LoadError(f"cannot be read: {error.strerror}", file=name) from error
    if signed and trusted is None:
        found.notes.append(f"{name}: signatures were checked with the keys beside them; give the public key")
    return found


def _signature_fault(head: Mapping[str, Any], trusted: str | None) -> str | None:
    public, signature = str(head.get("public_key")), head.get("signature")
    if signature is None:
        return None if trusted is None else "is not signed"
    if trusted is not None and public != trusted:
        return "is signed with another key"
    key_class = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        key = key_class.from_public_bytes(bytes.fromhex(public))
        key.verify(base64.b64decode(signature, validate=True), signed_bytes(head))
    except (InvalidSignature, ValueError, TypeError):
        return "has a signature that does not hold"
    return None


def _public_key(given: str) -> str:
    key_class = _ed25519()
    try:
        if not os.path.exists(given):
            return str(key_class.from_public_bytes(bytes.fromhex(given)).public_bytes_raw().hex())
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        key = load_pem_public_key(Path(given).read_bytes())
    except (ValueError, OSError) as error:
        raise VerifyError(f"{given} is no Ed25519 public key: write 64 hex digits or a PEM file") from error
    if not isinstance(key, key_class):
        raise VerifyError(f"{given} is no Ed25519 public key: write 64 hex digits or a PEM file")
    return str(key.public_bytes_raw().hex())


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise VerifyError("signatures need a package: pip install 'capline[signing]'") from None
    return Ed25519PublicKey
