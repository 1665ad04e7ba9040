"""Client of a reward model's scoring API: POST {base}/score {prompt, response} -> {score}, mapped to [0, 1].

A reward model gives raw logits (about -5 to 7). They cannot stand beside a bonus of 0.1, so a client without a scale
map is not made: see `ScaleMap`. Guarantees: every failure is a JudgeFault, never a number; the token is in the request
header and nowhere else; at most MAX_BODY_BYTES of a reply are read; redirects are not followed.
Not covered: /score-pair and /score-batch.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import tenacity

from reward_client.client import is_loopback
from reward_client.errors import JudgeRejected, JudgeUnparsable, JudgeUnreachable

ENV_URL = "REWARD_MODEL_URL"
ENV_TOKEN = "REWARD_MODEL_TOKEN"
MAX_BODY_BYTES = 1 << 16
RETRYABLE_STATUS = {408, 425, 429}


@dataclass(frozen=True)
class ScaleMap:
    """A monotone map from logits to [0, 1]: straight lines between the points, flat beyond them.

    On disk it is JSON with `logits` (rising) and `scores` (not falling, in [0, 1]); other keys are notes.
    """

    logits: tuple[float, ...]
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.logits) != len(self.scores) or len(self.logits) < 2:
            raise ValueError("`logits` and `scores` need the same number of points, at least two")
        if not all(math.isfinite(x) for x in (*self.logits, *self.scores)):
            raise ValueError("`logits` and `scores` must be finite numbers")
        if any(a >= b for a, b in zip(self.logits, self.logits[1:], strict=False)):
            raise ValueError("`logits` must rise")
        if any(a > b for a, b in zip(self.scores, self.scores[1:], strict=False)):
            raise ValueError("`scores` must not fall")
        if self.scores[0] < 0 or self.scores[-1] > 1:
            raise ValueError("`scores` must lie in [0, 1]")

    def __call__(self, logit: float) -> float:
        """The score of one logit. Raises ValueError for NaN."""
        if math.isnan(logit):
            raise ValueError("NaN is no logit")
        right = bisect_right(self.logits, logit)
        if right == 0 or right == len(self.logits):
            return self.scores[0] if right == 0 else self.scores[-1]
        (x0, x1), (y0, y1) = self.logits[right - 1 : right + 1], self.scores[right - 1 : right + 1]
        return y0 + (y1 - y0) * (logit - x0) / (x1 - x0)


def load_scale(path: Path) -> ScaleMap:
    """The map in a JSON file. Raises ValueError that names the file and what is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return ScaleMap(tuple(map(float, data["logits"])), tuple(map(float, data["scores"])))
    except OSError as exc:
        raise ValueError(f"{path}: no scale map can be read there ({exc.strerror})") from None
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        problem = f"no {exc}" if isinstance(exc, KeyError) else str(exc)
        raise ValueError(f"{path}: no scale map ({problem})") from None


@dataclass(frozen=True)
class RewardModelClient:
    """Scores answers with the API at `url` (with or without /score); `timeout_s` bounds one score, all tries."""

    url: str
    scale: ScaleMap
    token: str = field(default="", repr=False)
    timeout_s: float = 30.0
    attempts: int = 3

    async def score(self, *, prompt: str, response: str) -> tuple[float, float]:
        """(score in [0, 1], raw logit). Raises JudgeFault."""
        # One try gets at most half of the time, so that a server that hangs is asked twice.
        share_s = self.timeout_s if self.attempts == 1 else self.timeout_s / 2
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.attempts) | tenacity.stop_before_delay(self.timeout_s),
            wait=tenacity.wait_exponential_jitter(initial=0.5, max=8.0),
            retry=tenacity.retry_if_exception_type((JudgeUnreachable, JudgeUnparsable)),
            reraise=True,
        )
        logit = await retrying(self._ask, {"prompt": prompt, "response": response}, share_s)
        return self.scale(logit), logit

    @property
    def address(self) -> str:
        """The address that is asked."""
        base = self.url.rstrip("/")
        return base if base.endswith("/score") else f"{base}/score"

    async def _ask(self, body: dict[str, str], seconds: float) -> float:
        try:
            async with asyncio.timeout(seconds):
                status, text = await self._post(body)
        except (TimeoutError, httpx.TimeoutException):
            raise JudgeUnreachable(f"reward model {self.address}: no answer within {seconds:.3g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            problem = f"{type(exc).__name__}; check {ENV_URL} and that the server runs"
            raise JudgeUnreachable(f"reward model {self.address}: no connection ({problem})") from None
        if status in RETRYABLE_STATUS or status >= 500:
            raise JudgeUnreachable(f"reward model {self.address}: HTTP {status}")
        if status != 200:
            hint = f"; check {ENV_TOKEN}" if status in (401, 403) else f"; check {ENV_URL}" if status == 404 else ""
            raise JudgeRejected(f"reward model {self.address}: HTTP {status}{hint}")
        return self._logit(text)

    async def _post(self, body: dict[str, str]) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        # One client per request: every rollout runs its own event loop, and a connection pool belongs to one loop.
        async with (
            httpx.AsyncClient(trust_env=not is_loopback(self.url), timeout=None) as http,
            http.stream("POST", self.address, json=_encodable(body), headers=headers) as response,
        ):
            data = bytearray()
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > MAX_BODY_BYTES:
                    raise JudgeUnparsable(f"reward model {self.address}: more than {MAX_BODY_BYTES} bytes")
            return response.status_code, bytes(data)

    def _logit(self, text: bytes) -> float:
        try:
            data = json.loads(text)
            logit = data["score"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise JudgeUnparsable(f"reward model {self.address}: no {{score}} in {text[:120]!r}") from None
        if isinstance(logit, bool) or not isinstance(logit, int | float) or not math.isfinite(logit):
            raise JudgeUnparsable(f"reward model {self.address}: score {logit!r:.80} is no finite number")
        return float(logit)


def _encodable(body: dict[str, str]) -> dict[str, str]:
    """A lone surrogate cannot be sent."""
    return {name: text.encode("utf-8", errors="replace").decode() for name, text in body.items()}


def reward_model_from_env(scale_file: Path | None, *, timeout_s: float, attempts: int) -> RewardModelClient | None:
    """The client for REWARD_MODEL_URL; None when it is not set.

    Raises ValueError for an address that is none, and without a scale map: raw logits are no rewards.
    """
    url, token = os.environ.get(ENV_URL, "").strip(), os.environ.get(ENV_TOKEN, "").strip()
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{ENV_URL}: an address starts with http:// or https://, for example http://127.0.0.1:8400")
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError(f"{ENV_TOKEN}: the token must be printable ASCII without blanks (its value is not shown)")
    if scale_file is None:
        raise ValueError(
            f"{ENV_URL} is set, but there is no scale map: a reward model gives raw logits, which cannot be added to a "
            "bonus. Fit a map and name its file in reward.reward_model.scale_file"
        )
    return RewardModelClient(url, load_scale(scale_file), token=token, timeout_s=timeout_s, attempts=attempts)
