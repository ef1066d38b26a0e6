"""`capline key`: make, list, rotate and revoke API keys."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from console.commands.connection import Api, add_gateway, connect
from console.commands.terminal import (
    DONE,
    CannotDo,
    Commands,
    Parser,
    add_json,
    command,
    family,
    print_json,
    print_table,
    say,
)

ROLES = ("owner", "admin", "member", "viewer", "billing")


def add(commands: Commands) -> None:
    """Add the family of commands."""
    keys = family(commands, "key", "API keys of the gateway")
    create = command(keys, "create", _create, "make a key; its secret is shown this once")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--project", help="the project that the key's spend counts in")
    create.add_argument("--role", choices=ROLES, help="makes an operator key, which makes no calls to models")
    create.add_argument("--require-customer", action="store_true", help="refuse calls that name no customer")
    listed = command(keys, "list", _list, "list the keys")
    rotate = command(
        keys, "rotate", _rotate, "give a key a new secret; the old one ends at once, the spend stays"
    )
    revoke = command(keys, "revoke", _revoke, "end a key")
    for parser in (rotate, revoke):
        parser.add_argument("key", metavar="KEY", help="the key's id, or its name where only one has it")
    for parser in (create, listed, rotate, revoke):
        _finish(parser)


def _finish(parser: Parser) -> None:
    add_gateway(parser)
    add_json(parser)


def _create(chosen: argparse.Namespace) -> int:
    wanted = {
        "name": chosen.name,
        "project": chosen.project,
        "role": chosen.role,
        "require_customer": chosen.require_customer,
    }
    with connect(chosen, may_create=True) as api:
        _show_secret(api.ask("POST", "/api/keys", wanted), chosen)
    return DONE


def _list(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        keys = list(api.items("/api/keys"))
    if chosen.json:
        print_json(keys)
        return DONE
    headings = ("id", "name", "project", "role", "customer", "secret", "made", "state")
    rows = (
        (
            key["id"],
            key["name"],
            key["project"],
            key["role"],
            "required" if key["require_customer"] else "optional",
            f"…{key['hint']}",
            key["created_at"][:10],
            f"revoked {key['revoked_at'][:10]}" if key["revoked_at"] else "in use",
        )
        for key in keys
    )
    print_table(headings, rows)
    return DONE


def _rotate(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        key = _find(api, chosen.key)
        _show_secret(api.ask("POST", f"/api/keys/{key['id']}/rotate"), chosen)
    return DONE


def _revoke(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        key = _find(api, chosen.key)
        api.ask("DELETE", f"/api/keys/{key['id']}")
    if chosen.json:
        print_json({"id": key["id"], "revoked": True})
    else:
        say(f"{key['id']} ({key['name']}) is revoked.")
    return DONE


def _find(api: Api, wanted: str) -> dict[str, Any]:
    """The key of an id, or the one key in use of a name."""
    keys = list(api.items("/api/keys"))
    for key in keys:
        if key["id"] == wanted:
            return key
    named = [key for key in keys if key["name"] == wanted and key["revoked_at"] is None]
    if len(named) == 1:
        return named[0]
    if named:
        raise CannotDo(
            f"{len(named)} keys are called {wanted!r}: {', '.join(key['id'] for key in named)}; give the id"
        )
    raise CannotDo(f"there is no key {wanted!r}; `capline key list` shows those there are")


def _show_secret(key: dict[str, Any], chosen: argparse.Namespace) -> None:
    """The secret alone goes to standard output, so that a script may take it."""
    if chosen.json:
        print_json(key)
        return
    say(f"{key['id']} ({key['name']}); keep the secret now, it is not shown again:")
    sys.stdout.write(f"{key['key']}\n")
