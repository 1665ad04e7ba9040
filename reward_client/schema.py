"""What goes to the judge and what comes back.

Guarantees: an endpoint's key never shows in `repr`, in JSON or in a validation error, and is safe to put in a header;
a verdict's numbers are finite and lie in [0, 1].
Not covered: whether the endpoint exists (see `LLMJudge.preflight`).
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails

ENV_NAMES = {"api_key": "TEACHER_API_KEY", "model": "TEACHER_MODEL", "base_url": "TEACHER_BASE_URL"}


class Wire(BaseModel):
    """Base of the types below: immutable, misspelt keys are errors, and an error never repeats its input."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class JudgeEndpoint(Wire):
    """An OpenAI-compatible address, the key for it and the model to ask. `base_url` ends without a slash."""

    api_key: SecretStr
    base_url: str
    model: str = Field(min_length=1)

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        """A key with a line break or a non-ASCII character would make the HTTP layer fail with the key in its text."""
        if not re.fullmatch(r"[!-~]+", key.get_secret_value()):
            raise ValueError("the key must be printable ASCII without spaces or line breaks (its value is not shown)")
        return key

    @field_validator("base_url")
    @classmethod
    def _normal_form(cls, url: str) -> str:
        """Add the version segment that people leave out, drop the route that they paste along."""
        url = url.strip().rstrip("/").removesuffix("/chat/completions").rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an address starts with http:// or https://, for example https://api.example.com/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("an address has no user name, password, ? or #: the key goes into the api_key alone")
        versioned = any(re.match(r"v\d", segment) for segment in parts.path.split("/"))
        return url if versioned else f"{url}/v1"

    def __str__(self) -> str:
        return f"{self.model} at {self.base_url}"


class JudgeItem(Wire):
    """One answer to grade, with all that the judge needs to know. `reference` may be empty, `evidence` too."""

    question: str
    reference: str = ""
    evidence: list[str] = Field(default_factory=list)
    answer: str


class Criteria(Wire):
    """The judge's four scores, each in [0, 1]. Strict: text, booleans, NaN and infinity are errors."""

    model_config = ConfigDict(extra="ignore", strict=True)

    accuracy: float = Field(ge=0, le=1, allow_inf_nan=False)
    completeness: float = Field(ge=0, le=1, allow_inf_nan=False)
    clarity: float = Field(ge=0, le=1, allow_inf_nan=False)
    professionalism: float = Field(ge=0, le=1, allow_inf_nan=False)
    reason: str = ""


class Usage(Wire):
    """Tokens that the server says it counted; 0 where it says nothing."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Verdict(Wire):
    """The judge's answer: `overall` in [0, 1] comes from `criteria` (see `judge.overall`), `raw` is the reply."""

    criteria: Criteria
    overall: float = Field(ge=0, le=1, allow_inf_nan=False)
    explanation: str = ""
    raw: str = ""
    usage: Usage = Usage()
    model: str = ""
    answer_cut: bool = False


def endpoint_from_env() -> JudgeEndpoint | None:
    """The judge that TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL name; None when none of them is set.

    Raises ValueError when only some are set, or one is malformed; its text names the variables and never shows the key.
    """
    values = {field: os.environ.get(name, "").strip() for field, name in ENV_NAMES.items()}
    missing = [ENV_NAMES[field] for field, value in values.items() if not value]
    if len(missing) == len(values):
        return None
    if missing:
        present = ", ".join(sorted(set(ENV_NAMES.values()) - set(missing)))
        raise ValueError(
            f"{', '.join(missing)} not set, but {present} set: the LLM judge needs all three. "
            "Set the rest in .env, or unset all three to use the offline reference judge"
        )
    try:
        return JudgeEndpoint(api_key=SecretStr(values["api_key"]), base_url=values["base_url"], model=values["model"])
    except ValidationError as exc:
        raise ValueError("; ".join(_explain(error, values) for error in exc.errors())) from None


def _explain(error: ErrorDetails, values: dict[str, str]) -> str:
    field = str(error["loc"][0])
    shown = "" if field == "api_key" or "@" in values[field] else f" = {values[field]!r}"
    return f"{ENV_NAMES[field]}{shown}: {error['msg'].removeprefix('Value error, ')}"
