"""What an agent may ask of the policy: one allow list of a chat completion's keys, for every address that answers.

The relay before episodes of one's own takes an agent's `wishes`, and puts the run's own values beside them; the gateway
and the endpoint of a run in one process take what is `allowed`, which has those values. Guarantees: a key is passed, is
the run's, says nothing here and is left out, or is refused by its name; a key that RULES lacks is refused; null says
nothing. So no request reaches a model server with a key that nobody decided on. Not covered: what messages and tools
say, and whether the model's template can show them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from foundation.errors import AgentGRPOError, did_you_mean

ROLES = ("system", "user", "assistant", "tool")  # a template may write any other one into the prompt as it stands
MOST_STOPS = 16
MOST_TEMPLATE_CHARS = 2000
SHOWN_CHARS = 60
MOST_NUMBER = 1e300  # JSON has whole numbers that are no float
PAGE = "docs/50-extending.md#what-an-agent-may-ask"
# What the functions that fill a template take besides the template's own names: never from a request.
NOT_OF_A_TEMPLATE = {
    *("self", "kwargs", "conversation", "conversations", "messages", "tools", "documents", "chat_template"),
    *("add_generation_prompt", "continue_final_message", "tokenize", "padding", "truncation", "max_length"),
    *("return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "processor_kwargs"),
    *("tokenizer", "model_config", "trust_remote_code"),
}


class NotAllowed(AgentGRPOError):
    """A request asks for what it may not, by `key`. The text says which value broke which rule, and what helps."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key

    @property
    def body(self) -> dict[str, Any]:
        """The answer, as OpenAI words an error; its status is 400."""
        error = {"message": str(self), "type": "invalid_request_error", "param": self.key, "code": "not_allowed"}
        return {"error": error}


@dataclass(frozen=True)
class Rule:
    """What becomes of a key. passed: it goes to the model server. run: the run's own value, at the relay in place of
    the agent's. silent: it says nothing of an answer here, and is left out. What does not fit is refused."""

    what: Literal["passed", "run", "silent"]
    must: str = ""
    fits: Callable[[Any], bool] = lambda _: True
    remedy: str = "leave it out"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MOST_NUMBER


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _are_messages(value: Any) -> bool:
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(message, dict) and message.get("role") in ROLES for message in value)


def _are_functions(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(tool, dict)
        and tool.get("type") == "function"
        and isinstance(tool.get("function"), dict)
        and _is_text(tool["function"].get("name"))
        for tool in value
    )


def _are_stops(value: Any) -> bool:
    several = value if isinstance(value, list) else [value]
    return len(several) <= MOST_STOPS and all(map(_is_text, several))


def _is_of_template(value: Any) -> bool:
    try:
        short = len(json.dumps(value)) <= MOST_TEMPLATE_CHARS
    except (RecursionError, TypeError):  # too deep, or a recipe's value that JSON has not
        return False
    return short and isinstance(value, dict) and all(map(is_template_key, value))


def is_template_key(name: str) -> bool:
    """Whether a name can be one of a chat template's own."""
    return name.isidentifier() and not name.startswith("_") and name not in NOT_OF_A_TEMPLATE


def text_parts(content: Any) -> list[str] | None:
    """The texts of a message: a string, nothing (a bare call), or OpenAI's list of text parts; else None."""
    if content is None:
        return []
    parts = [{"text": content}] if isinstance(content, str) else content
    if isinstance(parts, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        return [part["text"] for part in parts]
    return None


def _only(*neutral: Any) -> Callable[[Any], bool]:
    """Fits what says the same as nothing. True is not 1 here."""
    return lambda value: any(value == allowed and type(value) is type(allowed) for allowed in neutral)


def _never(_: Any) -> bool:
    return False


SHAPE = "leave it out, and ask for the form in words or offer a tool: the trainer does not know a grammar"
SAMPLED = "leave it out: rollout.* says how the run samples"
LIMIT = "leave it out for the run's own limit"
TEMPLATE = "leave it out: agent.chat_template_kwargs has the template's keys"
WANTED = "leave them out; agent.chat_template_kwargs sets them for a run"
MESSAGES = f"must be a list of objects with a role of {', '.join(ROLES)}"
CHOICE = (
    "must be auto, required or none: a call that is forced is sampled from a grammar that the trainer does not know"
)
KWARGS = f"must be an object of at most {MOST_TEMPLATE_CHARS} characters with keys of the chat template's own"
CALLS = "must be true: the policy makes as many calls in a turn as it wants"
# Rules, and the keys that each is for.
RULED: tuple[tuple[Rule, str], ...] = (
    (Rule("passed", MESSAGES, _are_messages, "write [{role, content}, ...], and system for developer"), "messages"),
    (Rule("passed", "must be a list of {type: function, function: {name, ...}}", _are_functions), "tools"),
    (
        Rule("passed", CHOICE, _only("auto", "required", "none"), "offer that tool alone, and ask in words"),
        "tool_choice",
    ),
    (Rule("passed", "must be true or false", _only(True, False)), "stream"),
    (Rule("passed", "must be an object", lambda value: isinstance(value, dict)), "stream_options"),
    (Rule("passed", f"must be a text or at most {MOST_STOPS} texts, none of them empty", _are_stops), "stop"),
    (Rule("passed", "must be a whole number above 0", _is_count, LIMIT), "max_tokens max_completion_tokens"),
    (Rule("passed", KWARGS, _is_of_template, WANTED), "chat_template_kwargs"),
    (Rule("run", "must be a model's name", _is_text, "name one of GET /v1/models"), "model"),
    (Rule("run", "must be a number", _is_number, SAMPLED), "temperature top_p top_k seed"),
    (Rule("run", "must be a number", _is_number, SAMPLED), "presence_penalty frequency_penalty"),
    (Rule("run", "is no key of a run's sampling", _never, SAMPLED), "logit_bias min_p repetition_penalty min_tokens"),
    (Rule("silent"), "prediction user metadata store service_tier safety_identifier"),
    (Rule("silent"), "prompt_cache_key prompt_cache_options prompt_cache_retention"),
    (Rule("silent", CALLS, _only(True), "do them in turn"), "parallel_tool_calls"),
    (Rule("silent", "says nothing to this policy", _never, "ask for it in words"), "reasoning_effort verbosity"),
    (Rule("silent", "must be 1: one call is one sample", _only(1), "call as often as you want samples"), "n best_of"),
    (Rule("silent", "is the trainer's own", _only(False, 0)), "logprobs top_logprobs return_token_ids"),
    (Rule("silent", "is the run's", _only(False), TEMPLATE), "echo continue_final_message"),
    (Rule("silent", "is the run's", _only(True)), "add_generation_prompt"),
    (Rule("silent", 'must be ["text"]', _only(["text"])), "modalities"),
    (Rule("silent", 'must be {"type": "text"}', _only({"type": "text"}), SHAPE), "response_format"),
    (Rule("silent", "cannot be had", _never, SHAPE), "guided_json guided_regex guided_choice guided_grammar"),
    (Rule("silent", "cannot be had", _never, SHAPE), "structured_outputs"),
    (Rule("silent", "is no key any more", _never, "use tools"), "functions function_call"),
)
RULES = {key: rule for rule, keys in RULED for key in keys.split()}


def allowed(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request as a model server may get it; the run's values are in it. Raises NotAllowed."""
    return _normal_form({key: value for key, value in body.items() if _counts(key, value)})


def wishes(body: Mapping[str, Any]) -> dict[str, Any]:
    """What of an agent's request counts: `allowed` without what is the run's, whatever stands there."""
    runs = {key for key, rule in RULES.items() if rule.what == "run"}
    return _normal_form({key: value for key, value in body.items() if key not in runs and _counts(key, value)})


def _counts(key: str, value: Any) -> bool:
    """Whether it goes to a model server. Raises NotAllowed."""
    if value is None:
        return False
    rule = RULES.get(key)
    shown = ascii(key)[1:-1][:SHOWN_CHARS]
    if rule is None:
        near = did_you_mean(shown, RULES)
        raise NotAllowed(
            shown, f"{shown} is none of the keys that an agent may ask for{near or '.'} Leave it out; {PAGE} lists them"
        )
    if not rule.fits(value):
        raise NotAllowed(key, f"{key} = {_shown(value)}: {key} {rule.must}; {rule.remedy}")
    return rule.what != "silent"


def _normal_form(request: dict[str, Any]) -> dict[str, Any]:
    """`request`, changed in place into the one form of those that say the same. Raises NotAllowed without messages."""
    if "messages" not in request:
        raise NotAllowed("messages", f"messages is missing: {RULES['messages'].remedy}")
    if not request.get("tools"):
        request.pop("tools", None)
    if "tools" not in request or request.get("tool_choice") != "none":
        request.pop("tool_choice", None)  # the policy decides, which is what model servers do unasked
    options = request.pop("stream_options", {})
    if request.get("stream") and options.get("include_usage"):
        request["stream_options"] = {"include_usage": True}
    limits = [request.pop(name) for name in ("max_tokens", "max_completion_tokens") if name in request]
    return request | ({"max_tokens": min(limits)} if limits else {})


def _shown(value: Any) -> str:
    try:
        text = ascii(value)
    except RecursionError:
        text = type(value).__name__
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
