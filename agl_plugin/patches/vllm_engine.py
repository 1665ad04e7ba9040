"""Replacements in vLLM's server and engine; register.py says why each is there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def resolving_once(resolve: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """`resolve_chat_template_kwargs`, which looks through a template once for each set of names."""
    known: dict[tuple[str, frozenset[str]], set[str]] = {}

    def resolve_once(tokenizer: Any, chat_template: str, chat_template_kwargs: dict[str, Any]) -> dict[str, Any]:
        key = chat_template, frozenset(chat_template_kwargs)
        if key not in known:
            known[key] = set(resolve(tokenizer, chat_template, chat_template_kwargs))
        return {name: value for name, value in chat_template_kwargs.items() if name in known[key]}

    return resolve_once


def with_thoughts(parse: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """`_parse_chat_message_content`, which hands the thought of an earlier answer on to the chat template."""

    @functools.wraps(parse)
    def parsed(message: Any, *args: Any, **kwargs: Any) -> list[Any]:
        found, thought = parse(message, *args, **kwargs), message.get("reasoning_content")
        if message["role"] == "assistant" and isinstance(thought, str):
            for one in found:
                one["reasoning_content"] = thought
        return found

    return parsed


def leaving_a_core(execute: Callable[..., Any]) -> Callable[..., Any]:
    """`Worker.execute_model` with one thread less than there are; the update, which runs alone, has all."""

    @functools.wraps(execute)
    def execute_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        n_threads = torch.get_num_threads()
        torch.set_num_threads(max(1, n_threads - 1))
        try:
            return execute(self, *args, **kwargs)
        finally:
            torch.set_num_threads(n_threads)

    return execute_model


def drop_prefix_cache(self: Any) -> None:
    """`EngineCore.reset_prefix_cache`, which fails where the scheduler refuses: the caller is told of nothing else."""
    if not self.scheduler.reset_prefix_cache():
        running, waiting = self.scheduler.get_request_counts()
        raise RuntimeError(
            f"vLLM kept its prefix cache, because {running} requests run and {waiting} wait: after a change of weights "
            "it would go on with keys and values of the old ones. No request may run then: end what calls vLLM past "
            "the LLM proxy"
        )
