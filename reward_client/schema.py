"""What goes to the judge and what comes back.

Guarantees: an endpoint's key never shows in `repr`, in JSON or in a validation error, and is safe to put in a header;
a verdict's numbers are finite and lie in [0, 1].
Not covered: whether the endpoint exists (see `LLMJudge.preflight`).
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from foundation.redaction import keep_secret, redacted

Mode = Literal["pointwise", "pairwise", "groupwise"]
Winner = Literal["first", "second", "tie"]


class Wire(BaseModel):
    """Base of the types below: immutable, misspelt keys are errors, and an error never repeats its input."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def check_address(url: str, *, key_place: str) -> None:
    """Raises ValueError; its text does not repeat the address, which may hold a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address starts with http:// or https://, for example https://api.example.com")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"an address has no user name, password, ? or #: the key goes into {key_place}")


class JudgeEndpoint(Wire):
    """An OpenAI-compatible address, the key for it and the model to ask. `base_url` ends without a slash.

    `rpm` and `tpm` are its limits of requests and tokens a minute (0: those of the judge); prices are per million
    tokens, in any currency.
    """

    api_key: SecretStr
    base_url: str
    model: str = Field(min_length=1)
    rpm: int = Field(default=0, ge=0)
    tpm: int = Field(default=0, ge=0)
    prompt_price: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    completion_price: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        """A key with a line break or a non-ASCII character would make the HTTP layer fail with the key in its text."""
        keep_secret(key.get_secret_value())
        if not re.fullmatch(r"[!-~]+", key.get_secret_value()):
            raise ValueError("the key must be printable ASCII without spaces or line breaks (its value is not shown)")
        return key

    @field_validator("base_url")
    @classmethod
    def _normal_form(cls, url: str) -> str:
        """Add the version segment that people leave out, drop the route that they paste along."""
        url = url.strip().rstrip("/").removesuffix("/chat/completions").rstrip("/")
        check_address(url, key_place="the api_key alone")
        versioned = any(re.match(r"v\d", segment) for segment in urlsplit(url).path.split("/"))
        return url if versioned else f"{url}/v1"

    def __str__(self) -> str:
        return redacted(f"{self.model} at {self.base_url}")

    @property
    def id(self) -> str:
        """A short name without the key: the same in every process."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:16]

    def priced(self, used: Usage) -> Usage:
        """One call that used these tokens, with its cost in the currency of the prices."""
        cost = (used.prompt_tokens * self.prompt_price + used.completion_tokens * self.completion_price) / 1e6
        return used.model_copy(update={"calls": 1, "cost": cost})


class JudgeItem(Wire):
    """One answer to grade, with all that the judge needs to know. `reference` may be empty, `evidence` too."""

    question: str
    reference: str = ""
    evidence: list[str] = Field(default_factory=list)
    answer: str


class Reply(Wire):
    """Base of what a judge may say: text for a number is an error, further keys do no harm."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Criteria(Reply):
    """The judge's four scores, each in [0, 1]."""

    accuracy: float = Field(ge=0, le=1, allow_inf_nan=False)
    completeness: float = Field(ge=0, le=1, allow_inf_nan=False)
    clarity: float = Field(ge=0, le=1, allow_inf_nan=False)
    professionalism: float = Field(ge=0, le=1, allow_inf_nan=False)
    reason: str = ""


class Usage(Wire):
    """What verdicts cost. Tokens are those that the servers say they counted; 0 where they say nothing.

    `calls` counts all requests, failed and repeated ones too; `cache_hits` verdicts that needed none.
    """

    calls: int = Field(default=0, ge=0)
    cache_hits: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cost: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    def __add__(self, other: Usage) -> Usage:
        mine, theirs = vars(self), vars(other)
        return Usage.model_construct(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


class Budget(Wire):
    """The most that one run may spend on judging; 0 means no limit. `cost` is in the currency of the prices."""

    calls: int = Field(default=0, ge=0)
    tokens: int = Field(default=0, ge=0)
    cost: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class Verdict(Wire):
    """The judge's answer: `overall` in [0, 1] comes from `criteria` (see `parsing.overall`), `raw` is the reply.

    `gated`: why the answer got 0 without a call. `cached`: no call was needed. `answer_cut`: only its start was read.
    """

    criteria: Criteria
    overall: float = Field(ge=0, le=1, allow_inf_nan=False)
    explanation: str = ""
    raw: str = ""
    usage: Usage = Usage()
    model: str = ""
    answer_cut: bool = False
    gated: str = ""
    cached: bool = False


class PairVerdict(Wire):
    """Which of two answers is better, asked in both orders; `agreed` is False where the orders contradict (a tie)."""

    winner: Winner
    agreed: bool = True
    explanation: str = ""
    usage: Usage = Usage()


class GroupScore(Wire):
    """One answer of a group: a value in [0, 1], or the kind of fault in `unscored`."""

    value: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    unscored: str = ""
    explanation: str = ""


class GroupVerdict(Wire):
    """The answers of a group in the order given. `fell_back`: the ranking was unusable, each was graded alone."""

    scores: list[GroupScore]
    fell_back: bool = False
    usage: Usage = Usage()
