"""What the operator's API takes and gives. Money is integers and text, never a float; an unknown field is refused."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from gateway.policy import Role
from toolkit.core.caps import Admission, Match, UnpricedPolicy
from toolkit.core.money import parse_usd
from toolkit.core.receipts import usage_of_row
from toolkit.core.scopes import Scope
from toolkit.core.usage import Usage, UsageProblem, within_receipt
from toolkit.core.windows import Window

_T = TypeVar("_T")
LARGEST_COUNT = 2**53 - 1


def _nano_usd(value: object) -> object:
    """Dollars as decimal text, or a whole number of them, to nano-USD; a float has lost its decimals already."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError('write US dollars as decimal text, such as "20.00"')
    return parse_usd(str(value))


def _storable(text: str) -> str:
    if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in text):
        raise ValueError("the text holds characters that cannot be stored")
    return text


def _no_rolling(value: object) -> object:
    if isinstance(value, str) and value.startswith(("rolling:", "fixed:")):
        raise ValueError("rolling windows come with a later release; one of day, week, month, year, never")
    return value


def _no_degrade(value: object) -> object:
    if isinstance(value, dict):
        raise ValueError("degrading to another model comes with a later release; stop or pause")
    return value


Dollars = Annotated[
    int | None,
    BeforeValidator(_nano_usd),
    WithJsonSchema({"anyOf": [{"type": "string", "examples": ["20.00"]}, {"type": "null"}]}),
]
Text = Annotated[str, Field(max_length=128), AfterValidator(_storable)]
Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"\S"), AfterValidator(_storable)]
Project = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^,*]+$"), AfterValidator(_storable)]
MatchValue = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_storable)]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Reason = Annotated[str, Field(max_length=2_000), AfterValidator(_storable)]


class Strict(BaseModel):
    """A request's body: exact types, known fields."""

    model_config = ConfigDict(strict=True, extra="forbid")


class MatchIn(Strict):
    """What narrows a cap: a value filters, `*` splits by value, null leaves it shared."""

    provider: MatchValue | None = None
    model: MatchValue | None = None
    tag: MatchValue | None = None


class CapPatch(Strict):
    """The fields of a cap that can be changed; what is absent stays."""

    name: Text = ""
    scope: Scope = "customer"
    subject: Text = "*"
    match: MatchIn = MatchIn()
    window: Annotated[Window, BeforeValidator(_no_rolling)] = "month"
    limit_usd: Dollars = None
    token_limit: Count | None = None
    request_limit: Count | None = None
    admission: Admission = "reserve"
    on_reach: Annotated[Literal["stop", "pause"], BeforeValidator(_no_degrade)] = "stop"
    unpriced: UnpricedPolicy = "refuse"
    refusal_status: Literal[402, 403, 429] = 402
    alert_percents: Annotated[list[Annotated[int, Field(ge=1, le=1000)]], Field(max_length=16)] = []

    def fields(self) -> dict[str, Any]:
        """What was sent, as fields of the kernel's cap."""
        sent: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set}
        if "limit_usd" in sent:
            sent["limit_nano_usd"] = sent.pop("limit_usd")
        if "match" in sent:
            sent["match"] = Match(self.match.provider, self.match.model, self.match.tag)
        if "alert_percents" in sent:
            sent["alert_percents"] = tuple(self.alert_percents)
        return sent


class CapCreate(CapPatch):
    """A new cap. It is made watching; arming it is a step of its own."""

    scope: Scope
    window: Annotated[Window, BeforeValidator(_no_rolling)]


class Arming(Strict):
    """Why a cap is armed."""

    reason: Reason


class CapRefusals(BaseModel):
    """How many requests a cap has refused since it was armed; `since` is null for one that watches, then of all."""

    cap_id: int
    since: str | None
    requests: int


class Disarming(Strict):
    """Why a cap is disarmed, if someone wants to say."""

    reason: Reason | None = None


class KeyCreate(Strict):
    """A new key; without a role it can use the data plane and nothing else."""

    name: Name
    project: Project | None = None
    role: Role | None = None
    require_customer: bool = False


class KeyPatch(Strict):
    """The fields of a key that can be changed; what is absent stays."""

    name: Name = ""
    project: Project | None = None
    require_customer: bool = False

    def fields(self) -> dict[str, Any]:
        """What was sent."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class UsageIn(Strict):
    """What the provider billed, in a receipt's own columns: tokens per disjoint meter, and units by name."""

    input_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_5m_tokens: Count | None = None
    cache_write_1h_tokens: Count | None = None
    output_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    audio_input_tokens: Count | None = None
    audio_output_tokens: Count | None = None
    image_tokens: Count | None = None
    units: Annotated[
        dict[Name, Count | Annotated[str, Field(pattern=r"^\d{1,15}(\.\d{1,9})?$")]], Field(max_length=32)
    ] = {}

    @model_validator(mode="after")
    def _adds_up(self) -> UsageIn:
        usage = self.usage()
        if not usage.meters() and not usage.units:
            raise ValueError("state at least one meter or unit")
        if (usage.reasoning or 0) > (usage.output or 0):
            raise ValueError("reasoning_tokens are a part of output_tokens")
        if isinstance(within_receipt(usage), UsageProblem):
            raise ValueError("a receipt cannot carry counts of 2^53 or more")
        return self

    def usage(self) -> Usage:
        """The kernel's usage."""
        return usage_of_row(self.model_dump())


class Correction(Strict):
    """An operator's word on a call without a cost: what was billed, or the list that prices it, or both."""

    usage: UsageIn | None = None
    price_list: Name | None = None
    reason: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S"), AfterValidator(_storable)]

    @model_validator(mode="after")
    def _says_something(self) -> Correction:
        if self.usage is None and self.price_list is None:
            raise ValueError("send price_list, the id of a loaded list, or usage, what the provider billed")
        return self


class Page(BaseModel, Generic[_T]):
    """One page of a list; `next_cursor` is taken back as `cursor`, null at the end."""

    items: list[_T]
    next_cursor: str | None


class MatchOut(BaseModel):
    """What narrows a cap."""

    provider: str | None
    model: str | None
    tag: str | None


class CapOut(BaseModel):
    """A cap as stored."""

    id: int
    name: str
    scope: str
    subject: str
    match: MatchOut
    window: str
    limit_usd: str | None
    limit_nano_usd: int | None
    token_limit: int | None
    request_limit: int | None
    hard_stop: bool
    admission: str
    on_reach: str
    unpriced: str
    refusal_status: int
    alert_percents: list[int]
    version: int
    created_at: str
    updated_at: str
    updated_by: str
    armed_at: str | None


class KeyOut(BaseModel):
    """A key without its secret; `hint` is how that ends."""

    id: str
    name: str
    project: str | None
    role: str | None
    require_customer: bool
    hint: str
    created_at: str
    revoked_at: str | None


class KeyCreated(KeyOut):
    """A key with its secret, this once."""

    key: str


class AuditOut(BaseModel):
    """One change."""

    id: int
    at: str
    actor: str
    actor_name: str | None
    action: str
    object: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    reason: str | None
