"""The scoring API as an application: routes, errors, OpenAPI. `agentgrpo reward-model serve` starts it.

Guarantees: /score and /score-pair answer in the documented forms, with further keys beside them; a bad request ends
with 401, 408, 413 or 422 and a `detail`, an item that has no finite score with 422; an overloaded, failing or ending
server says 503 and Retry-After; accepted requests are answered before the application ends.
"""

# No `from __future__ import annotations`: FastAPI must see the request types, which are made per server.

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from prometheus_client import Counter, Gauge, Histogram
from starlette.exceptions import HTTPException

from foundation.http_gate import RETRY_AFTER_S, SECONDS, Gate, RequestMetrics, Traffic
from reward_model import api_types as t
from reward_model.batching import MicroBatcher, ModelFailed, Overloaded
from reward_model.pairs import Item
from reward_model.scale import RewardScale
from reward_model.scoring import NotFinite, RewardScorer, Scored

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics(RequestMetrics):
    """All metrics of the reward server; `queued` is asked when they are read."""

    def __init__(self) -> None:
        prefix = "reward_api"
        super().__init__(prefix)
        registry = self.registry
        self.items = Counter(f"{prefix}_items", "scored responses", registry=registry)
        self.truncated = Counter(f"{prefix}_truncated_items", "responses that were cut", registry=registry)
        self.refused = Counter(f"{prefix}_overloads", "requests refused because the queue was full", registry=registry)
        self.batch_items = Histogram(
            f"{prefix}_batch_items", "items per forward pass", buckets=SIZES, registry=registry
        )
        self.batch_seconds = Histogram(
            f"{prefix}_batch_seconds", "seconds per forward pass", buckets=SECONDS, registry=registry
        )
        self.queued = Gauge(f"{prefix}_queued_items", "items that wait for the model", registry=registry)

    def on_batch(self, size: int, seconds: float) -> None:
        """Count one forward pass."""
        self.items.inc(size)
        self.batch_items.observe(size)
        self.batch_seconds.observe(seconds)


OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/openapi.json"})
PATHS = OPEN_PATHS | {"/score", "/score-pair", "/score-batch", "/metrics"}


@dataclass(frozen=True)
class Limits:
    """What one server takes."""

    batch_size: int = 32
    max_queued: int = 2048
    max_items: int = 256
    max_chars: int = 32_768
    max_body_bytes: int = 16 << 20
    body_timeout_s: float = 30.0


@dataclass(frozen=True)
class Served:
    """The model behind an API."""

    scorer: RewardScorer
    scale: RewardScale | None
    name: str
    weights_sha256: str

    def as_scores(self, scored: Sequence[Scored], items: Sequence[Item]) -> list[t.Score]:
        """The scores as clients get them."""
        return [
            t.Score(score=result.score, reward=self._reward(result.score, item), truncated=result.truncated)
            for result, item in zip(scored, items, strict=True)
        ]

    def _reward(self, logit: float, item: Item) -> float | None:
        """In [0, 1], where the scale was fitted on items like this one."""
        if not self.scale or (self.scale.needs_reference and not item.reference):
            return None
        return self.scale(logit)


def make_app(served: Served, *, limits: Limits, token: str = "", traffic: Traffic | None = None) -> FastAPI:
    """The application. With an empty token it asks for none; `traffic` is kept up to date where one is given."""
    metrics, traffic = Metrics(), traffic or Traffic()
    batcher = MicroBatcher(
        served.scorer.score, batch_size=limits.batch_size, max_queued=limits.max_queued, on_batch=metrics.on_batch
    )
    metrics.queued.set_function(lambda: batcher.n_queued)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await batcher.at_rest()

    # No pages: FastAPI's load scripts from elsewhere.
    app = FastAPI(
        title="Reward model", version="1", lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.add_middleware(
        Gate,
        token=token,
        open_paths=OPEN_PATHS,
        known_paths=PATHS,
        max_body_bytes=limits.max_body_bytes,
        body_timeout_s=limits.body_timeout_s,
        metrics=metrics,
        traffic=traffic,
    )
    for kind in (RequestValidationError, HTTPException, Overloaded, ModelFailed, NotFinite, Exception):
        app.add_exception_handler(kind, _error_reply)
    _add_status(app, served, batcher, limits, traffic)
    _add_scores(app, served, batcher, limits, metrics, secured=bool(token))
    return app


def _error_reply(_: Request, exc: Exception) -> JSONResponse:
    match exc:
        case RequestValidationError():
            # The place and the rule, never the value: it may be long, secret, or not even valid Unicode.
            return _problem(422, "; ".join(f"{_place(e['loc'])}: {e['msg']}" for e in exc.errors()[:5]))
        case HTTPException(status_code=400):  # FastAPI's, of a body that it cannot parse at all
            return _problem(422, "the body is not JSON in UTF-8, or is nested too deep")
        case HTTPException():
            return _problem(exc.status_code, str(exc.detail), dict(exc.headers or {}))
        case Overloaded():
            return _later(f"overloaded: {exc}; try again later")
        case ModelFailed():
            return _later(f"the model failed ({exc}); the server's log says more")
        case NotFinite():  # the same text would fail again, so nothing that clients repeat
            return _problem(422, f"{exc}; an item of this request has no score")
    return _problem(500, "a mistake of the server; its log says more")


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


def _later(detail: str) -> JSONResponse:
    return _problem(503, detail, {"Retry-After": str(RETRY_AFTER_S)})


def _place(location: tuple[int | str, ...]) -> str:
    """Where in the body; a key that no route knows is the client's text, so it is not repeated."""
    parts = [str(part) if isinstance(part, int) or part in t.REQUEST_KEYS else "(another key)" for part in location[1:]]
    return ".".join(parts) or "body"


def _add_status(app: FastAPI, served: Served, batcher: MicroBatcher, limits: Limits, traffic: Traffic) -> None:
    info = t.Info(
        model=served.name,
        weights_sha256=served.weights_sha256,
        scale=served.scale and t.ScaleInfo.model_validate(served.scale, from_attributes=True),
        max_tokens=served.scorer.encoder.max_tokens,
        max_items=limits.max_items,
        max_chars=limits.max_chars,
    )

    @app.get("/", summary="Is the server up, and what does it serve?")
    async def root() -> t.Info:
        return info

    @app.get("/healthz", summary="Does the process live?")
    async def healthz() -> t.Health:
        return t.Health()

    ready = {"response_model": t.Ready, "responses": {503: {"model": t.Problem}}}

    @app.get("/readyz", summary="Would a request be taken now?", **ready)
    async def readyz() -> Any:
        if traffic.is_ending:
            return _later("the server ends; try again later")
        if batcher.is_full:
            return _later(f"{batcher.n_queued} items wait; try again later")
        return t.Ready(queued=batcher.n_queued)


def _add_scores(
    app: FastAPI, served: Served, batcher: MicroBatcher, limits: Limits, metrics: Metrics, *, secured: bool
) -> None:
    score_type, pair_type, batch_type = t.request_types(max_chars=limits.max_chars, max_items=limits.max_items)
    options: dict[str, Any] = {"responses": {status: {"model": t.Problem} for status in (408, 413, 422, 503)}}
    if secured:  # the gate checks the token before the body is read; this only says so in the OpenAPI
        options["responses"][401] = {"model": t.Problem}
        options["dependencies"] = [Depends(HTTPBearer(auto_error=False))]

    async def scores(items: list[Item]) -> list[t.Score]:
        try:
            scored = await batcher.submit(items)
        except Overloaded:
            metrics.refused.inc()
            raise
        metrics.truncated.inc(sum(result.truncated for result in scored))
        return served.as_scores(scored, items)

    @app.post("/score", summary="Score one response", **options)
    async def score(request: Annotated[score_type, Body()]) -> t.Score:  # type: ignore[valid-type]
        return (await scores([request]))[0]

    @app.post("/score-pair", summary="Score two responses to one prompt", **options)
    async def score_pair(request: Annotated[pair_type, Body()]) -> t.PairScore:  # type: ignore[valid-type]
        texts = (request.chosen, request.rejected)
        items = [Item(prompt=request.prompt, response=text, reference=request.reference) for text in texts]
        return pair_score(*await scores(items))

    @app.post("/score-batch", summary="Score many responses", **options)
    async def score_batch(request: Annotated[batch_type, Body()]) -> t.BatchScore:  # type: ignore[valid-type]
        return t.BatchScore(results=await scores(request.items))

    @app.get("/metrics", include_in_schema=False)
    async def prometheus() -> PlainTextResponse:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def pair_score(chosen: t.Score, rejected: t.Score) -> t.PairScore:
    """The documented answer of /score-pair."""
    diff = chosen.score - rejected.score
    return t.PairScore(
        chosen_score=chosen.score,
        rejected_score=rejected.score,
        preference="chosen" if diff > 0 else "rejected" if diff < 0 else "tie",
        score_diff=diff,
        chosen_reward=chosen.reward,
        rejected_reward=rejected.reward,
        truncated=chosen.truncated or rejected.truncated,
    )
