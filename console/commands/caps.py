"""`capline cap`: list, set, arm, disarm and delete spending caps. The fields are those of the API."""

from __future__ import annotations

import argparse
from typing import Any, get_args

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
from console.formatting import cap_usd
from toolkit.captext import GRAMMAR, parse_cap_text
from toolkit.core.caps import REFUSAL_STATUSES, Admission, OnReach, UnpricedPolicy
from toolkit.core.money import limit_text
from toolkit.core.scopes import SCOPES
from toolkit.core.windows import WINDOWS

NO_LIMIT = "none"
_MATCHES = ("provider", "model", "tag")
_PLAIN_FIELDS = (
    "name",
    "scope",
    "subject",
    "window",
    "limit_usd",
    "token_limit",
    "request_limit",
    "admission",
    "on_reach",
    "unpriced",
    "refusal_status",
    "alert_percents",
)


def add(commands: Commands) -> None:
    """Add the family of commands."""
    caps = family(commands, "cap", "spending caps")
    listed = command(caps, "list", _list, "list the caps")
    changed = command(caps, "set", _set, "make a watching cap, or change the one with an id")
    changed.add_argument(
        "what", metavar="ID|RULE", nargs="?", help=f"the cap to change, or a new one as {GRAMMAR}"
    )
    _add_fields(changed)
    arm = command(caps, "arm", _arm, "turn a cap's hard stop on")
    arm.add_argument("--reason", required=True, help="why, for the audit trail")
    disarm = command(caps, "disarm", _disarm, "turn a cap's hard stop off")
    disarm.add_argument("--reason", help="why, for the audit trail")
    delete = command(caps, "delete", _delete, "lift a cap; what was spent under it is kept")
    for parser in (arm, disarm, delete):
        parser.add_argument("id", metavar="ID", type=int)
    for parser in (arm, delete, changed):
        parser.add_argument("--version", type=int, help="do it only if the cap is still at this version")
    for parser in (listed, changed, arm, disarm, delete):
        add_gateway(parser)
        add_json(parser)


def _add_fields(parser: Parser) -> None:
    absent = argparse.SUPPRESS
    parser.add_argument("--name", default=absent)
    parser.add_argument("--scope", choices=SCOPES, default=absent)
    parser.add_argument("--subject", default=absent, help="an id, or * for each one separately")
    parser.add_argument("--window", choices=WINDOWS, default=absent)
    parser.add_argument(
        "--limit-usd", default=absent, metavar="USD", help=f"such as 20.00; {NO_LIMIT} for no limit"
    )
    for axis in ("token", "request"):
        parser.add_argument(
            f"--{axis}-limit", type=_count, default=absent, metavar="N", help=f"or {NO_LIMIT}"
        )
    for part in _MATCHES:
        parser.add_argument(
            f"--match-{part}", default=absent, metavar="VALUE", help=f"a value, * for each, or {NO_LIMIT}"
        )
    parser.add_argument("--admission", choices=get_args(Admission), default=absent)
    parser.add_argument("--on-reach", choices=get_args(OnReach), default=absent)
    parser.add_argument("--unpriced", choices=get_args(UnpricedPolicy), default=absent)
    parser.add_argument("--refusal-status", choices=REFUSAL_STATUSES, type=int, default=absent)
    parser.add_argument("--alert-percents", type=_percents, default=absent, metavar="N,N")


def _list(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        caps = list(api.items("/api/caps"))
    if chosen.json:
        print_json(caps)
        return DONE
    print_table(
        ("id", "name", "for", "window", ">limit", "admission", "state", "version", "changed", "by"),
        (
            (
                str(cap["id"]),
                cap["name"],
                _whom(cap),
                cap["window"],
                _limits(cap),
                cap["admission"],
                _state(cap),
                str(cap["version"]),
                cap["updated_at"][:10],
                cap["updated_by"],
            )
            for cap in caps
        ),
    )
    return DONE


def _set(chosen: argparse.Namespace) -> int:
    cap_id, fields = _wanted(chosen)
    given = vars(chosen)
    narrowed = {part: _unless_none(given[f"match_{part}"]) for part in _MATCHES if f"match_{part}" in given}
    with connect(chosen, may_create=cap_id is None) as api:
        if cap_id is None:
            missing = [f"--{name}" for name in ("scope", "window") if name not in fields]
            if missing:
                raise CannotDo(f"a new cap needs {' and '.join(missing)}; to change one, give its id")
            cap = api.ask("POST", "/api/caps", {**fields, **({"match": narrowed} if narrowed else {})})
        else:
            before = _read(api, cap_id)
            if narrowed:
                fields["match"] = {**before["match"], **narrowed}
            if not fields:
                raise CannotDo(f"nothing to change in cap {cap_id}; give a field such as --limit-usd 30")
            cap = api.ask("PATCH", f"/api/caps/{cap_id}", fields, version=_version(chosen, before))
    return _changed(chosen, cap)


def _wanted(chosen: argparse.Namespace) -> tuple[int | None, dict[str, Any]]:
    """(the id of the cap to change, None for a new one; its fields)."""
    fields = {name: text for name, text in vars(chosen).items() if name in _PLAIN_FIELDS}
    if fields.get("limit_usd") == NO_LIMIT:
        fields["limit_usd"] = None
    if chosen.what is None:
        return None, fields
    if chosen.what.isascii() and chosen.what.isdecimal():
        return int(chosen.what), fields
    rule = parse_cap_text(chosen.what)
    assert rule.limit_nano_usd is not None, "the grammar has an amount"
    limit = limit_text(rule.limit_nano_usd)
    names = ("scope", "subject", "window", "admission")
    return None, {**{name: getattr(rule, name) for name in names}, "limit_usd": limit, **fields}


def _arm(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        version = _version(chosen, _read(api, chosen.id))
        cap = api.ask("POST", f"/api/caps/{chosen.id}/arm", {"reason": chosen.reason}, version=version)
    return _changed(chosen, cap)


def _disarm(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        cap = api.ask("POST", f"/api/caps/{chosen.id}/disarm", {"reason": chosen.reason})
    return _changed(chosen, cap)


def _delete(chosen: argparse.Namespace) -> int:
    with connect(chosen) as api:
        version = _version(chosen, _read(api, chosen.id))
        api.ask("DELETE", f"/api/caps/{chosen.id}", version=version)
    if chosen.json:
        print_json({"id": chosen.id, "deleted": True})
    else:
        say(f"Cap {chosen.id} is deleted; what was spent under it is kept.")
    return DONE


def _read(api: Api, cap_id: int) -> dict[str, Any]:
    return api.ask("GET", f"/api/caps/{cap_id}")


def _version(chosen: argparse.Namespace, cap: dict[str, Any]) -> int:
    """The version to change: the one that the caller has seen, else the one there is."""
    version: int = cap["version"] if chosen.version is None else chosen.version
    return version


def _changed(chosen: argparse.Namespace, cap: dict[str, Any]) -> int:
    if chosen.json:
        print_json(cap)
    else:
        rule = f"{_whom(cap)}, {_limits(cap)} a {cap['window']}"
        say(f"Cap {cap['id']} (version {cap['version']}): {rule}, {_state(cap)}.")
    return DONE


def _whom(cap: dict[str, Any]) -> str:
    """Whom a cap is over, as the what-if writes it."""
    narrowed = [f"{part} {cap['match'][part]}" for part in _MATCHES if cap["match"][part] is not None]
    return " ".join((f"{cap['scope']}:{cap['subject']}", *narrowed))


def _limits(cap: dict[str, Any]) -> str:
    limits = [] if cap["limit_nano_usd"] is None else [cap_usd(cap["limit_nano_usd"])]
    for axis in ("token", "request"):
        if cap[f"{axis}_limit"] is not None:
            limits.append(f"{cap[f'{axis}_limit']:,} {axis}s")
    return ", ".join(limits)


def _state(cap: dict[str, Any]) -> str:
    return "armed" if cap["hard_stop"] else "watching"


def _unless_none(text: str) -> str | None:
    return None if text == NO_LIMIT else text


def _count(text: str) -> int | None:
    if text == NO_LIMIT:
        return None
    return _whole(text)


def _percents(text: str) -> list[int]:
    return [_whole(part) for part in text.split(",")]


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
