"""How a question and its reference answer become the one text that the model reads before a response.

A model of questions alone can only judge style: a fluent invention wins. So bundled and mined pairs show the reference,
and the scoring API adds it in the same words when a request brings one.
"""

from __future__ import annotations

MARK = "\n\n参考答案："


def grounded(prompt: str, reference: str) -> str:
    """The prompt, followed by the reference where there is one."""
    return f"{prompt}{MARK}{reference}" if reference else prompt
