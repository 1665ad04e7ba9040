"""Playing an evaluation's episodes with system prompts that a search proposes, and telling how they did.

Guarantees: the same agent and scorers as in training; each prompt stands in a file of its own; every trial is written
when it ends. A validation row is played once per prompt (greedily), however often the search asks for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foundation.errors import RunError
from foundation.files import append_lines, write_json, write_text
from foundation.stats import Difference, Estimate, difference, estimate
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import AgentTree
from sql_agent.evaluation.folder import TRIALS
from sql_agent.evaluation.trials import Setting, Trial, play
from sql_agent.records import Decoding, Question, TrialRecord
from sql_agent.scoring.registry import ScoringContext

PROMPTS, BEST, RESULTS, REPORT = "prompts", "best_prompt.txt", "results.json", "report.md"


class EpisodesSpent(RunError):
    """The search may play no more episodes."""


@dataclass
class PromptTrials:
    """All trials of a search. `max_episodes` 0: no limit."""

    config: AgentTree
    llm: LLMEndpoint
    scoring: ScoringContext
    folder: Path
    concurrency: int
    max_episodes: int = 0
    prompts: list[str] = field(default_factory=list)
    val: dict[tuple[str, str], TrialRecord] = field(default_factory=dict)
    n_episodes: int = 0

    async def play(self, prompt: str, mode: str, rows: Sequence[Question]) -> list[dict[str, Any]]:
        """What each row gave with this prompt, in the form that APO reads. Raises EpisodesSpent, LLMFault."""
        name = self.name_of(prompt)
        known = self.val if mode == "val" else {}
        todo = {row.id: row for row in rows if (name, row.id) not in known}
        if self.max_episodes and self.n_episodes + len(todo) > self.max_episodes:
            raise EpisodesSpent(f"--max-episodes {self.max_episodes}: {self.n_episodes} of them are played")
        records = {row.id: known[name, row.id] for row in rows if row.id not in todo}
        records |= await self._played(name, mode, list(todo.values()))
        return [_for_apo(records[row.id]) for row in rows]

    async def _played(self, name: str, mode: str, rows: list[Question]) -> dict[str, TrialRecord]:
        decoding: Decoding = "greedy" if mode == "val" else "sampled"
        trials = [Trial(name, mode, decoding, row, self.n_episodes + n) for n, row in enumerate(rows)]
        records: dict[str, TrialRecord] = {}

        def on_done(record: TrialRecord) -> None:
            append_lines(self.folder / TRIALS, [record.model_dump()])
            records[record.question_id] = record
            if mode == "val" and record.reward is not None:
                self.val[name, record.question_id] = record

        with EpisodeRunner(self.config.but(agent={"system_prompt": str(self._file(name))})) as runner:
            setting = Setting(self.llm, runner, self.scoring)
            await play(trials, setting, concurrency=self.concurrency, on_done=on_done)
        self.n_episodes += len(rows)
        return records

    def name_of(self, prompt: str) -> str:
        """v0, v1 ... in the order in which prompts were first played."""
        if prompt not in self.prompts:
            self.prompts.append(prompt)
            write_text(self._file(f"v{len(self.prompts) - 1}"), prompt + "\n")
        return f"v{self.prompts.index(prompt)}"

    def _file(self, name: str) -> Path:
        return self.folder / PROMPTS / f"{name}.txt"

    def rewards(self, name: str) -> dict[str, float]:
        """Validation question -> reward with this prompt."""
        return {q: r.reward for (n, q), r in self.val.items() if n == name and r.reward is not None}

    def report(self, best: str, *, n_val: int, n_calls: int, ended: str) -> dict[str, Any]:
        """Write best_prompt.txt, results.json and report.md; returns what results.json has."""
        name = self.name_of(best)
        write_text(self.folder / BEST, best + "\n")
        means = {f"v{n}": estimate(list(self.rewards(f"v{n}").values())) for n in range(len(self.prompts))}
        change = difference(self.rewards("v0"), self.rewards(name), test=True)
        tree = {
            "ended": ended,
            "best": name,
            "best_sha256": hashlib.sha256(best.encode()).hexdigest()[:16],
            "prompts": {key: vars(mean) for key, mean in means.items()},
            "difference": vars(change),
            "validation_questions": n_val,
            "episodes": self.n_episodes,
            "optimiser_calls": n_calls,
        }
        write_json(self.folder / RESULTS, tree)
        write_text(self.folder / REPORT, _markdown(means, name, change, ended=ended, n_val=n_val))
        return tree


def _for_apo(record: TrialRecord) -> dict[str, Any]:
    """A trial as APO's critic sees it: the conversation, its reward and why."""
    grade = {"role": "user", "content": f"[grader] reward {record.reward}: {(record.reason or record.unscored)[:500]}"}
    status = "failed" if record.reward is None else "succeeded"
    return {"status": status, "final_reward": record.reward, "messages": [*record.messages, grade], "spans": []}


REPORT_TEXT = """# Search for a system prompt

Ended: {ended}. Best: {best}, {change} against v0{p} (paired).

Mean reward, greedy, with its 95 % interval, of up to {n_val} validation questions. The best was chosen on
them: measure it on held-out questions before you believe the difference.

| prompt | mean reward | questions |
| --- | --- | --- |
{rows}
"""


def _markdown(means: dict[str, Estimate], best: str, change: Difference, *, ended: str, n_val: int) -> str:
    rows = [f"| {'**' + key + '**' if key == best else key} | {mean} | {mean.n} |" for key, mean in means.items()]
    p = "" if change.p is None else f", p = {change.p:.4f}"
    return REPORT_TEXT.format(ended=ended, best=best, change=change, p=p, n_val=n_val, rows="\n".join(rows))
