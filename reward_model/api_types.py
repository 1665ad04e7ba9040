"""What goes over the wire of the scoring API.

Guarantees: unknown keys, other types, over-long texts and unpaired surrogates are errors.
`score` is the raw logit; `reward` is the same in [0, 1] through the fitted scale, and null where there is none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from reward_model.pairs import Item

RAW = "raw logit of the model: its zero and unit are arbitrary, so it must not be added to a bonus"
REWARD = "the score mapped to [0, 1]; null without a fitted scale, or where the scale needs a reference and none came"
TRUNCATED = "true when a text was cut to fit the model"


class Message(BaseModel):
    """Base of all messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


class Score(Message):
    """One scored response."""

    score: float = Field(description=RAW)
    reward: float | None = Field(ge=0, le=1, description=REWARD)
    truncated: bool = Field(description=TRUNCATED)


class PairScore(Message):
    """Two scored responses to one prompt."""

    chosen_score: float = Field(description=RAW)
    rejected_score: float = Field(description=RAW)
    preference: Literal["chosen", "rejected", "tie"] = Field(description="the side with the higher score")
    score_diff: float = Field(description="chosen_score - rejected_score")
    chosen_reward: float | None = Field(ge=0, le=1, description=REWARD)
    rejected_reward: float | None = Field(ge=0, le=1, description=REWARD)
    truncated: bool = Field(description=TRUNCATED)


class BatchScore(Message):
    """The scores of a batch, in the order of its items."""

    results: list[Score]


class ScaleInfo(Message):
    """What the rewards rest on."""

    n_rows: int
    needs_reference: bool
    mean_error: float = Field(description="mean distance of reward and label on the set it was fitted on")


class Info(Message):
    """GET /: the server is up, and what it serves."""

    status: Literal["ok"] = "ok"
    model: str = Field(description="name of the model folder")
    weights_sha256: str
    scale: ScaleInfo | None = Field(description="null: scores are raw logits only")
    max_tokens: int
    max_items: int
    max_chars: int


class Health(Message):
    """GET /healthz."""

    status: Literal["ok"] = "ok"


class Ready(Message):
    """GET /readyz."""

    status: Literal["ready"] = "ready"
    queued: int = Field(ge=0, description="items that wait for the model")


class Problem(Message):
    """Every error: what is wrong and what helps."""

    detail: str


# The keys of all requests.
REQUEST_KEYS = frozenset({"prompt", "response", "reference", "chosen", "rejected", "items"})


def request_types(*, max_chars: int, max_items: int) -> tuple[Any, Any, Any]:
    """The bodies of /score, /score-pair and /score-batch with a server's limits, which then stand in its OpenAPI."""
    text = Annotated[str, Field(max_length=max_chars)]
    known = Field(default="", max_length=max_chars, description="reference answer, shown to the model after the prompt")
    reference = (str, known)
    single = create_model("ScoreRequest", __base__=Item, prompt=text, response=text, reference=reference)
    pair = create_model("PairRequest", __base__=Message, prompt=text, chosen=text, rejected=text, reference=reference)
    items: Any = Annotated[list[single], Field(min_length=1, max_length=max_items)]
    return single, pair, create_model("BatchRequest", __base__=Message, items=items)
