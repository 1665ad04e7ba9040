"""One episode of each agent against a scripted model on this machine: what breaks it is found before a run.

The model answers every call with the question's reference. Found are: paths, imports and programs of agents of one's
own, tools that cannot be opened, and an agent.match that names none of the agents that called. Limits: the script
calls no tool, so that a dry run changes nothing outside; a fault that needs another answer stays hidden.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from foundation.errors import UserError
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import TrainConfig, agents_of
from sql_agent.errors import Fault
from sql_agent.records import Question

TRAINED, UNTRAINED = "/trained", "/untrained"


def rehearse(config: TrainConfig, questions: Sequence[Question]) -> Iterator[str]:
    """A line for each agent that has a question. Raises UserError naming the agent that fails, and why."""
    with EpisodeRunner(config) as runner:
        for name, own in agents_of(config).items():
            question = next((one for one in questions if one.agent == name), None)
            if question is not None:
                yield _played(runner, question, own, f"agents.{name}" if name else "agent")


def _played(runner: EpisodeRunner, question: Question, config: TrainConfig, key: str) -> str:
    with _scripted(question.answer or "42") as (address, called):
        llm = LLMEndpoint(f"{address}{TRAINED}/v1", "scripted", untrained_url=f"{address}{UNTRAINED}/v1")
        try:
            episode = asyncio.run(runner.run(question, llm))
        except Fault as exc:
            raise UserError(
                f"{key}: an episode against a model that answers {(question.answer or '42')!r:.80} failed: {exc}"
            ) from exc
    trained = sum(path.startswith(TRAINED) for path in called)
    if called and not trained:
        raise UserError(
            f"{key}.match = {config.agent.match!r}: of {len(called)} calls of the episode none was of an agent of that "
            "name, so nothing would be trained. Write the name by which the program asks (endpoint.for_agent, or "
            "/agent/NAME/v1 in the model's address), or leave agent.match out"
        )
    calls = f"{trained} of {len(called)} calls trained" if called else "the model was not called: nothing to train on"
    return f"episode of {key} against a scripted model: {episode.stop_reason}; {calls}"


@contextmanager
def _scripted(answer: str) -> Iterator[tuple[str, list[str]]]:
    """A model that always says the same; its address, and the paths that were called."""
    called: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            called.append(self.path)
            kind, body = (
                ("text/event-stream", _streamed(answer))
                if asked.get("stream")
                else (
                    "application/json",
                    json.dumps(_completion("chat.completion", message={"role": "assistant", "content": answer})),
                )
            )
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the lines of a dry run are its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", called
    finally:
        server.shutdown()
        server.server_close()


def _completion(kind: str, **choice: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choices = [{"index": 0, "finish_reason": "stop", **choice}]
    return {"id": "scripted", "object": kind, "created": 0, "model": "scripted", "choices": choices, "usage": usage}


def _streamed(answer: str) -> str:
    event = _completion("chat.completion.chunk", delta={"role": "assistant", "content": answer})
    return f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"
