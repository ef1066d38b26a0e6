"""The way to the operator's API: over HTTP while a gateway runs, through the database's own process while none does.

Which gateway: the one that is named; else, where nothing names a database, the demo of this directory or the one at the
usual address; else the one that holds the lock of the configured database, which has noted its address there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from console.commands.offline import HeldByGateway, OfflineTransport
from console.commands.terminal import CannotDo, Parser, say

TOKEN_FILE = Path("var/admin_token")
CONFIG_FILE = Path("capline.toml")
DEMO_LOCK = Path("var/demo/capline.db.lock")
URL_VARIABLE = "CAPLINE_GATEWAY_URL"
_CONSOLES_OWN = (URL_VARIABLE, "CAPLINE_CONSOLE_")


class Api:
    """Requests to the operator's routes; whatever is answered with no is CannotDo, in the gateway's own words."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        version: int | None = None,
    ) -> dict[str, Any]:
        """One request; the JSON of its answer, empty when it has none. `version` is the one that is to be changed."""
        headers = {} if version is None else {"if-match": str(version)}
        response = self._http.request(method, path, json=body, params=params, headers=headers)
        if response.is_error:
            raise CannotDo(_words(response))
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer

    def items(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page."""
        cursor: str | None = None
        while True:
            page = self.ask("GET", path, params={**(params or {}), **({"cursor": cursor} if cursor else {})})
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    @contextlib.contextmanager
    def stream(self, path: str, params: Mapping[str, str]) -> Iterator[httpx.Response]:
        """A long answer, to be read as it comes."""
        with self._http.stream("GET", path, params=params, timeout=300) as response:
            if response.is_error:
                response.read()
                raise CannotDo(_words(response))
            yield response


def add_gateway(parser: Parser) -> None:
    """The option that names a gateway."""
    parser.add_argument(
        "--gateway", metavar="URL", help=f"the gateway to ask (else {URL_VARIABLE}, else found)"
    )


@contextlib.contextmanager
def connect(chosen: argparse.Namespace, *, may_create: bool = False) -> Iterator[Api]:
    """The API of the gateway in use, or of the database when none is. `may_create`: a new database is fine."""
    client = _client(chosen.gateway or os.environ.get(URL_VARIABLE), may_create=may_create)
    try:
        with client:
            yield Api(client)
    except httpx.HTTPError as error:
        raise CannotDo(
            f"{client.base_url} broke off ({type(error).__name__}); look at the gateway's log"
        ) from error


def gateway_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What a gateway's process gets: all but the console's own variables, and no module of the current directory."""
    kept = {name: text for name, text in environ.items() if not name.startswith(_CONSOLES_OWN)}
    return {**kept, "PYTHONSAFEPATH": "1"}


def likely_url(environ: Mapping[str, str]) -> str:
    """Where a gateway answers when nothing says so: the demo of this directory if it runs, else the usual address."""
    with contextlib.suppress(OSError):
        noted = DEMO_LOCK.read_text("utf-8").strip()
        if noted and answers(noted):
            return noted
    return f"http://{environ.get('CAPLINE_HOST', '127.0.0.1')}:{environ.get('CAPLINE_PORT', '8787')}"


def answers(url: str) -> bool:
    """Whether a gateway of ours answers at `url`."""
    try:
        found = httpx.get(f"{url}/health", timeout=2, trust_env=False).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    return isinstance(found, dict) and "ledger_id" in found


def _client(named: str | None, *, may_create: bool) -> httpx.Client:
    if named is not None:
        if not answers(named.rstrip("/")):
            raise CannotDo(f"no gateway answers at {named}; start it, or name another with --gateway")
        return _online(named.rstrip("/"))
    if "CAPLINE_DATABASE_URL" not in os.environ and not CONFIG_FILE.exists():
        url = likely_url(os.environ)
        if answers(url):
            return _online(url)
    try:
        transport = OfflineTransport(gateway_environ(os.environ), may_create=may_create)
    except HeldByGateway as held:
        if held.url is None or not answers(held.url):
            raise CannotDo(
                f"{held}, and it does not answer at {held.url}" if held.url else str(held)
            ) from held
        return _online(held.url)
    say("No gateway is running; working on its database directly.")
    return httpx.Client(base_url="http://offline", transport=transport, timeout=60)


def _online(url: str) -> httpx.Client:
    # The address is the operator's own: a proxy of the environment has no business with the admin token.
    return httpx.Client(
        base_url=url,
        headers={"authorization": f"Bearer {_admin_token()}"},
        timeout=httpx.Timeout(60, connect=2),
        trust_env=False,
    )


def _admin_token() -> str:
    if token := os.environ.get("CAPLINE_ADMIN_TOKEN"):
        return token
    with contextlib.suppress(OSError):
        return TOKEN_FILE.read_text("utf-8").strip()
    raise CannotDo(
        f"there is no {TOKEN_FILE} here; run this where the gateway runs, or set CAPLINE_ADMIN_TOKEN"
    )


def _words(response: httpx.Response) -> str:
    """What the gateway said, as one line."""
    if response.status_code == httpx.codes.UNAUTHORIZED:
        where = response.request.url.copy_with(path="/", query=None)
        return f"the gateway at {where} does not know this token; check CAPLINE_ADMIN_TOKEN or {TOKEN_FILE}"
    try:
        said = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        return f"the gateway answered HTTP {response.status_code} to {response.request.url.path}"
    message = " ".join(str(said["message"]).split()) if isinstance(said, dict) else str(said)
    return message.removesuffix(".")
