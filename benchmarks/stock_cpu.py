"""What verl needs to run on a CPU at all, and nothing that saves time: agl_plugin.cpu.mode for the stock run.

Loaded by verl in each of its processes (VERL_USE_EXTERNAL_MODULES).
"""

from __future__ import annotations

from agl_plugin.cpu import mode as cpu_mode

cpu_mode.give_torch_cpu_a_device_api()
cpu_mode.use_gloo_for_nccl()
cpu_mode.let_fsdp_start_on_cpu()
cpu_mode.skip_pinned_memory()
