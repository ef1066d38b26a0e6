"""A gateway in memory: the routes that the console asks, over caps, an audit log and a frame of receipts.

`FakeGateway.transport` plugs into the real client, so that headers, versions, pages and statuses are tried too.
`down` makes it unreachable; `fail` makes the next request of one route answer an error.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import httpx
import polars as pl

import toolkit as tk
from console.gateway_client import GatewayClient
from toolkit.core.chain import RECIPE
from toolkit.core.money import limit_text, parse_usd
from toolkit.core.windows import instant_text, parse_instant, period_of
from toolkit.frames import RECEIPT_SCHEMA

TOKEN = "capline_admin_test"
PAGE = 2
"""Items on one page of a list: small, so that every list is paged."""

Json = dict[str, Any]


class FakeGateway:
    """One organization's gateway. `receipts` may be replaced between requests, as a ledger grows."""

    def __init__(self, receipts: pl.DataFrame | None = None, *, now: datetime | None = None) -> None:
        self.receipts = pl.DataFrame(schema=RECEIPT_SCHEMA) if receipts is None else receipts
        self.now = now or datetime(2026, 11, 30, 18, tzinfo=UTC)
        self.caps: dict[int, Json] = {}
        self.audit: list[Json] = []
        self.traces: dict[str, list[Json]] = {}
        self.down = False
        self.fail: dict[tuple[str, str], tuple[int, str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.exports: list[str | None] = []
        self.ledger_id = "feed0123feed0123"
        self.forged_rows = 0

    def client(self) -> GatewayClient:
        """The real client, talking to this."""
        return GatewayClient("http://gateway.test", TOKEN, transport=httpx.MockTransport(self.handle))

    def add_cap(self, *, armed: bool = False, **fields: Any) -> Json:
        """A stored cap, made outside the console."""
        cap = self._new_cap({"scope": "customer", "subject": "*", "window": "month", **fields})
        if armed:
            self._set(cap, "cap.arm", "set up", hard_stop=True, armed_at=instant_text(self.now))
        return cap

    def armed(self) -> list[Json]:
        """The armed caps."""
        return [cap for cap in self.caps.values() if cap["hard_stop"]]

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        self.asked.append((request.method, request.url.path))
        if self.down:
            raise httpx.ConnectError("refused", request=request)
        if request.url.path != "/health" and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _error(401, "invalid_api_key", "Unknown token.")
        for (method, pattern), (status, message) in self.fail.items():
            if request.method == method and re.fullmatch(pattern, request.url.path):
                return _error(status, "failed", message)
        for method, pattern, answer in self._routes():
            matched = re.fullmatch(pattern, request.url.path)
            if matched and request.method == method:
                return answer(request, *matched.groups())
        return _error(404, "not_found", f"There is no {request.url.path}.")

    def _routes(self) -> list[tuple[str, str, Callable[..., httpx.Response]]]:
        return [
            ("GET", "/health", lambda request: _json({"status": "ok", "ledger_id": self.ledger_id})),
            ("GET", "/v1/ledger/export", self._export),
            ("GET", "/api/ledger/coverage", self._coverage),
            ("GET", "/api/spend", self._spend),
            ("GET", "/api/unpriced", self._unpriced),
            ("GET", "/api/receipts", self._receipts),
            ("GET", "/api/customers/summary", self._customers_summary),
            ("GET", r"/api/caps/(\d+)/refusals", self._refusals),
            ("GET", "/api/caps", lambda request: _page(request, [*self.caps.values()])),
            ("POST", "/api/caps", self._create),
            ("PATCH", r"/api/caps/(\d+)", self._patch),
            ("DELETE", r"/api/caps/(\d+)", self._delete),
            ("POST", r"/api/caps/(\d+)/arm", self._arm),
            ("POST", r"/api/caps/(\d+)/disarm", self._disarm),
            ("GET", "/api/customers", self._customers),
            ("GET", "/api/audit", lambda request: _page(request, self.audit[::-1])),
            ("GET", r"/api/receipts/(.+)", self._receipt),
        ]

    def _export(self, request: httpx.Request) -> httpx.Response:
        asked = _query(request)
        after = asked.get("after_seq")
        self.exports.append(after)
        if after is not None and int(after) > self.receipts.height:
            return _error(422, "invalid_request", "after_seq is not of this ledger.")
        rows, end = self.receipts[int(after or 0) :], self.receipts.height
        if "from" in asked:
            rows = rows.filter(pl.col("admitted_at") >= parse_instant(asked["from"]))
        return httpx.Response(200, content=parquet(rows, end, forged_rows=self.forged_rows))

    def _coverage(self, request: httpx.Request) -> httpx.Response:
        admitted = self.receipts["admitted_at"]
        ends = {"first": admitted.min(), "last": admitted.max()}
        return _json(
            {
                "receipts": self.receipts.height,
                "customers": self.receipts["customer"].drop_nulls().n_unique(),
                **{name: None if at is None else instant_text(at) for name, at in ends.items()},
                "last_row": self.receipts.height,
            }
        )

    def _spend(self, request: httpx.Request) -> httpx.Response:
        asked = _query(request)
        by = [name for name in asked.get("by", "").split(",") if name]
        found = tk.spend(self._asked_for(asked), by=by, window=asked["window"])
        if "period" in asked:
            found = found.filter(pl.col("period") == asked["period"])
        rows = found.sort("cost_nano_usd", descending=True, nulls_last=True).rows(named=True)
        for row in rows:
            row["cost_usd"] = None if row["cost_usd"] is None else str(row["cost_usd"])
            if "customer" in by:
                row["customer_ref"] = None if row["customer"] is None else reference(row["customer"])
        return _page(request, rows, size=500)

    def _asked_for(self, asked: Mapping[str, str]) -> tk.Receipts:
        """The receipts that `customer_ref`, `from` and `to` leave."""
        rows = self.receipts
        if "customer_ref" in asked:
            named = [
                name
                for name in rows["customer"].drop_nulls().unique()
                if reference(name) == asked["customer_ref"]
            ]
            rows = rows.filter(pl.col("customer").is_in(named))
        if "from" in asked:
            rows = rows.filter(pl.col("admitted_at") >= parse_instant(asked["from"]))
        if "to" in asked:
            rows = rows.filter(pl.col("admitted_at") < parse_instant(asked["to"]))
        return tk.Receipts.from_frame(rows)

    def _unpriced(self, request: httpx.Request) -> httpx.Response:
        found = tk.unpriced(tk.Receipts.from_frame(self.receipts))
        renamed = found.rename({"requests": "calls", "first": "first_seen", "last": "last_seen"})
        rows = renamed.rows(named=True)
        for row in rows:
            row.update({name: instant_text(row[name]) for name in ("first_seen", "last_seen")})
        return _page(request, rows)

    def _receipts(self, request: httpx.Request) -> httpx.Response:
        asked = _query(request)
        rows = self._asked_for(asked).frame.collect()
        if "status" in asked:
            rows = rows.filter(pl.col("status") == asked["status"])
        return _page(request, [_shown(row) for row in rows.reverse().rows(named=True)], size=50)

    def _customers_summary(self, request: httpx.Request) -> httpx.Response:
        period = _query(request)["period"]
        found = tk.spend(tk.Receipts.from_frame(self.receipts), window=period_of(period).window)
        return _json(
            {"period": period, "customers": found.drop_nulls("customer").filter(period=period).height}
        )

    def _refusals(self, request: httpx.Request, cap_id: str) -> httpx.Response:
        since = self.caps[int(cap_id)]["armed_at"]
        mine = self.receipts.filter(pl.col("status") == "refused", pl.col("cap_id") == int(cap_id))
        if since is not None:
            mine = mine.filter(pl.col("admitted_at") >= parse_instant(since))
        return _json({"cap_id": int(cap_id), "since": since, "requests": mine.height})

    def _create(self, request: httpx.Request) -> httpx.Response:
        return _json(self._new_cap(json.loads(request.content)), 201)

    def _patch(self, request: httpx.Request, cap_id: str) -> httpx.Response:
        return self._guarded(
            request,
            cap_id,
            lambda cap: self._set(cap, "cap.update", None, **_limited(json.loads(request.content))),
        )

    def _delete(self, request: httpx.Request, cap_id: str) -> httpx.Response:
        found = self._guarded(request, cap_id, lambda cap: cap)
        if found.is_success:
            self._log("cap.delete", f"cap:{cap_id}", self.caps.pop(int(cap_id)), None)
            return httpx.Response(204)
        return found

    def _arm(self, request: httpx.Request, cap_id: str) -> httpx.Response:
        reason = json.loads(request.content)["reason"]
        if not reason.strip():
            return _error(422, "invalid_request", "Arming a cap needs a reason.")
        at = instant_text(self.now)
        return self._guarded(
            request, cap_id, lambda cap: self._set(cap, "cap.arm", reason, hard_stop=True, armed_at=at)
        )

    def _disarm(self, request: httpx.Request, cap_id: str) -> httpx.Response:
        cap = self.caps.get(int(cap_id))
        if cap is None:
            return _error(404, "not_found", f"There is no cap {cap_id}.")
        if cap["hard_stop"]:
            cap = self._set(cap, "cap.disarm", None, hard_stop=False, armed_at=None)
        return _json(cap)

    def _guarded(self, request: httpx.Request, cap_id: str, change: Callable[[Json], Json]) -> httpx.Response:
        cap = self.caps.get(int(cap_id))
        version = request.headers.get("if-match")
        if cap is None:
            return _error(404, "not_found", f"There is no cap {cap_id}.")
        if version is None:
            return _error(428, "version_required", "Send If-Match.")
        if int(version.strip('"')) != cap["version"]:
            return _error(409, "version_conflict", f"The cap is at version {cap['version']}, not {version}.")
        return _json(change(cap))

    def _customers(self, request: httpx.Request) -> httpx.Response:
        rows = self._asked_for(_query(request)).frame.collect()
        names = rows["customer"].drop_nulls().unique(maintain_order=True)
        return _page(
            request, [{"customer": name, "customer_ref": reference(name)} for name in names], size=500
        )

    def _receipt(self, request: httpx.Request, receipt_id: str) -> httpx.Response:
        found = self.receipts.filter(pl.col("receipt_id") == receipt_id)
        if found.is_empty():
            return _error(404, "not_found", "There is no such receipt.")
        row = _shown(found.row(0, named=True))
        return _json({**row, "trace": self.traces.get(receipt_id, [])})

    def _new_cap(self, fields: Mapping[str, Any]) -> Json:
        at = instant_text(self.now)
        cap: Json = {
            "id": max(self.caps, default=0) + 1,
            "name": "",
            "match": {"provider": None, "model": None, "tag": None},
            "limit_usd": None,
            "limit_nano_usd": None,
            "token_limit": None,
            "request_limit": None,
            "hard_stop": False,
            "admission": "reserve",
            "on_reach": "stop",
            "unpriced": "refuse",
            "refusal_status": 402,
            "alert_percents": [],
            "version": 1,
            "created_at": at,
            "updated_at": at,
            "updated_by": "admin",
            "armed_at": None,
            **_limited(fields),
        }
        self.caps[cap["id"]] = cap
        self._log("cap.create", f"cap:{cap['id']}", None, cap)
        return cap

    def _set(self, cap: Json, action: str, reason: str | None, **fields: Any) -> Json:
        after = {**cap, **fields, "version": cap["version"] + 1, "updated_at": instant_text(self.now)}
        self.caps[cap["id"]] = after
        self._log(action, f"cap:{cap['id']}", cap, after, reason)
        return after

    def _log(
        self, action: str, changed: str, before: Json | None, after: Json | None, reason: str | None = None
    ) -> None:
        self.audit.append(
            {
                "at": instant_text(self.now),
                "actor": "admin",
                "action": action,
                "object": changed,
                "before": before,
                "after": after,
                "reason": reason,
            }
        )


def reference(customer: str) -> str:
    """The `customer_ref` of a value under the fake organization's secret."""
    return hmac.new(b"secret", customer.encode(), hashlib.sha256).hexdigest()[:16]


def parquet(rows: pl.DataFrame, next_seq: int, *, forged_rows: int = 0) -> bytes:
    """Rows as the ledger export writes them, proof included; `forged_rows` makes the footer count wrong."""
    rows = rows.with_columns(row_hash=pl.col("row_hash").fill_null("0" * 64), prev_hash=pl.lit("0" * 64))
    text = "".join(f"{row_hash}\n" for row_hash in rows["row_hash"])
    footer = {
        "rows": rows.height + forged_rows,
        "cost_nano_usd": int(rows["cost_nano_usd"].cast(pl.Int128).sum()),
        "counted_nano_usd": int(rows["counted_nano_usd"].cast(pl.Int128).sum()),
        "next_seq": str(next_seq),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    header = {"recipe": RECIPE, "chains": [], "price_lists": [], "from": None, "to": None, "complete": False}
    out = io.BytesIO()
    metadata = {"capline.header": json.dumps(header), "capline.footer": json.dumps(footer)}
    rows.write_parquet(out, metadata=metadata)
    return out.getvalue()


def _shown(row: Json) -> Json:
    """A receipt as JSON."""
    return {**row, **{name: instant_text(row[name]) for name in ("admitted_at", "settled_at")}}


def _limited(fields: Mapping[str, Any]) -> Json:
    """Fields with `limit_nano_usd` beside `limit_usd`, as the gateway keeps them."""
    limit = fields.get("limit_usd")
    if limit is None:
        return dict(fields)
    nano = parse_usd(limit)
    return {**fields, "limit_usd": limit_text(nano), "limit_nano_usd": int(nano)}


def _page(request: httpx.Request, items: list[Json], size: int = PAGE) -> httpx.Response:
    start = int(_query(request).get("cursor", "0"))
    more = start + size < len(items)
    return _json({"items": items[start : start + size], "next_cursor": str(start + size) if more else None})


def _query(request: httpx.Request) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(request.url.query.decode()).items()}


def _json(payload: Json, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=payload)


def _error(status: int, code: str, message: str) -> httpx.Response:
    return httpx.Response(
        status, json={"error": {"code": code, "message": message, "type": "x", "param": None}}
    )
