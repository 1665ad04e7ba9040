"""Serve a reward model over HTTP: agentgrpo reward-model serve --model DIR [--port 8400].

Guarantees: listens on 127.0.0.1 unless told otherwise, and elsewhere only with a token (REWARD_API_TOKEN); nothing is
served before the model is loaded and has scored once; SIGTERM or Ctrl-C closes the port, answers what was accepted,
then ends and says how many requests that were.
Not covered: TLS, several models, several processes (torch uses all cores from one).
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from foundation.command import alias, with_flags
from foundation.http_gate import Traffic, checked_token
from foundation.http_server import run
from foundation.net import bind, http_address
from reward_model.api import Limits, Served, make_app
from reward_model.folder import weights_fingerprint
from reward_model.scale import SCALE_FILE, load_scale
from reward_model.scoring import load_scorer

TOKEN_NAME = "REWARD_API_TOKEN"


def load_served(
    folder: Path,
    *,
    device: str = "auto",
    dtype: str = "float32",
    max_tokens: int | None = None,
    scale: Path | None = None,
) -> Served:
    """The model of a folder, with the scale beside it if there is one. Raises UserError."""
    folder = folder.expanduser().resolve()
    scorer = load_scorer(folder, device=device, dtype=dtype, max_tokens=max_tokens)
    weights = weights_fingerprint(folder)
    path = scale or folder / SCALE_FILE
    fitted = load_scale(path, weights_sha256=weights) if scale or path.exists() else None
    return Served(scorer=scorer, scale=fitted, name=folder.name, weights_sha256=weights)


@dataclass(frozen=True)
class ServeFlags:
    """The command line of `agentgrpo reward-model serve`."""

    model_path: Annotated[Path, typer.Option("--model", help="folder of the reward model")]
    host: Annotated[str, typer.Option(help="interface; others than loopback need REWARD_API_TOKEN")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="port")] = 8400
    scale: Annotated[Path | None, typer.Option(help="fitted scale (default: reward_scale.json of the folder)")] = None
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto"
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="bfloat16: half the memory, rougher")] = (
        "float32"
    )
    max_tokens: Annotated[
        int | None, typer.Option(min=16, help="longest dialogue (default: the model's, at most 2048)")
    ] = None
    batch_size: Annotated[int, typer.Option(min=1, help="items per forward pass")] = Limits.batch_size
    max_queued: Annotated[int, typer.Option(min=1, help="waiting items before 503")] = Limits.max_queued
    max_items: Annotated[int, typer.Option(min=1, help="items of one /score-batch")] = Limits.max_items
    max_chars: Annotated[int, typer.Option(min=1, help="characters of one text")] = Limits.max_chars
    max_body_mib: Annotated[int, typer.Option(min=1, help="MiB of one request")] = Limits.max_body_bytes >> 20
    drain_s: Annotated[int, typer.Option(min=1, help="longest wait for accepted requests at the end")] = 120


@with_flags(ServeFlags)
def main(flags: ServeFlags) -> None:
    """Serve a reward model over HTTP: /score, /score-pair, /score-batch, /healthz, /readyz, /metrics, /openapi.json.

    Ask it: curl -H 'Content-Type: application/json' -d '{"prompt": "Q", "response": "A"}' 127.0.0.1:8400/score

    Train with it: set REWARD_MODEL_URL=http://127.0.0.1:8400 and let rows name the scorer reward_model.

    REWARD_API_TOKEN (in the environment or .env) makes clients send "Authorization: Bearer TOKEN". At SIGTERM or Ctrl-C
    what was accepted is answered, and the port is free for the next server. Exit status 2: wrong input.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    limits = Limits(
        batch_size=flags.batch_size,
        max_queued=flags.max_queued,
        max_items=min(flags.max_items, flags.max_queued),
        max_chars=flags.max_chars,
        max_body_bytes=flags.max_body_mib << 20,
    )
    token = checked_token(os.environ.get(TOKEN_NAME, ""), host=flags.host, variable=TOKEN_NAME)
    listener = bind(flags.host, flags.port)
    served = load_served(
        flags.model_path, device=flags.device, dtype=flags.dtype, max_tokens=flags.max_tokens, scale=flags.scale
    )
    if served.scale is None:
        typer.echo(
            f"no {SCALE_FILE} beside the model: scores are raw logits and `reward` is null. Fit one with "
            "`agentgrpo reward-model scale`",
            err=True,
        )
    address = http_address(flags.host, listener.getsockname()[1])
    typer.echo(f"serving {served.name} on {address}, token {'needed' if token else 'not needed'}")
    traffic = Traffic()
    run(make_app(served, limits=limits, token=token, traffic=traffic), traffic, listener, drain_s=flags.drain_s)


if __name__ == "__main__":
    alias(main)
