"""A model folder's chat template: read, rendered, and given other defaults.

Guarantees: a template is foreign code and runs in Jinja's sandbox; with `with_defaults` it renders as before where a
request names the key itself. Rendering knows what transformers gives a template, but for dates and special tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from foundation.chat_request import ROLES, text_parts
from foundation.errors import Unusable
from foundation.files import read_object

JINJA, TOKENIZER = "chat_template.jinja", "tokenizer_config.json"
Message = dict[str, Any]


def read_template(folder: Path) -> str:
    """The folder's chat template, "" without one that can be read."""
    try:
        return (folder / JINJA).read_text(encoding="utf-8")
    except (OSError, ValueError):
        template = read_object(folder / TOKENIZER).get("chat_template")
    if isinstance(template, list):  # several by name
        template = next((entry.get("template") for entry in template if entry.get("name") == "default"), "")
    return template if isinstance(template, str) else ""


def with_defaults(template: str, kwargs: Mapping[str, Any]) -> str:
    """The template with these keys set where a request leaves them out."""
    lines = [f"{{%- if {k} is not defined %}}{{%- set {k} = {v!r} %}}{{%- endif %}}" for k, v in kwargs.items()]
    return "".join(line for line in lines if not template.startswith(line)) + template


def write_defaults(folder: Path, kwargs: Mapping[str, Any]) -> None:
    """Give the folder's chat template these defaults."""
    if not kwargs:
        return
    template = with_defaults(read_template(folder), kwargs)
    (folder / JINJA).write_text(template, encoding="utf-8")
    if "chat_template" in (tree := read_object(folder / TOKENIZER)):
        text = json.dumps(tree | {"chat_template": template}, ensure_ascii=False, indent=2)
        (folder / TOKENIZER).write_text(text, encoding="utf-8")


def rendered(
    template: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """The prompt of a call, with what makes the model answer; None where the template does not take it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **style: json.dumps(value, ensure_ascii=False, **style)
    try:
        return environment.from_string(template).render(
            messages=messages, tools=tools or None, add_generation_prompt=True, **kwargs
        )
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError):
        return None


def pad_id_of(tokenizer: Any) -> int:
    """The token that fills up the rows of a batch."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def plain_message(message: Any) -> Message:
    """One message: role, text, and calls as {type, function: {name, arguments: object}}. Raises Unusable."""
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise Unusable(f"a message without a role of {', '.join(ROLES)}")
    plain: Message = {"role": message["role"], "content": _text(message.get("content"))}
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or (calls and plain["role"] != "assistant"):
        raise Unusable("tool_calls is no list, or not of the assistant")
    if calls:
        plain["tool_calls"] = [_call(call) for call in calls]
    if plain["role"] == "tool" and isinstance(message.get("tool_call_id"), str):
        plain["tool_call_id"] = message["tool_call_id"]
    return plain


def _text(content: Any) -> str:
    parts = text_parts(content)
    if parts is None:
        raise Unusable("a message whose content is not text")
    return "\n".join(parts)


def _call(call: Any) -> Message:
    """A call in OpenAI's form, or as rollouts have it ({id, name, arguments})."""
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise Unusable("a tool call without a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            raise Unusable("a tool call whose arguments are no JSON") from None
    if not isinstance(arguments or {}, dict):
        raise Unusable("a tool call whose arguments are no JSON object")
    identity = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**identity, "type": "function", "function": {"name": function["name"], "arguments": arguments or {}}}
