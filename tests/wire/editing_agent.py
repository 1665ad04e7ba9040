"""A foreign agent with tools of its own: reads a file, and writes it as the model says. FILE and whole or stream."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import openai

FILE, HOW = Path(sys.argv[1]), sys.argv[2]
question = json.loads(sys.stdin.readline())["question"]
client = openai.OpenAI(max_retries=0)
messages: list[Any] = [{"role": "user", "content": question}]


def asked() -> dict[str, Any]:
    """The model's next message."""
    model = os.environ["OPENAI_MODEL"]
    if HOW == "whole":
        return client.chat.completions.create(model=model, messages=messages).choices[0].message.model_dump()
    text, calls = "", []
    for event in client.chat.completions.create(model=model, messages=messages, stream=True):
        for choice in event.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                if part.id:
                    calls.append({"id": part.id, "type": "function", "function": {"name": "", "arguments": ""}})
                for key in ("name", "arguments"):
                    calls[-1]["function"][key] += getattr(part.function, key, None) or ""
    return {"role": "assistant", "content": text, "tool_calls": calls}


while True:
    said = {key: value for key, value in asked().items() if key in ("role", "content", "tool_calls") and value}
    if not (made := said.get("tool_calls")):
        print(json.dumps(said["content"]))
        break
    arguments = json.loads(made[0]["function"]["arguments"])
    made[0]["function"]["arguments"] = json.dumps(arguments)  # as many programs write it anew
    if "text" in arguments:
        FILE.write_bytes(arguments["text"].encode())
    result = FILE.read_bytes().decode()
    messages += [said, {"role": "tool", "tool_call_id": made[0]["id"], "content": result}]
