"""Customers by reference: a URL never carries a customer's value, so it is found again by its reference."""

from __future__ import annotations

import threading

from sqlalchemy import Engine, select

from gateway.stores.records import customer_ref, organization_secret
from gateway.stores.rollups import rollups


class CustomerRefs:
    """References of customers, made with their organization's secret. It reads in any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._secrets: dict[str, bytes] = {}
        self._values: dict[tuple[str, str], str] = {}

    def ref(self, organization: str, customer: str | None) -> str | None:
        """The reference of a customer."""
        return None if customer is None else customer_ref(customer, self._secret(organization))

    def value(self, organization: str, ref: str) -> str | None:
        """The customer behind a reference, None when nobody of that reference left a receipt."""
        if (organization, ref) not in self._values:
            self._learn(organization)
        return self._values.get((organization, ref))

    def _learn(self, organization: str) -> None:
        secret = self._secret(organization)
        query = select(rollups.c.customer).distinct()
        mine = (rollups.c.organization == organization, rollups.c.customer.is_not(None))
        with self._engine.connect() as connection:
            found = connection.execute(query.where(*mine)).scalars().all()
        learned = {(organization, customer_ref(customer, secret)): customer for customer in found}
        with self._lock:
            self._values.update(learned)

    def _secret(self, organization: str) -> bytes:
        if organization not in self._secrets:
            with self._engine.connect() as connection:
                self._secrets[organization] = organization_secret(connection, organization)
        return self._secrets[organization]
