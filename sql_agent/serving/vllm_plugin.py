"""The entry point by which vLLM finds the project's patches: one name, in the checkout and in the wheel."""

from agl_plugin.patches.vllm_plugin import register as register
