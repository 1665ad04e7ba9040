"""What verl loads in each of its processes (VERL_USE_EXTERNAL_MODULES), while it is loaded itself: the call of install.

The one module that acts when it is imported, because verl calls nothing of it.
"""

from __future__ import annotations

from agl_plugin.patches.install import install_in_verl

install_in_verl()
