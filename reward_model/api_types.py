"""What goes over the wire of the scoring API.

Guarantees: unknown keys, other types, over-long texts and unpaired surrogates are errors.
`score` is the raw logit; `reward` is the same in [0, 1] through the fitted scale, and null where there is none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

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


class ScoreRequest(Message):
    """POST /score. Texts are bounded per server; see `request_types`."""

    prompt: str
    response: str
    reference: str = ""


class PairRequest(Message):
    """POST /score-pair."""

    prompt: str
    chosen: str
    rejected: str
    reference: str = ""


class BatchRequest(Message):
    """POST /score-batch."""

    items: list[ScoreRequest]


def request_types(
    *, max_chars: int, max_items: int
) -> tuple[type[ScoreRequest], type[PairRequest], type[BatchRequest]]:
    """The request types with a server's limits, which then stand in its OpenAPI too."""
    text = Annotated[str, Field(max_length=max_chars)]
    known = Annotated[
        str, Field(max_length=max_chars, description="reference answer, shown to the model after the prompt")
    ]
    single = create_model("ScoreRequest", __base__=ScoreRequest, prompt=text, response=text, reference=(known, ""))
    pair = create_model(
        "PairRequest", __base__=PairRequest, prompt=text, chosen=text, rejected=text, reference=(known, "")
    )
    items: Any = Annotated[list[single], Field(min_length=1, max_length=max_items)]
    return single, pair, create_model("BatchRequest", __base__=BatchRequest, items=items)
