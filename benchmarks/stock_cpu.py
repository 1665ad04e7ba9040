"""What verl needs to run on a CPU at all, and nothing that saves time: the patches of CPU mode for the stock run.

Loaded by verl in each of its processes (VERL_USE_EXTERNAL_MODULES); stock.py leaves out the one patch that saves time.
"""

from __future__ import annotations

from agl_plugin.patches.install import install

install("cpu")
