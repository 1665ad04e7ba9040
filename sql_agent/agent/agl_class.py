"""`python agl_class.py MODULE_OR_FILE CLASS`: make an agent of agent-lightning 1.0 and run it, as its controller does.

Run by the Python that agent.agl_python names, which may know nothing of this project: standard library only.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from pathlib import Path


def main() -> None:
    """Run the class; what it raises ends the process with a traceback."""
    where, name = sys.argv[1:]
    del sys.path[0]  # this file's folder, whose modules are not the agent's
    path = Path(where).resolve() if where.endswith(".py") else None
    sys.path.insert(0, str(path.parent) if path else "")
    result = getattr(importlib.import_module(path.stem if path else where), name)().run()
    if inspect.isawaitable(result):
        asyncio.run(asyncio.wait_for(result, None))


if __name__ == "__main__":
    main()
