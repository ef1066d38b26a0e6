"""Who may do what at the operator's plane: a Bearer token or key, and the role it stands for (contract §12)."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from gateway.changes import Actor, ControlError
from gateway.control import ONLY_OWNERS_AND_ADMINS
from gateway.control_ledger import ONLY_OWNERS_AND_ADMINS_DROP
from gateway.control_receipts import ONLY_OWNERS_AND_ADMINS_CORRECT
from gateway.policy import CHANGES_CAPS, ROLES, SEES_CAPS, PolicyHolder, digest
from gateway.stores.database import DEFAULT_ORGANIZATION

ADMIN = "admin-token"
"""How the audit trail names whoever holds the admin token."""

_BEARER = HTTPBearer(auto_error=False, description="The admin token, or a key that has a role.")


class Guard:
    """Tells who asks, and lets pass by role. Its members are dependencies of routes."""

    def __init__(self, policy: PolicyHolder) -> None:
        self._policy = policy
        self.any_role = self._open_to(frozenset(ROLES), "This role may not see this.")
        self.sees_caps = self._open_to(SEES_CAPS, "The billing role sees spend and no caps.")
        self.changes_caps = self._open_to(CHANGES_CAPS, ONLY_OWNERS_AND_ADMINS)
        self.corrects = self._open_to(CHANGES_CAPS, ONLY_OWNERS_AND_ADMINS_CORRECT)
        self.drops = self._open_to(CHANGES_CAPS, ONLY_OWNERS_AND_ADMINS_DROP)
        self.changes_keys = self._open_to(CHANGES_CAPS, "Only owners and admins can change keys.")

    def identify(self, secret: str | None) -> Actor:
        """The actor behind a Bearer secret. Raises ControlError for nobody, and for a key without a role."""
        policy = self._policy.current
        hashed = digest(secret or "")
        if secret and policy.admin_token_hash and hmac.compare_digest(hashed, policy.admin_token_hash):
            return Actor(name=ADMIN, organization=DEFAULT_ORGANIZATION, role="owner")
        key = policy.keys.get(hashed)
        if key is None:
            raise ControlError(
                "invalid_api_key", "Send the admin token or an operator key as a Bearer token."
            )
        if key.role is None:
            raise ControlError(
                "permission_denied", "A key without a role may use the data plane and nothing else."
            )
        return Actor(name=key.key_id, organization=key.organization, role=key.role)

    def _open_to(self, roles: frozenset[str], forbidden: str) -> Callable[..., Coroutine[Any, Any, Actor]]:
        async def check(sent: HTTPAuthorizationCredentials | None = Depends(_BEARER)) -> Actor:
            actor = self.identify(None if sent is None else sent.credentials)
            if actor.role not in roles:
                raise ControlError("permission_denied", forbidden)
            return actor

        return check
