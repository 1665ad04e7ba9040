"""Where and how an episode samples the policy, and the request that says so: the same from every kind of episode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from foundation.chat_request import wishes
from foundation.marks import Marks
from sql_agent.config.rollout import Sampling

OVERFLOW_MARKS = (
    "maximum context length",
    "context_length_exceeded",
    "max_tokens must be at least 1",
    "longer than the",
)
# A thought of nothing. Qwen3's template leaves out an empty one, though the prompt of the call showed it.
NO_THOUGHT = "\n"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How tokens are drawn; `temperature` 0 is greedy, `top_k` 0 is off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


@dataclass(frozen=True)
class LLMEndpoint(Drawn):
    """Where and how to sample the policy.

    `max_tokens` bounds one call, None: the server. At `untrained_url` the same model answers calls that are not
    trained on; empty where nothing is trained. `template_kwargs` go to the chat template with each call. `seeds` are
    those of the calls, one after the other, where their draws must not depend on what else is sampled. `marks` are the
    model's control tokens, which texts of others are sent without. `logprobs`: ask for those of the answer's tokens.
    """

    base_url: str
    model: str
    api_key: str = field(default="EMPTY", repr=False)
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    untrained_url: str = ""
    seeds: Iterator[int] | None = field(default=None, repr=False, compare=False)
    marks: Marks = Marks()
    logprobs: bool = False

    def sampled(self, how: Sampling) -> LLMEndpoint:
        """The same endpoint, sampled as a split is."""
        keys = how.model_dump(include=set(Sampling.model_fields) - {"stop"})
        return replace(self, **keys, stop=tuple(how.stop))

    def for_agent(self, name: str) -> str:
        """The address for one agent of several, by whose name agent.match chooses. Only for episodes of one's own."""
        return f"{self.base_url.removesuffix('/v1')}/agent/{name}/v1"

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body of a chat completion as it is sent: with the run's sampling settings, whatever `body` asks for.

        The caller's own settings (foundation/chat_request.py) count in three points: a lower max_tokens, further stop
        texts, and further keys of the template. Settings that are off are not sent, because servers other than vLLM
        refuse keys that they do not know. Every call of a run passes here. Raises NotAllowed.
        """
        tree = wishes(body)
        tree["messages"] = [self.marks.message(turn) for turn in tree["messages"]]
        for key in tree.keys() & {"tools", "chat_template_kwargs"}:
            tree[key] = self.marks.hidden_tree(tree[key])
        tree |= {"model": self.model, "temperature": self.temperature, "top_p": self.top_p}
        for name in ("top_k", "presence_penalty", "frequency_penalty"):
            if value := getattr(self, name):
                tree[name] = value
        if self.seeds and self.temperature:
            tree["seed"] = next(self.seeds)
        if self.logprobs:
            tree["logprobs"] = True
        if self.stop:
            stops = tree.get("stop") or []
            stops = [stops] if isinstance(stops, str) else stops
            tree["stop"] = list(dict.fromkeys([*self.stop, *stops]))
        if self.template_kwargs:
            tree["chat_template_kwargs"] = {**tree.get("chat_template_kwargs", {}), **self.template_kwargs}
            tree["messages"] = self._as_prompted(tree["messages"])
        if limits := [limit for limit in (tree.pop("max_tokens", None), self.max_tokens) if limit]:
            tree["max_tokens"] = min(limits)
        return tree

    def _as_prompted(self, messages: list[Any]) -> list[Any]:
        """The history as it was prompted: with thinking off each call began with an empty thought.

        Without it the next prompt would not begin with this prompt and answer, and each call would be trained in a row
        of its own.
        """
        if self.template_kwargs.get("enable_thinking") is not False:
            return messages
        # vLLM reads the newer name, and servers before 0.12 the older.
        thought = dict.fromkeys(("reasoning", "reasoning_content"), NO_THOUGHT)
        return [{**thought, **message} if message["role"] == "assistant" else message for message in messages]


def is_overflow(text: str) -> bool:
    """True when an endpoint's refusal says that the conversation is too long."""
    return any(mark in text for mark in OVERFLOW_MARKS)
