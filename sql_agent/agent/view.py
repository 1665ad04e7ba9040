"""One asked question as people read it and as JSON: the SQL with its rows, the answer, the reward and its reasons.

Guarantees: text from a model or a database is shown as it is, never as markup; control characters, which could move
the cursor or recolour the terminal, are written out.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from foundation.console import clean
from sql_agent.agent.sql_tool import QUERY
from sql_agent.records import Episode, QueryResult, Question, Reward, SqlCall, rollout_record
from sql_agent.scoring.scorers import NO_REFERENCE

SHOWN_ROWS = 5
SHOWN_COLUMNS = 5  # more of them are written below each other
SHOWN_CELL_CHARS = 120


@dataclass(frozen=True)
class Outcome:
    """A question with its episode and reward, or with the fault that prevented them."""

    question: Question
    episode: Episode | None = None
    reward: Reward | None = None
    fault_kind: str = ""
    fault: str = ""

    @property
    def failed(self) -> str:
        """The kind of fault: of the endpoint, the database or the judge; empty for none. No reference is no fault."""
        unscored = self.reward.unscored if self.reward else ""
        return self.fault_kind or (unscored if unscored != NO_REFERENCE else "")


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain JSON, with the keys of rollouts.jsonl."""
    fault = Reward(unscored=outcome.fault_kind or "fault", explanation=outcome.fault)
    return rollout_record(outcome.question, outcome.episode, outcome.reward or fault).model_dump()


def show(console: Console, outcome: Outcome, *, number: int, of: int) -> None:
    question = outcome.question
    title = " · ".join(part for part in (f"{number}/{of}", question.id, question.agent, question.task_type) if part)
    console.print()
    console.print(Rule(Text(clean(title)), align="left"))
    console.print(Text(clean(question.question), style="bold"))
    if outcome.episode is None:
        console.print(Text(f"{outcome.fault_kind}: {clean(outcome.fault)}", style="red"))
        return
    show_calls(console, outcome.episode.sql_calls)
    _show_other_tools(console, outcome.episode)
    _show_end(console, outcome.episode)
    if outcome.reward is not None:
        _show_reward(console, outcome.reward)
    if question.answer:
        console.print(Text.assemble(("reference  ", "dim"), clean(question.answer)))


def show_calls(console: Console, calls: list[SqlCall]) -> None:
    for call in calls:
        console.print(Text(f"\nturn {call.turn}", style="dim"))
        sql = Syntax(clean(call.sql), "sql", theme="ansi_dark", background_color="default", word_wrap=True)
        console.print(Padding(sql, (0, 0, 0, 2)))
        result = call.result
        if result.error is not None:
            console.print(Padding(Text(clean(result.error), style="red"), (0, 0, 0, 2)))
            continue
        if result.rows:
            console.print(Padding(_rows(result), (0, 0, 0, 2)))
        console.print(Padding(Text(_count(result), style="dim"), (0, 0, 0, 2)))


def _show_other_tools(console: Console, episode: Episode) -> None:
    """Calls of tools that are not SQL, and those that were not run: name, arguments, the beginning of the result."""
    results = {message.get("tool_call_id"): message["content"] for message in episode.messages}
    replies = [message for message in episode.messages if message["role"] == "assistant"]
    for turn, reply in enumerate(replies, start=1):
        for call in reply["tool_calls"]:
            is_run = call["id"] in results
            if call["name"] != QUERY or not is_run:
                console.print(Text(f"\nturn {turn}", style="dim"))
                console.print(Padding(Text(clean(f"{call['name']} {call['arguments']}")), (0, 0, 0, 2)))
                result = _cell(results[call["id"]]) if is_run else Text("was not run", style="yellow")
                console.print(Padding(result, (0, 0, 0, 2)))


def _rows(result: QueryResult) -> Table:
    if len(result.columns) <= SHOWN_COLUMNS:
        table = Table()
        for name in result.columns:
            table.add_column(Text(clean(name)))
        for row in result.rows[:SHOWN_ROWS]:
            table.add_row(*(_cell(value) for value in row))
        return table
    table = Table("column", "first row")
    for name, value in zip(result.columns, result.rows[0], strict=True):
        table.add_row(Text(clean(name)), _cell(value))
    return table


def _cell(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    text = clean(str(value))
    return Text(text if len(text) <= SHOWN_CELL_CHARS else text[:SHOWN_CELL_CHARS] + "…")


def _count(result: QueryResult) -> str:
    shown = SHOWN_ROWS if len(result.columns) <= SHOWN_COLUMNS else 1
    parts = [f"{len(result.rows)} row(s)"]
    parts += [f"{shown} shown"] if len(result.rows) > shown else []
    parts += ["there are more"] if result.truncated else []
    return ", ".join([*parts, f"{result.elapsed_s * 1000:.0f} ms"])


def _show_end(console: Console, episode: Episode) -> None:
    bad = f", {episode.n_bad_tool_calls} bad tool call(s)" if episode.n_bad_tool_calls else ""
    n_others = len(episode.tool_calls)
    calls = f"{len(episode.sql_calls)} SQL call(s)" + (f", {n_others} other tool call(s)" if n_others else "")
    end = f"\n{episode.stop_reason} after {episode.n_turns} turn(s), {calls}{bad}, {episode.elapsed_s:.1f} s"
    console.print(Text(end, style="dim" if episode.stop_reason == "answered" else "yellow"))
    if episode.final_answer:
        console.print(Panel(Text(clean(episode.final_answer)), title="answer", title_align="left"))


def _show_reward(console: Console, reward: Reward) -> None:
    if reward.total is None:
        text = Text.assemble(("reward     ", "dim"), (f"none ({reward.unscored})", "yellow"))
    else:
        parts = " + ".join(f"{name} {value:.3f}" for name, value in reward.parts.items())
        text = Text.assemble(("reward     ", "dim"), (f"{reward.total:.3f}", "bold green"), f" = {parts}")
    text.append(f"   scorer {clean(reward.scorer)}", style="dim")
    console.print(text)
    if reward.explanation:
        console.print(Text.assemble(("reason     ", "dim"), clean(reward.explanation)))


def summary_line(outcomes: list[Outcome]) -> str:
    """Means over what there is, with the counts they are over, and the faults by kind."""
    episodes = [o.episode for o in outcomes if o.episode]
    rewards = [o.reward.total for o in outcomes if o.reward and o.reward.total is not None]
    faults = Counter(o.failed for o in outcomes if o.failed)
    parts = [f"{len(outcomes)} question(s)"]
    parts.append(f"mean reward {statistics.fmean(rewards):.3f} over {len(rewards)}" if rewards else "none scored")
    if episodes:
        turns = statistics.fmean(e.n_turns for e in episodes)
        calls = statistics.fmean(len(e.sql_calls) for e in episodes)
        seconds = statistics.fmean(e.elapsed_s for e in episodes)
        parts.append(f"{turns:.1f} turns, {calls:.1f} SQL calls, {seconds:.1f} s each")
    parts.append("faults: " + (", ".join(f"{n} {kind}" for kind, n in faults.items()) or "none"))
    return "; ".join(parts)
