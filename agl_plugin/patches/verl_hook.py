"""What verl loads in each of its processes (VERL_USE_EXTERNAL_MODULES), while it is loaded itself: the call of install.

The one module that acts when it is imported, because verl calls nothing of it.
"""

import os

from agl_plugin.patches.install import install_in_verl

if os.environ.get("AGENTGRPO_CPU") == "1":
    import agl_plugin.cpu.platform  # noqa: F401 it is registered

install_in_verl()
