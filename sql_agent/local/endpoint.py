"""The policy of this process behind an OpenAI-compatible address, so that the same episodes play here as everywhere.

Calls wait until the thread that owns the model answers them, many at once. Each is kept, with its token ids, under the
rollout that its address names: `/rollout/NAME/v1/chat/completions`; those at `/rollout/NAME/untrained/v1/...` are not.
Guarantees: listens on 127.0.0.1 alone; what is kept is exactly what the model saw and sampled; what may be asked for,
and the answers to it, are those of the gateway before vLLM, streams included (which come whole, at the end); which
calls are answered together depends on what the rollouts ask, not on when, as long as each makes one call at a time and
`take` is asked for `all_of_them`. A rollout that is over is answered no more.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import re
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web
from jinja2 import TemplateError

from agl_plugin.update import rows
from foundation.background import LoopThread
from foundation.chat_request import NotAllowed, allowed
from foundation.chat_template import plain_message
from foundation.errors import Unusable
from foundation.http_local import application, as_stream, listening, refusal
from foundation.marks import tokenizer_marks
from sql_agent.agent.endpoint import Drawn, LLMEndpoint

MODEL = "policy"
QUIET_S = 0.02  # without those that stay away, calls that come within this time of each other are answered together
CALL_BEGINS = "<tool_call>"
TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)


@dataclass(frozen=True)
class Generated:
    """What was sampled for a call, the end of its turn included; `ended` says whether there is one.

    `log_probs`: what it was drawn with, by temperature, cut and penalties; NaN where that was not asked for.
    """

    ids: list[int]
    log_probs: list[float]
    ended: bool


@dataclass
class Call:
    """A call that waits for its `answer`."""

    rollout: str
    prompt: list[int]
    max_tokens: int
    sampling: Drawn
    seed: int
    answer: asyncio.Future[Generated]
    trained: bool = True
    asked_s: float = field(default_factory=time.time)


class PolicyEndpoint:
    """A context manager: it listens from enter to exit."""

    def __init__(self, tokenizer: Any, *, context_tokens: int, max_tokens: int) -> None:
        self._marks = tokenizer_marks(tokenizer)
        self._tokenizer, self._context, self._max_tokens = tokenizer, context_tokens, max_tokens
        self._waiting: list[Call] = []
        self._lock = threading.Lock()
        self._last_s = 0.0
        self._playing: dict[str, int] = {}  # rollout -> its place among those of the step
        self.sampled: defaultdict[str, list[rows.Call]] = defaultdict(list)  # rollout -> its calls so far

    def __enter__(self) -> PolicyEndpoint:
        self.worker = LoopThread("policy")
        self._address = self.worker.submit(self._start()).result(30)
        return self

    async def _start(self) -> str:
        app = application()
        app.router.add_post("/rollout/{rollout}/v1/chat/completions", self._complete)
        app.router.add_post("/rollout/{rollout}/{untrained:untrained}/v1/chat/completions", self._complete)
        # Who still waits at the end gets no answer any more: the thread that samples has left.
        self._runner, port = await listening(app, shutdown_timeout=0.1)
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *_exc: object) -> None:
        self.worker.submit(self._runner.cleanup()).result(30)
        self.worker.close()

    def of_rollout(self, rollout: str) -> LLMEndpoint:
        place = f"{self._address}/rollout/{rollout}"
        untrained = f"{place}/untrained/v1"
        return LLMEndpoint(f"{place}/v1", model=MODEL, untrained_url=untrained, marks=self._marks)

    def begin(self, rollouts: Sequence[str]) -> None:
        """Generated these from now on, and keep their calls; no others, and what was kept is forgotten."""
        with self._lock:
            self.sampled.clear()
            self._playing = {rollout: place for place, rollout in enumerate(rollouts)}

    def over(self, rollout: str) -> None:
        """Wait for no call of this rollout any more."""
        with self._lock:
            self._playing.pop(rollout, None)
            self._waiting = [call for call in self._waiting if call.rollout != rollout]

    def take(self, *, all_of_them: bool = True) -> tuple[list[Call], bool]:
        """The calls to answer now, in the order of their rollouts, and whether some wait for other rollouts' calls.

        That is when each rollout that plays has one waiting; without `all_of_them` when nobody else asks.
        """
        with self._lock:
            absent = self._playing.keys() - {call.rollout for call in self._waiting}
            waits_for_others = absent and (all_of_them or time.monotonic() - self._last_s < QUIET_S)
            if not self._waiting or waits_for_others:
                return [], bool(self._waiting)
            taken = sorted(self._waiting, key=lambda call: self._playing[call.rollout])
            self._waiting = []
            return taken, False

    def answer(self, call: Call, answer: Generated) -> None:
        def give() -> None:
            if not call.answer.done():
                call.answer.set_result(answer)

        self.worker.loop.call_soon_threadsafe(give)

    async def _complete(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read())
            wanted = allowed(body if isinstance(body, dict) else {})
            prompt = self._prompt(wanted)
        except NotAllowed as exc:
            return web.json_response(exc.body, status=400)
        except (ValueError, RecursionError, KeyError, TypeError, Unusable, TemplateError) as exc:
            return refusal(400, f"not a chat completion that can be answered: {type(exc).__name__}: {exc}")
        if wanted.get("model", MODEL) != MODEL:
            return refusal(400, f"model {wanted['model']!r}: there is {MODEL} here")
        room = self._context - len(prompt)
        if room < 1:
            return refusal(
                400, f"maximum context length is {self._context} tokens, and the messages have {len(prompt)}"
            )
        limit = min(room, wanted.get("max_tokens", self._max_tokens), self._max_tokens)
        names = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty")
        sampling = replace(Drawn(temperature=1.0), **{name: wanted[name] for name in names if name in wanted})
        rollout = request.match_info["rollout"]
        trained = "untrained" not in request.match_info
        seed = wanted.get("seed", secrets.randbits(63))
        call = Call(rollout, prompt, limit, sampling, seed, asyncio.get_running_loop().create_future(), trained)
        with self._lock:
            if rollout not in self._playing:
                return refusal(410, f"rollout {rollout!r} does not play: it is over, or never began")
            self._waiting.append(call)
            self._last_s = time.monotonic()
        completion = self._completion(call, wanted, await call.answer)
        if not wanted.get("stream"):
            return web.json_response(completion)
        events = as_stream(completion, usage="stream_options" in wanted)
        return web.Response(body=events, content_type="text/event-stream")

    def _prompt(self, wanted: dict[str, Any]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            [plain_message(message) for message in wanted["messages"]],
            tools=wanted.get("tools"),
            tokenize=False,
            add_generation_prompt=True,
            **wanted.get("chat_template_kwargs", {}),
        )
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def _text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def _completion(self, call: Call, wanted: dict[str, Any], answer: Generated) -> dict[str, Any]:
        ids, text, stopped = self._until_stop(answer.ids, wanted.get("stop", []))
        reason = "stop" if answer.ended or stopped else "length"
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if "tools" in wanted and "tool_choice" not in wanted:
            message = message_of(text)
        if message.get("tool_calls") and reason == "stop":
            reason = "tool_calls"
        if call.trained:
            facts = {"started_s": call.asked_s, "ended_s": time.time()}
            self.sampled[call.rollout].append(rows.Call(call.prompt, ids, answer.log_probs[: len(ids)], reason, facts))
        n_in, n_out = len(call.prompt), len(ids)
        return {
            "id": f"call-{secrets.token_hex(8)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out},
        }

    def _until_stop(self, ids: list[int], stop: str | list[str]) -> tuple[list[int], str, bool]:
        """The tokens up to the one that completes a stop text, the words before that text, and whether there was one.

        What was sampled after it is dropped, as if it had not been: it changed nothing before it.
        """
        text = self._text(ids)
        stops = [stop] if isinstance(stop, str) else stop
        if not any(ending in text for ending in stops):
            return ids, text, False
        n = bisect.bisect_left(
            range(len(ids)), True, key=lambda n: any(ending in self._text(ids[:n]) for ending in stops)
        )
        text = self._text(ids[:n])
        return ids[:n], text[: min(text.find(ending) for ending in stops if ending in text)], True


def message_of(text: str) -> dict[str, Any]:
    """What a model wrote in the hermes form, <tool_call>{"name": ..., "arguments": {...}}</tool_call>, as the chat
    completions API writes it: the same as vLLM's parser of that name makes of it. What is no call stays text.
    """
    plain = {"role": "assistant", "content": text}
    if CALL_BEGINS not in text:
        return plain
    try:
        calls = [_call(json.loads(whole or cut)) for whole, cut in TOOL_CALL.findall(text)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return plain
    return {"role": "assistant", "content": text[: text.find(CALL_BEGINS)] or None, "tool_calls": calls}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    function = {"name": call["name"], "arguments": arguments}
    return {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": function}
