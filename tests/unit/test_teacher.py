"""A teacher at an address: what it says of sampled tokens is what its model gives; what it does not ends the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
import torch

from agl_plugin.update.batch import build_batch
from agl_plugin.update.rows import Call
from agl_plugin.update.teacher import teacher_log_probs
from foundation.errors import RunError
from tests.fsdp_shards import policy

VOCABULARY = 50
MODEL = policy(VOCABULARY).double()


def told(ids: list[int]) -> list[dict[str, Any] | None]:
    """prompt_logprobs of these tokens, as vLLM writes them: nothing of the first."""
    with torch.no_grad():
        scores = MODEL(torch.tensor([ids])).logits[0].log_softmax(-1)
    after = [{str(token): {"logprob": scores[n, token].item()}} for n, token in enumerate(ids[1:])]
    return [None, *after]


@contextmanager
def served(*, loses: int = -1, status: int = 200) -> Iterator[str]:
    """A server of MODEL; it leaves token `loses` out."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def answer(self, found: Any) -> None:
            body = json.dumps(found).encode()
            self.send_response(status if self.command == "POST" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.answer({"data": [{"id": "teacher"}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert (asked["model"], asked["prompt_logprobs"]) == ("teacher", 0)
            found = [one and {k: v for k, v in one.items() if k != str(loses)} for one in told(asked["prompt"])]
            self.answer({"choices": [{"text": "", "prompt_logprobs": found}]})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/"
    finally:
        server.shutdown()
        server.server_close()


def rows() -> Any:
    """Rows of several calls, with what the environment wrote between them, and of several lengths."""
    talks = [
        [Call([1, 2, 3], [4, 5], [0.0] * 2), Call([1, 2, 3, 4, 5, 6, 7], [8], [0.0])],
        [Call([9], [10, 11, 12], [0.0] * 3)],
    ]
    rollouts = {f"r{n}": ("q", n / 2, turns) for n, turns in enumerate(talks)}
    limits: dict[str, Any] = {"max_prompt_tokens": 8, "max_response_tokens": 16, "pad_id": 0}
    return build_batch(rollouts, merge=True, **limits).data.batch


def test_each_sampled_token_has_its_own_log_probability() -> None:
    batch = rows()
    with served() as address:
        found = teacher_log_probs(batch, address)
    assert found.shape == batch["response_mask"].shape and not found[batch["response_mask"] == 0].any()
    for n, ids in enumerate(([1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12])):
        n_prompt = (3, 1)[n]
        each = [one[str(token)]["logprob"] for token, one in zip(ids, told(ids), strict=True) if one]
        mask = batch["response_mask"][n, : len(ids) - n_prompt].bool()
        expected = torch.tensor(each)[n_prompt - 1 :][mask]
        assert torch.allclose(found[n, : len(ids) - n_prompt][mask], expected, atol=1e-6) and mask.sum() == 3


def test_what_a_teacher_does_not_tell_ends_the_run() -> None:
    with served(loses=11) as address, pytest.raises(RunError, match="no prompt_logprobs of token 11: it must be vLLM"):
        teacher_log_probs(rows(), address)
    with served(status=400) as address, pytest.raises(RunError, match="completions .HTTP 400"):
        teacher_log_probs(rows(), address)
    with pytest.raises(RunError, match="did not answer models .ConnectError"):
        teacher_log_probs(rows(), "http://127.0.0.1:9/v1")
