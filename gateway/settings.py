"""Every setting in one frozen object: environment over capline.toml over defaults; nothing unknown passes.

A misspelt setting would leave a gateway at its default without a word: it is an error that names the nearest.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import toolkit.core
from toolkit.core.conventions import ChatStyle
from toolkit.core.errors import CaplineError

DialectName = Literal["openai", "anthropic", "gemini"]
UndeclaredOutput = Literal["default", "model_max", "refuse"]
UsageConvention = Literal["azure", ChatStyle]
"""How a provider counts: a style of the OpenAI dialect, or Azure, which counts as OpenAI and bills otherwise."""

PREFIX = "CAPLINE_"
NOT_OURS = ("CAPLINE_REQUIRE_ALL", "CAPLINE_TEST_", "CAPLINE_CONSOLE_", "CAPLINE_GATEWAY_URL")
"""Names of the tests', the console's and the command line's variables, which are no settings of the gateway."""


class SettingsError(CaplineError, ValueError):
    """A setting that is unknown or cannot be used; says which, and what to write."""


def _prices_dir() -> Path:
    """The price lists of a wheel lie inside its package, those of a checkout in data/."""
    package = Path(toolkit.core.__file__).parents[1]
    packaged = package / "_data" / "prices"
    return packaged if packaged.is_dir() else package.parent / "data" / "prices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Where calls of one dialect go. `base_url` is the vendor's own, with the version path its SDKs use."""

    name: str
    dialect: DialectName
    base_url: str
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    prices: str
    """The provider's name in the price list."""
    usage: UsageConvention = "openai"
    """Its usage convention; read in the OpenAI dialect alone."""

    @property
    def usage_style(self) -> ChatStyle:
        """The style in which its counts are read."""
        return "openai" if self.usage == "azure" else self.usage

    @property
    def bills_refused_work(self) -> bool:
        """Whether it may bill a prompt that it answers with 400 or 408: Azure does, once it has processed it."""
        return self.usage == "azure"

    def url(self, target: str) -> str:
        """The provider's URL for a route of ours and its query; OpenAI's base URL already ends in the version path."""
        return self.base_url + (target.removeprefix("/v1") if self.dialect == "openai" else target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Effective settings of one gateway process (contract §4)."""

    database_url: str = field(default="sqlite:///var/capline.db", repr=False)
    """Where the ledger, the caps and the keys are kept."""
    counters_url: str = "memory://"
    """Where counters are kept; other stores come with a later release."""
    header_prefix: str = "x-capline"
    """What the names of our own headers begin with."""
    providers: tuple[Provider, ...] = ()
    """Configured providers; the first of a dialect takes its calls unless the model names another."""
    customer_bound: int = 10_000
    """Distinct customers a month under an armed customer cap before unseen ones are refused; 0 is off."""
    unverifiable_after_s: int = 60
    """How old the last good read of caps and counters may be before a capped call is refused."""
    node: str = "n1"
    """This process's name as a writer of the ledger."""
    hold_ttl_s: int = 900
    """The longest a call may run before it is recorded as abandoned; it never releases money."""
    default_max_output_tokens: int = 4096
    """The output bound of a request that declares none, never above the model's maximum."""
    undeclared_output: UndeclaredOutput = "default"
    """What an armed reserve cap makes of a request that declares no output limit."""
    max_body_bytes: int = 33_554_432
    """The largest request body that is read."""
    drain_s: int = 300
    """How long an answer is read on after its client left."""
    spool_dir: Path = Path("var/spool")
    """Where receipts wait while the database is away."""
    heads_file: Path | None = None
    """Where the heads of all chains are appended as they change."""
    heads_url: str | None = field(default=None, repr=False)
    """Where they are posted."""
    signing_key: Path | None = None
    """An Ed25519 private key in PEM that signs them."""
    admin_token: str | None = field(default=None, repr=False)
    """The owner's token; None: the file `admin_token` under `var_dir`, made at first start."""
    var_dir: Path = Path("var")
    """Where files of a running gateway are kept; set in code only."""
    prices_dir: Path = field(default_factory=_prices_dir)
    """Where the dated price lists lie."""
    operator_prices: Path | None = None
    """A price file of the operator's own rows, laid over every list from its date on."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8787
    """The port to listen on."""

    @classmethod
    def load(cls, environ: Mapping[str, str], toml: Path | None = None) -> Settings:
        """The settings of an environment and, where given, a capline.toml. Raises SettingsError."""
        table = {} if toml is None else _read_toml(toml)
        providers = _providers(environ, _table(table.pop("providers", {}), "providers"))
        known = {name: _from_toml(name, value) for name, value in table.items()}
        known.update(_from_environment(environ))
        parsed = {name: _parse(name, text) for name, text in known.items()}
        return cls(providers=providers, **parsed)

    def effective(self) -> dict[str, object]:
        """The settings as `serve --check` shows them: plain values, secrets hidden."""
        shown: dict[str, object] = {}
        for setting in fields(self):
            value = getattr(self, setting.name)
            shown[setting.name] = str(value) if isinstance(value, Path) else value
        shown["database_url"] = without_password(self.database_url)
        shown["counters_url"] = without_password(self.counters_url)
        shown["heads_url"] = None if self.heads_url is None else without_password(self.heads_url)
        shown["admin_token"] = None if self.admin_token is None else "(hidden)"
        shown["providers"] = [
            {
                "name": provider.name,
                "dialect": provider.dialect,
                "base_url": without_password(provider.base_url),
                "api_keys": f"{len(provider.api_keys)} (hidden)",
                "prices": provider.prices,
                "usage": provider.usage,
            }
            for provider in self.providers
        ]
        return shown


def without_password(url: str) -> str:
    """A URL as it may be shown: its password, where it has one, is replaced."""
    return re.sub(r"(?<=://)([^/@]*?):[^/]*@", r"\1:***@", url)


@dataclass(frozen=True, slots=True)
class _Vendor:
    name: str
    dialect: DialectName
    base_url: str
    prices: str

    @property
    def key_variable(self) -> str:
        return f"{self.name.upper()}_API_KEY"

    @property
    def url_variable(self) -> str:
        return f"{PREFIX}{self.name.upper()}_BASE_URL"


_VENDORS = (
    _Vendor("openai", "openai", "https://api.openai.com/v1", "openai"),
    _Vendor("anthropic", "anthropic", "https://api.anthropic.com", "anthropic"),
    _Vendor("gemini", "gemini", "https://generativelanguage.googleapis.com", "google"),
    _Vendor("openrouter", "openai", "https://openrouter.ai/api/v1", "openrouter"),
)
_PROVIDER_KEYS = ("dialect", "base_url", "api_keys", "prices", "usage")
_CONVENTIONS: tuple[UsageConvention, ...] = ("azure", *get_args(ChatStyle))
_CONVENTION_OF: Mapping[str, UsageConvention] = {"x-ai": "xai", **{name: name for name in _CONVENTIONS}}
"""Conventions of providers that are known by name."""
_PROVIDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


def _providers(environ: Mapping[str, str], tables: Mapping[str, Any]) -> tuple[Provider, ...]:
    """Those of the file in its order, then those that only a vendor's key in the environment turns on."""
    vendors = {vendor.name: vendor for vendor in _VENDORS}
    found = [
        _provider(name, _table(table, f"providers.{name}"), environ, vendors.get(name))
        for name, table in tables.items()
    ]
    found.extend(
        _provider(vendor.name, {}, environ, vendor)
        for vendor in _VENDORS
        if environ.get(vendor.key_variable) and vendor.name not in tables
    )
    return tuple(found)


def _provider(
    name: str, table: Mapping[str, Any], environ: Mapping[str, str], vendor: _Vendor | None
) -> Provider:
    where = f"providers.{name}"
    if _PROVIDER_NAME.fullmatch(name) is None:
        raise SettingsError(f"[{where}]: a provider's name is letters, digits, dot, dash and underscore")
    for key in table:
        if key not in _PROVIDER_KEYS:
            raise SettingsError(
                f"{where}.{key} is not a setting; the nearest is {_nearest(key, _PROVIDER_KEYS)}"
            )
    base_url = table.get("base_url", vendor.base_url if vendor else None)
    api_keys = table.get("api_keys", [])
    if vendor is not None:
        base_url = environ.get(vendor.url_variable) or base_url
        api_keys = [environ[vendor.key_variable]] if environ.get(vendor.key_variable) else api_keys
    if base_url is None:
        raise SettingsError(f'{where}.base_url is missing: write base_url = "https://…"')
    if not isinstance(api_keys, list) or not all(isinstance(key, str) and key.strip() for key in api_keys):
        raise SettingsError(f'{where}.api_keys is a list of texts: write api_keys = ["…"]')
    dialect = table.get("dialect", vendor.dialect if vendor else None)
    if dialect not in get_args(DialectName):
        raise SettingsError(f"{where}.dialect is one of {', '.join(get_args(DialectName))}")
    prices = table.get("prices", vendor.prices if vendor else name)
    if not isinstance(prices, str) or not prices:
        raise SettingsError(f"{where}.prices is the provider's name in the price list")
    usage = table.get("usage", _convention(name, prices))
    if usage not in _CONVENTIONS:
        raise SettingsError(f"{where}.usage is one of {', '.join(_CONVENTIONS)}")
    return Provider(
        name=name,
        dialect=dialect,
        base_url=_base_url(f"{where}.base_url", base_url),
        api_keys=tuple(key.strip() for key in api_keys),
        prices=prices,
        usage=usage,
    )


def _convention(name: str, prices: str) -> UsageConvention:
    """The convention that goes with a provider's name, or with whose prices it has."""
    known = [_CONVENTION_OF.get(word.lower(), "openai") for word in (prices, name)]
    return next((convention for convention in known if convention != "openai"), "openai")


def _base_url(where: str, url: object) -> str:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if (
        not isinstance(url, str)
        or parts is None
        or parts.scheme not in ("http", "https")
        or not parts.hostname
    ):
        raise SettingsError(f"{where} is an http:// or https:// URL")
    if parts.query or parts.fragment:
        raise SettingsError(f"{where} has a query or fragment; routes are appended to it")
    return url.rstrip("/")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path.name}: {error}") from error


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"[{where}] is a table")
    return value


def _from_toml(name: str, value: object) -> str:
    if name not in _PARSERS:
        raise SettingsError(
            f"{name} is not a setting; the nearest is {_nearest(name, (*_PARSERS, 'providers'))}"
        )
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise SettingsError(f"{name} is a text or a whole number")
    return str(value)


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    variables = {PREFIX + name.upper(): name for name in _PARSERS}
    urls = {vendor.url_variable for vendor in _VENDORS}
    found: dict[str, str] = {}
    for variable, text in environ.items():
        if variable in variables:
            found[variables[variable]] = text
        elif variable.startswith(PREFIX) and variable not in urls and not variable.startswith(NOT_OURS):
            raise SettingsError(
                f"{variable} is not a setting; the nearest is {_nearest(variable, (*variables, *urls))}"
            )
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


def _parse(name: str, text: str) -> Any:
    try:
        return _PARSERS[name](text)
    except ValueError as error:
        raise SettingsError(f"{PREFIX}{name.upper()}: {error}") from None


def _whole(least: int, most: int = 2**53) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise ValueError(f"write a whole number from {least} to {most}")
        return int(text)

    return parse


def _matching(pattern: str, words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if re.fullmatch(pattern, text, re.ASCII) is None:
            raise ValueError(words)
        return text

    return parse


def _undeclared(text: str) -> str:
    if text not in get_args(UndeclaredOutput):
        raise ValueError(f"write one of {', '.join(get_args(UndeclaredOutput))}")
    return text


def _counters(text: str) -> str:
    if text != "memory://":
        raise ValueError("counters outside this process come with a later release; write memory://")
    return text


def _token(text: str) -> str:
    if not text or not text.isascii() or any(letter.isspace() for letter in text):
        raise ValueError("an admin token is ASCII text without blanks")
    return text


def _heads_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write an http:// or https:// URL")
    return text


def _path(text: str) -> Path:
    if not text:
        raise ValueError("write a path")
    return Path(text)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "database_url": _matching(r"[a-z0-9+]+:///?.+", "write a URL such as sqlite:///var/capline.db"),
    "counters_url": _counters,
    "header_prefix": _matching(
        r"[a-z][a-z0-9]*(-[a-z0-9]+)*",
        "write lower-case letters, digits and single dashes, such as x-capline",
    ),
    "customer_bound": _whole(0),
    "unverifiable_after_s": _whole(1),
    "node": _matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "write up to 64 letters, digits, dots, dashes"),
    "hold_ttl_s": _whole(1),
    "default_max_output_tokens": _whole(1),
    "undeclared_output": _undeclared,
    "max_body_bytes": _whole(1),
    "drain_s": _whole(0),
    "spool_dir": _path,
    "heads_file": _path,
    "heads_url": _heads_url,
    "signing_key": _path,
    "admin_token": _token,
    "prices_dir": _path,
    "operator_prices": _path,
    "host": _matching(r"[^\s/]+", "write an address such as 127.0.0.1"),
    "port": _whole(0, 65_535),
}
