"""An episode whose tool takes 0.2 s in the median, and 10 s in one of twenty calls."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import openai

from sql_agent.config.paths import prompt_file

USUAL_S, SLOW_S, SLOW_SHARE, MOST_CALLS = 0.2, 10.0, 0.05, 4


async def play(question: Any, endpoint: Any, tools: Any) -> str:
    """Ask until the model calls no more tools."""
    by_name = {tool.name: tool for tool in tools}
    system = prompt_file("system_short").read_text(encoding="utf-8").strip()
    messages: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": question.question}]
    async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0) as client:
        for _ in range(MOST_CALLS):
            reply: Any = await client.chat.completions.create(
                model=endpoint.model, messages=messages, tools=[tool.spec for tool in tools]
            )
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content or ""
            for call in message.tool_calls:
                await asyncio.sleep(SLOW_S if random.random() < SLOW_SHARE else USUAL_S)
                known = by_name.get(call.function.name)
                result = await known.invoke(call.function.arguments) if known else "no such tool"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return ""
