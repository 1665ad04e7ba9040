"""Episodes that are longer than a conversation may be: a model whose history is shortened before it overflows.

agent.context = "drop_results" replaces old tool results by a line, and where that is not enough leaves out old calls;
"summarise" lets the policy write notes, from which the history begins again. The history is rewritten at once and then
grows as before, so an episode is a few segments, each of which can be one training row.
Guarantees: the question and the last round of calls stay; a call that is refused for its length is asked again, of
a shorter history, and sampled nothing before. Tokens are those that the endpoint counted; what came since is counted
by its characters, as earlier results were. An endpoint that fails is a fault of the episode, in a summary too.
Not covered: streams, for which the history is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import openai
from agents import Model, ModelResponse

from sql_agent.agent.endpoint import is_overflow
from sql_agent.agent.tool import EpisodeContext
from sql_agent.agent.transcript import assistant_message
from sql_agent.config import AgentConfig
from sql_agent.scoring.answer_text import strip_thinking

Item = dict[str, Any]
DROPPED = "[已省略 / left out]"
LEFT_OUT = "（前面 {n} 次工具调用已省略 / {n} earlier tool calls are left out）"
NOTES = "目前的笔记 / notes so far:\n{notes}"
ASK = (
    "对话太长，将从你的笔记重新开始。请写下已经查到的事实和还要查什么，不要调用工具。\n"
    "The conversation gets too long and begins again from your notes. Write down what was found and what is still to "
    "be found; call no tool."
)
ASK_TOKENS = 128  # more than ASK takes, with the marks of its turn
# Tokens per character: of results before any were counted, and of what is left out at least.
MOST_RATE, LEAST_RATE = 1.0, 0.2
MARGIN = 1.25  # the next result may have more tokens per character than those before


@dataclass
class History:
    """What is shown of an episode's items: the question with notes, and the items from `shown_from` on."""

    items: list[Item] = field(default_factory=list)
    shown_from: int = 1
    notes: str = ""
    n_left_out: int = 0
    dropped: set[str] = field(default_factory=set)

    def view(self, end: int | None = None) -> list[Item]:
        """The items as they are sent, up to `end`."""
        left_out = LEFT_OUT.format(n=self.n_left_out) if self.n_left_out else ""
        opening = "\n\n".join(text for text in (str(self.items[0]["content"]), self.notes, left_out) if text)
        shown = self.items[self.shown_from : end]
        return [
            {**self.items[0], "content": opening},
            *(
                {**item, "output": DROPPED} if is_result(item) and item["call_id"] in self.dropped else item
                for item in shown
            ),
        ]

    def results(self) -> list[str]:
        """The calls whose results are shown, in order."""
        shown = filter(is_result, self.items[self.shown_from :])
        return [item["call_id"] for item in shown if item["call_id"] not in self.dropped]

    def last_rounds(self, n: int) -> int:
        """Where the last `n` rounds of an answer, its calls and their results begin."""
        after = [at for at in range(self.shown_from, len(self.items)) if at == 1 or is_result(self.items[at - 1])]
        starts = [at for at in after if not is_result(self.items[at])]
        return starts[-n] if len(starts) >= n else self.shown_from

    def begin_at(self, at: int) -> None:
        """Leave out what stands between the question and this item."""
        self.n_left_out += sum(map(is_result, self.items[self.shown_from : at]))
        self.shown_from = at


def is_result(item: Item) -> bool:
    return item.get("type") == "function_call_output"


class ShortenedModel(Model):
    """A model whose history stays within `max_tokens` with an answer of at most `answer_tokens`, for one episode.

    `writer` is the model that writes notes.
    """

    def __init__(
        self,
        model: Model,
        writer: Model,
        config: AgentConfig,
        context: EpisodeContext,
        *,
        max_tokens: int,
        answer_tokens: int,
    ) -> None:
        self._model, self._writer, self._config, self._context = model, writer, config, context
        self._prompt_tokens = max_tokens - answer_tokens
        if config.context == "summarise":
            self._prompt_tokens -= ASK_TOKENS
        self._history = History()
        self._n_counted = 0  # items that the tokens hold
        self._tokens = 0
        self._rate = 0.0

    async def get_response(self, *args: Any, **request: Any) -> ModelResponse:
        """One answer, after the history was shortened where it had to be. Raises what the model raises."""
        assert not args, "openai-agents names its arguments"
        items = request["input"]
        self._history.items = [{"role": "user", "content": items}] if isinstance(items, str) else list(items)
        await self._fit(request)
        while True:
            try:
                return await self._answer(request)
            except openai.BadRequestError as exc:
                if not is_overflow(str(exc)) or not await self._shorten(request):
                    raise

    async def _fit(self, request: dict[str, Any]) -> None:
        """Shorten until the prompt should fit, or nothing is left to shorten."""
        expected = self._tokens + chars_of(self._new_results()) * (self._rate * MARGIN or MOST_RATE)
        while self._n_counted and expected > self._prompt_tokens:
            before = chars_of(self._history.view())
            if not await self._shorten(request):
                return
            expected -= (before - chars_of(self._history.view())) * (self._rate or LEAST_RATE)

    def _new_results(self) -> list[Item]:
        return list(filter(is_result, self._history.items[self._n_counted :]))

    async def _answer(self, request: dict[str, Any]) -> ModelResponse:
        self._context.asked_s = time.time()
        shown: dict[str, Any] = request | {"input": self._history.view()}
        response = await self._model.get_response(**shown)
        usage = response.usage
        n_new = chars_of(self._new_results())
        if not usage.input_tokens:  # not told
            self._tokens = chars_of(self._history.view())
        else:
            if self._tokens and n_new:
                self._rate = min(MOST_RATE, max(LEAST_RATE, self._rate, (usage.input_tokens - self._tokens) / n_new))
            self._tokens = usage.input_tokens + usage.output_tokens
        self._n_counted = len(self._history.items)
        return response

    async def _shorten(self, request: dict[str, Any]) -> bool:
        """Shorten the history; False where nothing is left to shorten."""
        history, keep = self._history, self._config.keep_results
        before = history.view()
        if self._config.context == "summarise":
            await self._summarise(request)
        elif old := history.results()[: -keep or None]:
            history.dropped |= set(old)
        else:  # no result is left: old calls
            history.begin_at(history.last_rounds(max(1, keep)))
        self._tokens = 0
        return history.view() != before

    async def _summarise(self, request: dict[str, Any]) -> None:
        """Begin again from notes over all but the last round, which stays behind them.

        Where that is all there is, its results are dropped.
        """
        history = self._history
        at = history.last_rounds(1)
        if at <= history.shown_from:
            history.dropped |= set(history.results())
            return
        notes = await self._written(request, history.view(at))
        history.begin_at(at)
        history.n_left_out = 0
        history.notes = NOTES.format(notes=notes or "-")

    async def _written(self, request: dict[str, Any], shown: list[Item]) -> str:
        """The notes of the policy: an LLM call like all others, trained or not as agent.train_summaries says."""
        context, started = self._context, time.time()
        settings = replace(request["model_settings"], tool_choice="none" if request["tools"] else None)
        prompt = [*shown, {"role": "user", "content": ASK}]
        response = await self._writer.get_response(**request | {"input": prompt, "model_settings": settings})
        usage = response.usage
        context.answered(started, prompt_tokens=usage.input_tokens, completion_tokens=usage.output_tokens)
        context.n_untrained_calls += not self._config.train_summaries
        message = assistant_message(response.output)
        context.messages += [{"role": "user", "content": ASK}, message]
        return strip_thinking(message["content"])

    def stream_response(self, *args: Any, **request: Any) -> AsyncIterator[Any]:
        """The model's own stream, of the whole history."""
        return self._model.stream_response(*args, **request)


def chars_of(items: list[Item]) -> int:
    return sum(len(json.dumps(item, ensure_ascii=False, default=str)) for item in items)
