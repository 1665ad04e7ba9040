"""What a teacher at an OpenAI address says of the tokens that the policy sampled (vLLM's `prompt_logprobs`).

With it the KL loss goes to the teacher: on-policy distillation by the reverse KL of each token (Agarwal et al. 2024,
GKD, with the policy's own samples). Guarantees: each trained token has the log-probability of itself, at temperature 1,
after exactly the row's tokens; what is missing ends the run, and is never a 0. Not covered: addresses that ask for a
key, and teachers with another tokenizer, which are refused where a token is not theirs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import torch

from foundation.errors import RunError

AT_ONCE, TIMEOUT_S = 16, 600.0


def is_address(teacher: str) -> bool:
    """Whether a teacher is served, and not a folder."""
    return teacher.startswith(("http://", "https://"))


def teacher_log_probs(rows: Any, address: str) -> torch.Tensor:
    """Of the trained tokens of `rows` (tensors as agl_plugin.update.batch makes them), rows x response float32,
    elsewhere 0. Raises RunError where the teacher does not tell."""
    log_probs = torch.zeros(rows["response_mask"].shape, dtype=torch.float32)
    is_token = rows["attention_mask"].bool()
    with httpx.Client(base_url=address.rstrip("/") + "/", timeout=TIMEOUT_S, trust_env=False) as client:
        model = _requested(client, "GET", "models")["data"][0]["id"]

        def of_row(n: int) -> None:
            ids = rows["input_ids"][n][is_token[n]].tolist()
            body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
            choice = _requested(client, "POST", "completions", json=body)["choices"][0]
            by_position = choice.get("prompt_logprobs") or []
            first = int(is_token[n, : rows["prompts"].shape[1]].sum())
            for place in rows["response_mask"][n].nonzero()[:, 0].tolist():
                token = ids[first + place]
                by_token = by_position[first + place] if first + place < len(by_position) else None
                if not by_token or str(token) not in by_token:
                    raise RunError(
                        f"optim.teacher = {address} gives no prompt_logprobs of token {token}: it must be vLLM, with "
                        "the policy's tokenizer"
                    )
                log_probs[n, place] = by_token[str(token)]["logprob"]

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(of_row, range(len(log_probs))))
    return log_probs


def _requested(client: httpx.Client, method: str, path: str, **body: Any) -> Any:
    try:
        answer = client.request(method, path, **body)
        if answer.is_success:
            return answer.json()
        problem = f"HTTP {answer.status_code}: {answer.text[:300]}"
    except (httpx.TransportError, ValueError) as exc:
        problem = f"{type(exc).__name__}: {exc}"
    raise RunError(f"optim.teacher = {client.base_url} did not answer {path} ({problem}). Continue with --resume")
