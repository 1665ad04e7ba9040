"""What no client can bring about at will: slow bodies, clients that leave, a failing model, an end in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.types import Message

from foundation.http_gate import Gate, Traffic
from reward_model.api import Limits, Metrics, Served, make_app
from reward_model.pairs import Item
from reward_model.scoring import NotFinite, Scored

SCOPE = {"type": "http", "path": "/score", "headers": [], "method": "POST"}
HALF: Message = {"type": "http.request", "body": b"{", "more_body": True}
WHOLE: Message = {"type": "http.request", "body": b"{}", "more_body": False}
LEFT: Message = {"type": "http.disconnect"}


class Call:
    """One request through a gate around `app`: `messages` come in turn, then nothing; what is sent is kept."""

    def __init__(self, app: Any, *messages: Message, body_timeout_s: float = 5.0) -> None:
        self.metrics, self.traffic = Metrics(), Traffic()
        self.sent: list[Message] = []
        self._messages = list(messages)
        self._gate = Gate(
            app,
            token="",
            open_paths=frozenset(),
            known_paths=frozenset({"/score"}),
            max_body_bytes=100,
            body_timeout_s=body_timeout_s,
            metrics=self.metrics,
            traffic=self.traffic,
        )

    async def __call__(self) -> None:
        await self._gate(dict(SCOPE), self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return self.sent[0]["status"] if self.sent else 0

    def counted(self, status: int) -> float:
        labels = {"path": "/score", "status": str(status)}
        return self.metrics.registry.get_sample_value("reward_api_requests_total", labels) or 0.0


async def never(*_: Any) -> None:
    await asyncio.Event().wait()


async def good(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def test_a_body_that_does_not_come_in_time_is_408() -> None:
    call = Call(good, HALF, body_timeout_s=0.05)
    await call()
    assert call.status == 408 and (b"connection", b"close") in call.sent[0]["headers"]
    assert call.traffic == Traffic()


async def test_half_a_body_is_never_taken_for_a_whole_one() -> None:
    call = Call(good, {**HALF, "body": b"{}"}, LEFT)
    await call()
    assert call.sent == [] and call.counted(499) == 1 and call.traffic.accepted == 0


async def test_work_for_a_client_that_left_is_stopped() -> None:
    call = Call(never, WHOLE, LEFT)
    await asyncio.wait_for(call(), 5)
    assert call.sent == [] and call.counted(499) == 1 and call.traffic == Traffic(accepted=1, gone=1)


async def test_an_end_that_does_not_wait_is_503_and_not_500() -> None:
    call = Call(never, WHOLE)
    task = asyncio.create_task(call())
    await asyncio.sleep(0.05)
    task.cancel()
    await task
    assert call.status == 503 and (b"retry-after", b"1") in call.sent[0]["headers"]
    assert str(call.traffic) == "1 requests accepted, 0 answered, 0 clients gone, 1 not answered"


async def test_answers_close_their_connection_while_the_server_ends() -> None:
    call = Call(good, WHOLE)
    call.traffic.is_ending = True
    await call()
    assert call.status == 200 and (b"connection", b"close") in call.sent[0]["headers"]
    assert call.traffic.answered == 1


@pytest.mark.parametrize("n_bytes", [101, 5000])
async def test_a_body_over_the_limit_is_413_however_it_comes(n_bytes: int) -> None:
    pieces: list[Message] = [{**HALF, "body": b"x" * 60} for _ in range(n_bytes // 60)]
    call = Call(good, *pieces, {**WHOLE, "body": b"x" * 60})
    await call()
    assert call.status == 413 and call.traffic.accepted == 0


# The application around a model that fails


@asynccontextmanager
async def client(score: Callable[..., Any]) -> AsyncIterator[httpx.AsyncClient]:
    scorer: Any = SimpleNamespace(score=score, encoder=SimpleNamespace(max_tokens=9))
    app = make_app(Served(scorer, None, "model", "0"), limits=Limits(max_queued=4))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://api"
        ) as http,
    ):
        yield http


def failing(error: Exception) -> Callable[[list[Item]], list[Scored]]:
    def score(items: list[Item]) -> list[Scored]:
        if any(item.response == "bad" for item in items):
            raise error
        return [Scored(1.0, truncated=False) for _ in items]

    return score


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (NotFinite("the model gave a score that is not a finite number"), 422, "has no score"),
        (RuntimeError("CUDA out of memory: secret text"), 503, "the model failed (RuntimeError)"),
    ],
)
async def test_a_failing_model_is_an_error_with_a_detail(error: Exception, status: int, says: str) -> None:
    async with client(failing(error)) as http:
        bad = await http.post("/score", json={"prompt": "p", "response": "bad"})
        assert bad.status_code == status and says in bad.json()["detail"] and "secret" not in bad.text
        assert ("retry-after" in bad.headers) == (status == 503)
        good = await http.post("/score", json={"prompt": "p", "response": "good"})
        assert good.json() == {"score": 1.0, "reward": None, "truncated": False}


async def test_a_model_that_gives_too_few_scores_is_an_error_and_not_an_endless_wait() -> None:
    async with client(lambda items: []) as http:
        answer = await asyncio.wait_for(http.post("/score", json={"prompt": "p", "response": "r"}), 10)
        assert answer.status_code == 503 and (await http.get("/readyz")).status_code == 200
