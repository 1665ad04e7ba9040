"""The tool `python`: code that the model wrote, run in the sandbox, and what it printed.

Guarantees: as of every tool (tool.py): text of at most `max_chars`, recorded with how it ended; only a ToolFault, where
no code could be run at all, ends the episode.
"""

from __future__ import annotations

from typing import Any

from sql_agent.agent.tool import BadArguments, EpisodeContext, Tool, ToolFailed, parse_object, recorded
from sql_agent.environment.sandbox.pool import Sandbox

PYTHON = "python"
DESCRIPTION = (
    "Run Python code and see what it prints; the value of a last line is printed too. Each call begins anew. There are "
    "no files, no network and no classes; these modules can be imported: {modules}."
)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "the code"}},
    "required": ["code"],
    "additionalProperties": False,
}
NO_OUTPUT = "(no output; print what you want to see)"


def python_tool(sandbox: Sandbox) -> Tool:

    async def run(_context: EpisodeContext, raw: str) -> str:
        code = parse_object(raw).get("code")
        if not isinstance(code, str) or not code.strip():
            raise BadArguments('code is missing; expected {"code": "print(1 + 1)"}')
        outcome = await sandbox.run(code)
        if not outcome.ok:
            raise ToolFailed(outcome.text, "timeout" if outcome.kind == "timeout" else "error")
        return outcome.text.rstrip("\n") or NO_OUTPUT

    modules = ", ".join(sandbox.config.modules) or "none"
    return recorded(PYTHON, DESCRIPTION.format(modules=modules), PARAMETERS, run, strict=True)
