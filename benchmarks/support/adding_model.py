"""A model server for benchmarks/served_agent.py, light enough to be started again and again: `python -m … PORT`.

For the question N it calls add(N, 1), then says what came.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from sql_agent.testing.server import Reply, openai_server, stream_reply


def adds(request: dict[str, Any]) -> Reply:
    last = request["messages"][-1]
    if last["role"] == "tool":
        return stream_reply({"role": "assistant", "content": f"It is {last['content']}"})
    call = {"name": "add", "arguments": json.dumps({"a": int(last["content"]), "b": 1})}
    return stream_reply({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": call}]})


if __name__ == "__main__":
    with openai_server(adds, port=int(sys.argv[1])):
        signal.pause()
