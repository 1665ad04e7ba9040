"""agent-lightning's LLM proxy on LiteLLM as it comes, with this project's gate, token and log-probabilities before it.

Its interfaces alone are used: middlewares, callbacks and the settings of its launcher. With `log_probs` the sampler is
asked for the log-probability of each token it sampled; they stand in the span, and the agent does not see them. A call
leaves all of LiteLLM's spans; `raw_gen_ai_request` holds the token ids. A call that names a rollout unknown to the
store holds the others up while OpenTelemetry tries to send its spans, for some six seconds.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agentlightning.llm_proxy import LLMProxy
from agentlightning.store.base import LightningStore
from agentlightning.utils.server_launcher import PythonServerLauncherArgs
from litellm.integrations.custom_logger import CustomLogger

from agl_plugin.launcher import Launcher
from agl_plugin.proxy.gate import ALIVE_PATH, Gate
from agl_plugin.proxy.spans import LOG_PROB_REQUEST
from foundation.processes import die_with_parent
from foundation.store_token import Guarded, token

OTLP_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


class SamplerLogProbs(CustomLogger):
    """Asks the model server for log-probabilities where it samples, and keeps them from the agent.

    A greedy request (validation) is not trained on and is left as it is.
    """

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any
    ) -> dict[str, Any]:
        return {**data, **LOG_PROB_REQUEST} if data.get("temperature") else data

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        """LiteLLM's hook before the answer is sent; the span is written from the server's own text."""
        for choice in getattr(response, "choices", []):
            choice.logprobs = None
        return response


class RunProxy(LLMProxy):
    """agent-lightning's proxy, in a process that ends with the trainer's and has the token of its store."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.server_launcher = Launcher(self.server_launcher.app, self.server_launcher_args)

    @asynccontextmanager
    async def _serve_context(self) -> AsyncIterator[None]:
        die_with_parent()
        if token():
            os.environ[OTLP_HEADERS] = f"authorization=Bearer%20{token()}"
        async with super()._serve_context():
            yield


def make_proxy(store: LightningStore, *, gate: Gate, host: str, port: int, log_probs: bool = False) -> LLMProxy:
    """The LLM proxy of a run. `log_probs` asks for the log-probability of each sampled token."""
    return RunProxy(
        launcher_args=PythonServerLauncherArgs(host=host, port=port, launch_mode="mp", healthcheck_url=ALIVE_PATH),
        model_list=[],
        store=store,
        # From the inside out.
        middlewares=["rollout_attempt", "stream_conversion", gate.guarding, Guarded],  # pyright: ignore[reportArgumentType]
        callbacks=["return_token_ids", *([SamplerLogProbs] if log_probs else []), "opentelemetry"],
        # Who may call is Guarded's to say (beyond this machine there is a token); LiteLLM wants a key of its own.
        litellm_config={"general_settings": {"dangerously_permit_weak_or_unset_master_key": True}},
    )
