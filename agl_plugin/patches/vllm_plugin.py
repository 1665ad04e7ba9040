"""vLLM's plugin: it calls `register` in each of its processes as it starts, in training and in serving alike.

vLLM only logs a plugin that cannot be imported, but does not survive one whose function raises: so nothing that may
fail is imported at the top. The engine's process ends with the server's, kill -9 included.
"""

from __future__ import annotations


def register() -> None:
    """Make the patches of vLLM. May be called more than once. Raises PatchError, which ends vLLM's start."""
    from agl_plugin.patches.install import install
    from foundation.processes import die_with_parent

    die_with_parent()
    install("vllm")
