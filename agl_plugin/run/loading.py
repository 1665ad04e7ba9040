"""Starts what loads the imports of a run's processes, while the starting process is still busy with its own."""

from __future__ import annotations

import os

from foundation.preloaded import Preloaded


def loaded_python() -> Preloaded:
    """For a Ray of this process's own, whose library takes its job and its parent as it is loaded."""
    return Preloaded("agl_plugin.run.loaded", RAY_JOB_ID="01000000", RAY_RAYLET_PID=str(os.getpid()))
