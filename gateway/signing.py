"""The Ed25519 key that signs published heads. `cryptography` is wanted only where a key is set."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.settings import SettingsError
from toolkit.core.heads import signed_bytes

_SETTING = "CAPLINE_SIGNING_KEY"


class Signer:
    """Signs heads; `public_key` is the raw key in hexadecimal."""

    def __init__(self, path: Path) -> None:
        """Raises SettingsError for a file that is no Ed25519 key, or that others may read."""
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise SettingsError(f"{_SETTING} needs a package: pip install 'capline[signing]'") from None
        try:
            mode, pem = path.stat().st_mode, path.read_bytes()
        except OSError as error:
            raise SettingsError(f"{_SETTING}: {path} cannot be read: {error.strerror}") from None
        if mode & 0o077:
            raise SettingsError(f"{_SETTING}: others may read {path}: chmod 600 it")
        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise SettingsError(
                f"{_SETTING}: {path} is no Ed25519 key without a password in PEM: openssl genpkey -algorithm ed25519"
            )
        self._key = key
        self.public_key = key.public_key().public_bytes_raw().hex()

    def signed(self, head: Mapping[str, Any]) -> dict[str, Any]:
        """`head` with the public key and the signature over both."""
        said = {**head, "public_key": self.public_key}
        signature = base64.b64encode(self._key.sign(signed_bytes(said))).decode()
        return {**said, "signature": signature}
