"""Client of a reward model's scoring API: POST {base}/score {prompt, response} -> {score}, and what it is in [0, 1].

A reward model gives raw logits (about -5 to 7). They cannot stand beside a bonus of 0.1: a logit counts through the
`ScaleMap` given here, or as the `reward` that the server's own scale made of it; with neither it is refused.
Guarantees: every failure is a JudgeFault, never a number; the token is in the request header and nowhere else; at most
MAX_BODY_BYTES of a reply are read; redirects are not followed. Not covered: /score-pair and /score-batch.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import ssl
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import tenacity

from reward_client.client import is_loopback
from reward_client.errors import JudgeRejected, JudgeUnparsable, JudgeUnreachable

ENV_URL = "REWARD_MODEL_URL"
ENV_TOKEN = "REWARD_API_TOKEN"
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 8.0
MAX_BODY_BYTES = 1 << 16
RETRYABLE_STATUS = {408, 425, 429}


@dataclass(frozen=True)
class ScaleMap:
    """A monotone map from logits to [0, 1]: straight lines between the points, flat beyond them.

    On disk it is JSON with `logits` (rising) and `rewards` (not falling, in [0, 1]); other keys are notes.
    """

    logits: tuple[float, ...]
    rewards: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.logits) != len(self.rewards) or len(self.logits) < 2:
            raise ValueError("`logits` and `rewards` need the same number of points, at least two")
        if not all(math.isfinite(x) for x in (*self.logits, *self.rewards)):
            raise ValueError("`logits` and `rewards` must be finite numbers")
        if any(a >= b for a, b in zip(self.logits, self.logits[1:], strict=False)):
            raise ValueError("`logits` must rise")
        if any(a > b for a, b in zip(self.rewards, self.rewards[1:], strict=False)):
            raise ValueError("`rewards` must not fall")
        if self.rewards[0] < 0 or self.rewards[-1] > 1:
            raise ValueError("`rewards` must lie in [0, 1]")

    def __call__(self, logit: float) -> float:
        """The reward of one logit. Raises ValueError for NaN."""
        if math.isnan(logit):
            raise ValueError("NaN is no logit")
        right = bisect_right(self.logits, logit)
        if right == 0 or right == len(self.logits):
            return self.rewards[0] if right == 0 else self.rewards[-1]
        (x0, x1), (y0, y1) = self.logits[right - 1 : right + 1], self.rewards[right - 1 : right + 1]
        return y0 + (y1 - y0) * (logit - x0) / (x1 - x0)


def load_scale(path: Path) -> ScaleMap:
    """The map in a JSON file. Raises ValueError that names the file and what is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return ScaleMap(tuple(map(float, data["logits"])), tuple(map(float, data["rewards"])))
    except OSError as exc:
        raise ValueError(f"{path}: no scale map can be read there ({exc.strerror})") from None
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        problem = f"no {exc}" if isinstance(exc, KeyError) else str(exc)
        raise ValueError(f"{path}: no scale map ({problem})") from None


@dataclass(frozen=True)
class ModelScore:
    """What a reward model says of one answer: a reward in [0, 1], and the raw logit behind it."""

    reward: float
    logit: float


@dataclass(frozen=True)
class RewardModelClient:
    """Scores answers with the API at `url` (with or without /score); `timeout_s` bounds one score, all tries.

    Without `scale` the server must send `reward` beside `score`.
    """

    url: str
    scale: ScaleMap | None = None
    token: str = field(default="", repr=False)
    timeout_s: float = 30.0
    attempts: int = 3

    async def score(self, *, prompt: str, response: str, reference: str = "") -> ModelScore:
        """Score one answer; a `reference` is sent only where there is one. Raises JudgeFault."""
        body = {"prompt": prompt, "response": response} | ({"reference": reference} if reference else {})
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=tenacity.wait_random_exponential(multiplier=FIRST_PAUSE_S, max=MAX_PAUSE_S),
            retry=tenacity.retry_if_exception_type(JudgeUnreachable),
            reraise=True,
        )
        try:
            async with asyncio.timeout(self.timeout_s):
                return await retrying(self._ask, body)
        except TimeoutError:
            raise JudgeUnreachable(f"reward model {self.address}: no score within {self.timeout_s:g} s") from None

    @property
    def address(self) -> str:
        """The address that is asked."""
        base = self.url.rstrip("/")
        return base if base.endswith("/score") else f"{base}/score"

    async def _ask(self, body: dict[str, str]) -> ModelScore:
        try:
            status, text = await self._post(body)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            problem = f"{type(exc).__name__}; check {ENV_URL} and that the server runs"
            raise JudgeUnreachable(f"reward model {self.address}: no connection ({problem})") from None
        if status in RETRYABLE_STATUS or status >= 500:
            raise JudgeUnreachable(f"reward model {self.address}: HTTP {status}")
        if status != 200:
            hint = f"; check {ENV_TOKEN}" if status in (401, 403) else f"; check {ENV_URL}" if status == 404 else ""
            raise JudgeRejected(f"reward model {self.address}: HTTP {status}{hint}")
        return self._read(text)

    async def _post(self, body: dict[str, str]) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        # One client per request: every rollout runs its own event loop, and a connection pool belongs to one loop.
        async with (
            httpx.AsyncClient(verify=_tls(), trust_env=not is_loopback(self.url), timeout=None) as http,
            http.stream("POST", self.address, json=_encodable(body), headers=headers) as response,
        ):
            data = bytearray()
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > MAX_BODY_BYTES:
                    raise JudgeUnparsable(f"reward model {self.address}: more than {MAX_BODY_BYTES} bytes")
            return response.status_code, bytes(data)

    def _read(self, text: bytes) -> ModelScore:
        try:
            data = json.loads(text)
            logit, reward = data["score"], data.get("reward")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise JudgeUnparsable(f"reward model {self.address}: no {{score}} in {text[:120]!r}") from None
        if not _is_number(logit) or not (reward is None or (_is_number(reward) and 0 <= reward <= 1)):
            raise JudgeUnparsable(
                f"reward model {self.address}: score {logit!r:.80} must be a finite number, and reward "
                f"{reward!r:.80} one in [0, 1] or null"
            )
        if self.scale:
            return ModelScore(self.scale(logit), float(logit))
        if reward is None:
            raise JudgeRejected(
                f"reward model {self.address}: the score {logit:.3g} is a raw logit, which cannot be added to a bonus. "
                "Fit a scale (and send references, if it needs them), or name one in reward.reward_model.scale_file"
            )
        return ModelScore(float(reward), float(logit))


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: loading the certificates costs tens of milliseconds."""
    return httpx.create_ssl_context()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _encodable(body: dict[str, str]) -> dict[str, str]:
    """A lone surrogate cannot be sent."""
    return {name: text.encode("utf-8", errors="replace").decode() for name, text in body.items()}


def reward_model_from_env(scale_file: Path | None, *, timeout_s: float, attempts: int) -> RewardModelClient | None:
    """The client for REWARD_MODEL_URL; None when it is not set.

    Raises ValueError for an address or token that cannot be one, and for a bad scale file.
    """
    url, token = os.environ.get(ENV_URL, "").strip(), os.environ.get(ENV_TOKEN, "").strip()
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{ENV_URL}: an address starts with http:// or https://, for example http://127.0.0.1:8400")
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError(f"{ENV_TOKEN}: the token must be printable ASCII without blanks (its value is not shown)")
    scale = load_scale(scale_file) if scale_file else None
    return RewardModelClient(url, scale, token=token, timeout_s=timeout_s, attempts=attempts)
