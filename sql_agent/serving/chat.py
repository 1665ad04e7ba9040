"""A conversation with the agent in a terminal: the answer as it is written, and each call of a tool as it runs.

Guarantees: what a model or tool says cannot move the cursor or recolour the terminal; Ctrl-C ends an answer, and the
program only when it comes again; a failure of endpoint, database or tool is told, and the conversation goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from contextlib import AbstractContextManager

from rich.console import Console
from rich.text import Text

from foundation.console import clean
from foundation.errors import Interrupted, UserError
from foundation.files import writable
from sql_agent.agent.conversation import Conversation, Stopped
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.view import show_calls
from sql_agent.config import AgentTree
from sql_agent.errors import Fault, LLMFault
from sql_agent.serving.endpoint import explain_fault

PROMPT = "you> "
SHOWN_CHARS = 300
HELP = """/sql    the calls of tools in the last answer that had any, with their results
/reset  forget what was said, and begin anew
/help   this
/quit   end; so does Ctrl-D. Ctrl-C ends an answer, and a second one the program"""


def check_runner(runner: EpisodeRunner, db_id: str) -> None:
    """Find what cannot work before the first message. Raises UserError."""
    runner.check()
    if (databases := runner.toolset.databases) and (problem := databases.problem(db_id)):
        raise UserError(f"--db-id: {problem}")


def chat(config: AgentTree, answering: AbstractContextManager[LLMEndpoint], db_id: str = "") -> None:
    """Read messages and answer them until /quit, the end of the input, or a second Ctrl-C. Raises UserError.

    Who answers is begun when all else was checked. `db_id` names the database where the configuration has a folder of
    them.
    """
    if custom := config.agent.custom_episode:
        raise UserError(f"{custom} plays one question an episode and cannot be talked to; `agentgrpo ask` asks it")
    out = Console(highlight=False, soft_wrap=True)
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() then edits lines and knows earlier ones
    with EpisodeRunner(config) as runner, asyncio.Runner() as loop:
        check_runner(runner, db_id)
        with answering as llm:
            chatting = Chat(Conversation(runner, llm, db_id), loop, out)
            out.print(Text(clean(f"model {llm.model} at {llm.base_url}; /help lists the commands"), style="dim"))
            try:
                chatting.run()
            finally:
                loop.run(chatting.conversation.reset())


class Chat:
    """The dialogue with the person."""

    def __init__(self, conversation: Conversation, loop: asyncio.Runner, out: Console) -> None:
        self.conversation, self._loop, self._out = conversation, loop, out
        self._interrupted = False
        self._kind = ""

    def run(self) -> None:
        """One line after the other."""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which asyncio.Runner replaces by: cancel the answer
        while True:
            try:
                # What is no UTF-8 comes as lone surrogates, which no request can hold.
                line = writable(input(PROMPT)).strip()
                self._interrupted = False
                if line == "/quit":
                    return
                self._take(line)
            except EOFError:
                self._out.print()
                return
            except Interrupted:  # SIGTERM
                raise
            except KeyboardInterrupt:
                if self._interrupted:
                    self._out.print()
                    return
                self._interrupted = True
                self._note("\ninterrupted; Ctrl-C again or /quit ends the program", style="yellow")

    def _take(self, line: str) -> None:
        if line == "/help":
            self._note(HELP)
        elif line == "/reset":
            self._loop.run(self.conversation.reset())
            self._note("a new conversation")
        elif line == "/sql":
            self._show_calls()
        elif line.startswith("/"):
            self._note(f"{line.split()[0]!r} is no command.\n{HELP}", style="yellow")
        elif line:
            self._answer(line)

    def _answer(self, line: str) -> None:
        self._kind = ""
        llm = self.conversation.llm
        timeout_s = self.conversation.llm_timeout_s
        try:
            self._loop.run(self.conversation.say(line, self._tell))
            self._out.print()
        except Stopped as stopped:
            self._note(f"\nstopped: {stopped}{' with /reset' * stopped.is_too_long}", style="yellow")
        except LLMFault as fault:
            self._note(f"\n{fault.kind}: {explain_fault(fault, llm, timeout_s=timeout_s)}", style="red")
        except Fault as fault:
            self._note(f"\n{fault.kind}: {fault}", style="red")

    def _tell(self, kind: str, text: str) -> None:
        if self._kind not in ("", kind):
            self._out.print()
        self._kind = kind
        if kind == "text":
            sys.stdout.write(clean(text))
            sys.stdout.flush()
        elif kind == "thought":
            self._out.print(Text(clean(text), style="dim"), end="")
        else:
            shown = " ".join(text.split())
            shown = shown if len(shown) <= SHOWN_CHARS else shown[:SHOWN_CHARS] + "…"
            self._out.print(Text(clean(f"{'→' if kind == 'call' else '←'} {shown}"), style="dim"), end="")

    def _show_calls(self) -> None:
        last = self.conversation.last
        show_calls(self._out, last.sql_calls)
        for call in last.tool_calls:
            self._note(f"\nturn {call.turn}  {call.name} {call.arguments}  ({call.outcome}, {call.elapsed_s:.1f} s)")
            self._note(call.result, style="")
        if not last.call_keys:
            self._note("no tool was called yet")

    def _note(self, text: str, *, style: str = "dim") -> None:
        self._out.print(Text(clean(text), style=style))
