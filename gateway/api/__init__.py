"""The operator's plane: typed routes over caps, keys, reports and the ledger, and the process's health."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.api.audit import audit_router
from gateway.api.caps import caps_router
from gateway.api.customers import customers_router
from gateway.api.docs import docs_router
from gateway.api.export import export_router
from gateway.api.health import health_router
from gateway.api.keys import keys_router
from gateway.api.ledger import ledger_router
from gateway.api.parts import Operator, Started
from gateway.api.receipts import receipts_router
from gateway.api.reports import reports_router
from gateway.api.security import Guard
from gateway.stores.customers import CustomerRefs

__all__ = ["build_api"]


def build_api(started: Started) -> APIRouter:
    """Every route of the operator's plane. Include it last: its last route answers whatever no other did."""
    parts = Operator.of(started)
    guard = Guard(parts.policy)
    refs = CustomerRefs(parts.engine)
    api = APIRouter()
    for router in (
        caps_router(parts, guard),
        keys_router(parts, guard),
        reports_router(parts, guard, refs),
        customers_router(parts, guard, refs),
        receipts_router(parts, guard, refs),
        audit_router(parts, guard),
        ledger_router(parts, guard),
        export_router(parts, guard),
        health_router(parts),
        docs_router(),
    ):
        api.include_router(router)
    return api
