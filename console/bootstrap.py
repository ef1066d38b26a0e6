"""The one place that builds what the pages work with; tests put their own in its place.

bootstrap.build = lambda: Services(...)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from console.gateway_client import GatewayClient
from console.history import History
from console.ledger import Ledger

GATEWAY_URL = "http://127.0.0.1:8787"
TOKEN_FILE = Path("var/admin_token")
DIRECTORY = Path("var/console")


@dataclass(frozen=True, slots=True)
class Services:
    """What a page may use: the gateway, its ledger, and the clock."""

    gateway: GatewayClient
    ledger: Ledger
    clock: Callable[[], datetime]


def services() -> Services:
    """The services of this process, built once."""
    return _built()


def build() -> Services:
    """The services that the environment describes."""
    gateway = GatewayClient(os.environ.get("CAPLINE_GATEWAY_URL", GATEWAY_URL), admin_token(os.environ))
    directory = Path(os.environ.get("CAPLINE_CONSOLE_DIR", DIRECTORY))
    ledger = Ledger(gateway, History(gateway, directory), _utc_now)
    return Services(gateway=gateway, ledger=ledger, clock=_utc_now)


def admin_token(environ: Mapping[str, str], file: Path = TOKEN_FILE) -> str:
    """The operator's token: the environment's, else the file that the gateway made, else none at all."""
    token = environ.get("CAPLINE_ADMIN_TOKEN")
    if token:
        return token
    try:
        return file.read_text("utf-8").strip()
    except OSError:
        # Without one every call is answered 401, and the pages say what to do about it.
        return ""


@st.cache_resource(show_spinner=False)
def _built() -> Services:
    return build()


def _utc_now() -> datetime:
    return datetime.now(UTC)
