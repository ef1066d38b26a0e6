"""The hop to a provider: one request out, one answer back, and the two ways it can fail that money cares about.

`NotReached` means that nothing was sent, so nothing is owed. `BrokenOff` means that the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

import aiohttp
from multidict import CIMultiDict

CONNECT_SECONDS = 10
READ_BYTES = 65_536

RawHeaders = Sequence[tuple[bytes, bytes]]


class NotReached(Exception):
    """The provider could not be connected to; the request was not sent."""


class BrokenOff(Exception):
    """The connection failed after the request was sent; the provider may have billed it."""


class Answer(Protocol):
    """A provider's answer whose body is still to be read."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> RawHeaders:
        """Header names in lower case and values, as they came."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises BrokenOff when it ends early."""

    async def close(self) -> None:
        """Let go of the connection; a body that was not read to its end closes it."""


class Upstream(Protocol):
    """Whatever carries a request to a provider: aiohttp in service, a function in tests."""

    async def send(
        self, url: str, headers: Iterable[tuple[str, str]], body: bytes, method: str = "POST"
    ) -> Answer:
        """Send `body`. Raises NotReached or BrokenOff."""

    async def close(self) -> None:
        """Close every connection."""


class _BareRequest(aiohttp.ClientRequest):
    """A request with the headers it is given and no others; what aiohttp would work out for each is the same here."""

    _skip_auto_headers = CIMultiDict(
        (name, None) for name in ("user-agent", "accept", "accept-encoding", "content-type")
    )

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        """Add none."""


class AiohttpAnswer:
    """An answer over aiohttp."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: RawHeaders = [(name.lower(), value) for name, value in response.raw_headers]

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        content = self._response.content
        try:
            while not content.at_eof():
                if chunk := await content.readany():
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise BrokenOff(type(error).__name__) from error

    async def close(self) -> None:
        """Return the connection to the pool, or close it when the body is unfinished."""
        self._response.release() if self._response.content.at_eof() else self._response.close()


class AiohttpUpstream:
    """Pooled connections to every provider. Create it inside a running loop."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            request_class=_BareRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BYTES,
        )

    async def send(
        self, url: str, headers: Iterable[tuple[str, str]], body: bytes, method: str = "POST"
    ) -> AiohttpAnswer:
        """Send `body`; redirects are answers, not instructions."""
        try:
            response = await self._session.request(
                method, url, headers=list(headers), data=body or None, allow_redirects=False
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotReached(type(error).__name__) from error
        except (aiohttp.ClientError, OSError) as error:
            raise BrokenOff(type(error).__name__) from error
        return AiohttpAnswer(response)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
