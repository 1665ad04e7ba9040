"""vLLM's worker in its engine's process, where there is no GPU and one worker.

vLLM would start a process for it, which imports all that the engine has imported; and torch's store for ranks to meet
would listen on all addresses of the machine, without a password. Here a file is the meeting place.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from vllm.v1.executor.uniproc_executor import UniProcExecutor


class OneProcess(UniProcExecutor):
    """vLLM takes it by its name (`distributed_executor_backend`)."""

    def _distributed_args(self) -> tuple[str, int, int]:
        """Where ranks meet, the rank, and its place on this machine."""
        return f"file://{Path(tempfile.mkdtemp(prefix='agentgrpo-')) / 'rank'}", 0, 0
