"""Client of a reward model's scoring API: POST {base}/score {prompt, response} -> {score}, and what it is in [0, 1].

A reward model gives raw logits (about -5 to 7). They cannot stand beside a bonus of 0.1: a logit counts through the
`ScaleMap` given here, or as the `reward` that the server's own scale made of it; with neither it is refused.
Guarantees: every failure is a JudgeFault, never a number; the token is in the request header and nowhere else; at most
MAX_BODY_BYTES of a reply are read, also unpacked; redirects are not followed; one score takes at most `timeout_s`, in
which a server that is not there yet (it starts again) or asks to wait (Retry-After) is waited for. Not covered:
/score-pair and /score-batch.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foundation.errors import problems_of
from foundation.files import writable
from reward_client.client import JudgeBusy, retry_after_s
from reward_client.errors import JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.scale_map import ScaleMap, load_scale
from reward_client.schema import check_address
from reward_client.transport import BadBody, NoAnswer, NoConnection, Response, post_json
from reward_client.tries import Tries

ENV_URL = "REWARD_MODEL_URL"
ENV_TOKEN = "REWARD_API_TOKEN"
MAX_BODY_BYTES = 1 << 16
RETRYABLE_STATUS = {408, 425, 429}


@dataclass(frozen=True)
class ModelScore:
    """What a reward model says of one answer: a reward in [0, 1], and the raw logit behind it."""

    reward: float
    logit: float


class _Reply(BaseModel):
    """What the server answers; other keys are its own."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    score: float
    reward: float | None = Field(default=None, ge=0, le=1)


@dataclass(frozen=True)
class RewardModelClient:
    """Scores answers with the API at `url` (with or without /score); `timeout_s` bounds one score, all tries.

    Without `scale` the server must send `reward` beside `score`. At most `attempts` tries fail; a server that is not
    there or asks to wait is no failed try where `waits_for_server`.
    """

    url: str
    scale: ScaleMap | None = None
    token: str = field(default="", repr=False)
    timeout_s: float = 30.0
    attempts: int = 3
    waits_for_server: bool = True

    async def score(self, *, prompt: str, response: str, reference: str = "") -> ModelScore:
        """Score one answer; a `reference` is sent only where there is one. Raises JudgeFault."""
        texts = {"prompt": prompt, "response": response} | ({"reference": reference} if reference else {})
        body = {name: writable(text) for name, text in texts.items()}
        tries = Tries([self.address], timeout_s=self.timeout_s, attempts=self.attempts)
        while True:
            try:
                return await self._ask(body, tries.try_s)
            except JudgeUnreachable as fault:
                pause_s = tries.pause_s(fault if self.waits_for_server else JudgeUnreachable(str(fault)))
                if pause_s is None or pause_s >= tries.left_s:
                    raise
            await asyncio.sleep(pause_s)

    @property
    def address(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith("/score") else f"{base}/score"

    async def _ask(self, body: dict[str, str], limit_s: float) -> ModelScore:
        try:
            reply = await post_json(self.address, body, token=self.token, timeout_s=limit_s, max_bytes=MAX_BODY_BYTES)
        except BadBody as exc:
            raise JudgeUnparsable(f"reward model {self.address}: {exc}") from None
        except TimeoutError:
            raise JudgeUnreachable(f"reward model {self.address}: no answer within {limit_s:.3g} s") from None
        except NoAnswer as exc:
            problem = f"{str(exc).partition(':')[0]}; check {ENV_URL} and that the server runs"
            text = f"reward model {self.address}: no connection ({problem})"
            raise (JudgeBusy(text, 0.0) if isinstance(exc, NoConnection) else JudgeUnreachable(text)) from None
        status, wait_s = reply.status, retry_after_s(reply.header("Retry-After"))
        text = f"reward model {self.address}: HTTP {status}"
        if status in RETRYABLE_STATUS or status >= 500:
            raise JudgeBusy(f"{text}, asks to wait {wait_s:g} s", wait_s) if wait_s else JudgeUnreachable(text)
        if status != 200:
            variable = {401: ENV_TOKEN, 403: ENV_TOKEN, 404: ENV_URL}.get(status)
            raise JudgeRejected(f"{text}; check {variable}" if variable else text)
        return self._read(reply)

    def _read(self, response: Response) -> ModelScore:
        try:
            reply = _Reply.model_validate(response.tree())
        except ValidationError as exc:
            text = f"reward model {self.address}: {problems_of(exc)}, in {response.text[:120]!r}"
            raise JudgeUnparsable(text) from None
        except (ValueError, RecursionError):
            raise JudgeUnparsable(f"reward model {self.address}: no JSON in {response.text[:120]!r}") from None
        logit, reward = reply.score, reply.reward
        if self.scale:
            return ModelScore(self.scale(logit), logit)
        if reward is None:
            raise JudgeRejected(
                f"reward model {self.address}: the score {logit:.3g} is a raw logit, which cannot be added to a bonus. "
                "Fit a scale (and send references, if it needs them), or name one in reward.reward_model.scale_file"
            )
        return ModelScore(reward, logit)


def reward_model_from_env(scale_file: Path | None, *, timeout_s: float, attempts: int) -> RewardModelClient | None:
    """The client for REWARD_MODEL_URL; None when it is not set.

    Raises ValueError for an address or token that cannot be one, and for a bad scale file.
    """
    url, token = os.environ.get(ENV_URL, "").strip(), os.environ.get(ENV_TOKEN, "").strip()
    if not url:
        return None
    try:
        check_address(url, key_place=ENV_TOKEN)
    except ValueError as exc:
        raise ValueError(f"{ENV_URL}: {exc}") from None
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError(f"{ENV_TOKEN}: the token must be printable ASCII without blanks (its value is not shown)")
    scale = load_scale(scale_file) if scale_file else None
    return RewardModelClient(url, scale, token=token, timeout_s=timeout_s, attempts=attempts)
