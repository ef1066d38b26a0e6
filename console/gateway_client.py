"""The console's one way to the gateway: a typed client of `/api`, the health page and the ledger export.

Nothing here decides anything. A call gives a typed result or raises GatewayError, whose words fit one line on a page
and whose kind tells a page what it may offer next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx

from console.gateway_views import AuditRow, CapView, Coverage, CustomerView, ReceiptView
from toolkit.core.windows import instant_text

ErrorKind = Literal["unreachable", "unauthorized", "forbidden", "missing", "stale", "invalid", "broken"]

View = TypeVar("View")

PER_PAGE = 1_000
MOST_PAGES = 200
"""Pages of one list that are followed; a list that goes on is a fault, not a reason to wait for ever."""

_KINDS: dict[int, ErrorKind] = {
    401: "unauthorized",
    403: "forbidden",
    404: "missing",
    409: "stale",
    412: "stale",
    422: "invalid",
    428: "stale",
}


class GatewayError(Exception):
    """The gateway could not be asked, or said no. `words` are one line for the operator."""

    def __init__(self, kind: ErrorKind, words: str) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words


class GatewayClient:
    """A client of one gateway with one operator's token. Safe to share between threads."""

    def __init__(self, base_url: str, token: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self.base_url = base_url
        self.last_seen: tuple[CapView, ...] = ()
        self._http = httpx.Client(
            base_url=base_url,
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(10, connect=2),
            transport=transport,
            # The address is the operator's own: a proxy of the environment has no business with the admin token.
            trust_env=False,
        )

    def ledger_id(self) -> str:
        """The id of the ledger in use; caches are kept by it."""
        found = self._json("GET", "/health").get("ledger_id")
        if not isinstance(found, str) or not found.isalnum():
            raise GatewayError("broken", "The gateway's health page names no ledger.")
        return found

    def caps(self) -> tuple[CapView, ...]:
        """Every cap, armed or watching, by id; also kept as `last_seen`."""
        found = [_read(CapView.read, item) for item in self._items("/api/caps")]
        self.last_seen = tuple(sorted(found, key=lambda cap: cap.id))
        return self.last_seen

    def create_cap(self, fields: Mapping[str, object]) -> CapView:
        """Store a new cap; it watches."""
        return _read(CapView.read, self._json("POST", "/api/caps", body=fields))

    def change_cap(self, cap_id: int, version: int, fields: Mapping[str, object]) -> CapView:
        """Change the fields of one version of a cap; GatewayError `stale` when it is no longer the current one."""
        return _read(CapView.read, self._json("PATCH", f"/api/caps/{cap_id}", body=fields, version=version))

    def arm(self, cap_id: int, version: int, reason: str) -> CapView:
        """Turn a cap's hard stop on; GatewayError `stale` when `version` is no longer the current one."""
        armed = self._json("POST", f"/api/caps/{cap_id}/arm", body={"reason": reason}, version=version)
        return _read(CapView.read, armed)

    def disarm(self, cap_id: int) -> CapView:
        """Turn a cap's hard stop off, whatever its version; doing it twice changes nothing."""
        return _read(CapView.read, self._json("POST", f"/api/caps/{cap_id}/disarm", body={}))

    def delete_cap(self, cap_id: int, version: int) -> None:
        """Delete one version of a cap."""
        self._send("DELETE", f"/api/caps/{cap_id}", version=version)

    def customer_references(self, reference: str | None = None) -> dict[str, str]:
        """The reference that stands for each customer in URLs; of one of them where it is given."""
        asked = {"period": "all"} if reference is None else {"period": "all", "customer_ref": reference}
        found = (_read(CustomerView.read, item) for item in self._items("/api/customers", asked))
        return {view.customer: view.customer_ref for view in found}

    def coverage(self) -> Coverage:
        """What the ledger holds."""
        return _read(Coverage.read, self._json("GET", "/api/ledger/coverage"))

    def report(
        self, path: str, fields: Sequence[str], asked: Mapping[str, str], *, most: int | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of a report, each as the values of `fields`; the first `most`, or all."""
        found = islice(self._items(path, asked), most)
        return [_read(lambda item: tuple(item[field] for field in fields), item) for item in found]

    def customers_in(self, period: str) -> int:
        """How many customers a period names."""
        found = self._json("GET", "/api/customers/summary", params={"period": period})
        return _read(lambda item: int(item["customers"]), found)

    def refusals_of_cap(self, cap_id: int) -> int:
        """How many requests a cap has refused since it was armed."""
        return _read(lambda item: int(item["requests"]), self._json("GET", f"/api/caps/{cap_id}/refusals"))

    def receipt(self, receipt_id: str) -> ReceiptView:
        """One receipt and the decision trace kept beside it."""
        return _read(ReceiptView.read, self._json("GET", f"/api/receipts/{receipt_id}"))

    def audit(self, most: int = 500) -> tuple[AuditRow, ...]:
        """The latest changes, newest first."""
        rows: list[AuditRow] = []
        for item in self._items("/api/audit"):
            rows.append(_read(AuditRow.read, item))
            if len(rows) == most:
                break
        return tuple(rows)

    def export(self, path: Path, *, after_seq: str | None, since: datetime | None) -> None:
        """Write the ledger as Parquet to `path`: what came since an earlier export's `next_seq`, of what was admitted
        since an instant, or all of it."""
        params = {"format": "parquet"}
        if after_seq is not None:
            params["after_seq"] = after_seq
        if since is not None:
            params["from"] = instant_text(since)
        try:
            with self._http.stream("GET", "/v1/ledger/export", params=params, timeout=120) as response:
                if response.is_error:
                    response.read()
                    raise _said_no(response)
                with path.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _items(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[Mapping[str, Any]]:
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            asked: dict[str, str] = {
                "limit": str(PER_PAGE),
                **(params or {}),
                **({"cursor": cursor} if cursor else {}),
            }
            page = self._json("GET", path, params=asked)
            yield from page["items"]
            cursor = page.get("next_cursor")
            if not cursor:
                return
        raise GatewayError("broken", f"The list {path} has no end.")

    def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        version: int | None = None,
    ) -> dict[str, Any]:
        response = self._send(method, path, params=params, body=body, version=version)
        try:
            payload = response.json()
        except ValueError as error:
            raise GatewayError("broken", f"{self.base_url} answered something that is not JSON.") from error
        if not isinstance(payload, dict):
            raise GatewayError("broken", f"{self.base_url} answered {path} in an unknown shape.")
        return payload

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        version: int | None = None,
    ) -> httpx.Response:
        headers = {} if version is None else {"if-match": str(version)}
        try:
            response = self._http.request(method, path, params=params, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.is_error:
            raise _said_no(response)
        return response

    def _unreachable(self, error: httpx.HTTPError) -> GatewayError:
        return GatewayError(
            "unreachable", f"The gateway at {self.base_url} does not answer ({type(error).__name__})."
        )


def _read(read: Callable[[Mapping[str, Any]], View], item: Mapping[str, Any]) -> View:
    try:
        return read(item)
    except (KeyError, TypeError, ValueError) as error:
        raise GatewayError(
            "broken", f"The gateway's answer lacks something that this console needs: {error}."
        ) from error


def _said_no(response: httpx.Response) -> GatewayError:
    kind = _KINDS.get(response.status_code, "broken")
    if kind == "unauthorized":
        return GatewayError(
            kind,
            "The gateway does not know this console's token: check var/admin_token or CAPLINE_ADMIN_TOKEN.",
        )
    return GatewayError(kind, _message(response) or f"The gateway answered {response.status_code}.")


def _message(response: httpx.Response) -> str | None:
    """The first line of what the gateway said is wrong, whatever of its error shapes it used."""
    try:
        payload = response.json()
    except ValueError:
        return None
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    if isinstance(message, list):
        message = "; ".join(
            f"{'.'.join(str(part) for part in item.get('loc', ()))}: {item.get('msg')}" for item in message
        )
    return str(message).splitlines()[0][:300] if message else None
