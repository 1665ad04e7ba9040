"""An MCP server as tools: a program to start, or an address."""

from __future__ import annotations

import re

from sql_agent.config.node import Node, option

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ADDRESS = re.compile(r"https?://[^/@\s]+(/\S*)?")


class McpConfig(Node):
    """A server whose tools the model can call: `command`, spoken to over stdin and stdout, or `url`, over HTTP.

    No value is a secret: `headers`, and in `env` what begins with "$", name variables of the run's environment.
    """

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    tools: list[str] = option([], "names of tools; empty: all")

    def check(self, key: str) -> None:
        """Raise ValueError, naming `key`, for what does not go together."""
        if bool(self.command) == bool(self.url):
            raise ValueError(
                f"{key}: command = {self.command!r}, url = {_shown(self.url)!r}: a server is a program or an address. "
                "Set exactly one of the two"
            )
        for name, owner in (("args", "command"), ("env", "command"), ("headers", "url")):
            if getattr(self, name) and not getattr(self, owner):
                raise ValueError(f"{key}: {name} belongs to {owner}, which is not set; leave {name} out")
        if self.url and not ADDRESS.fullmatch(self.url):
            raise ValueError(
                f"{key}.url = {_shown(self.url)!r} must be http://HOST/... or https://HOST/... without a password; "
                "what is secret goes into headers, by the name of a variable"
            )
        for name, value in self.headers.items():
            if not VARIABLE.fullmatch(value):  # not shown: it may be the secret itself
                raise ValueError(
                    f"{key}.headers.{name} must be the name of an environment variable that holds the header's value, "
                    f'and is no such name. Write {name} = "MY_VARIABLE", and set that variable'
                )


def _shown(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)
