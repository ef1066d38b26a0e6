"""How the console is started, wherever from: the command and what its environment needs.

Streamlit reads `.streamlit/config.toml` beside the script it runs, so the settings are right in a checkout and in an
installed package alike; only what depends on the place is passed here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

APP = Path(__file__).resolve().parent / "app.py"

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def command(host: str = "127.0.0.1", port: int = 8501, base_path: str = "") -> list[str]:
    """The command line that serves the console on one address, under `base_path` of a proxy where one is given."""
    return [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(APP),
        "--server.address",
        host,
        "--server.port",
        str(port),
        "--server.headless",
        "true",
        *(["--server.baseUrlPath", base_path.strip("/")] if base_path.strip("/") else []),
    ]


def environment(
    environ: Mapping[str, str],
    *,
    gateway_url: str | None = None,
    admin_token: str | None = None,
    directory: Path | None = None,
    host: str = "127.0.0.1",
) -> dict[str, str]:
    """`environ` for the console's process. A console on loopback answers to its own names only, against rebinding."""
    own = dict(environ)
    if gateway_url is not None:
        own["CAPLINE_GATEWAY_URL"] = gateway_url
    if admin_token is not None:
        own["CAPLINE_ADMIN_TOKEN"] = admin_token
    if directory is not None:
        own["CAPLINE_CONSOLE_DIR"] = str(directory)
    if host in _LOOPBACK:
        # Behind a proxy of another name, set the variable to that name. Blanks stand between names.
        own.setdefault("STREAMLIT_SERVER_ALLOWED_HOSTS", " ".join(_LOOPBACK))
    own.setdefault("STREAMLIT_BROWSER_GATHER_USAGE_STATS", "false")
    return own
