"""The plain data that everything passes on: Question -> Episode -> Reward.

All types are frozen pydantic models that survive a round trip through JSON. `Question` ignores unknown keys,
because agent-lightning adds its own (`data_id`) to a row on the way, and so do the records of rollouts on disk; the
others forbid them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from foundation.grouping import grouped
from foundation.rollout_keys import DEFAULT_AGENT, RunKeys

StopReason = Literal["answered", "empty_answer", "max_turns", "repeated_call", "invalid_tool_call", "context_overflow"]


class Record(BaseModel):
    """Base of all records: immutable, and a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(Record):
    """One database cell that supports the reference answer."""

    source_table: str
    row_id: int | str
    field: str
    quote: str


AnswerMark = Literal["answer", "boxed"]  # where the answer stands in what was said
AnswerType = Literal["number", "date", "yes_no", "name", "list", "set", "text"]  # what it is; a list has an order
ANSWER_MARKS: tuple[AnswerMark, ...] = get_args(AnswerMark)
ANSWER_TYPES: tuple[AnswerType, ...] = get_args(AnswerType)


class Question(Record):
    """One row of a dataset.

    `answer` is the reference answer; empty means that none is known. `scorer` names an entry of
    `sql_agent.scoring.scorers.SCORERS`, empty means the configured default. `sql` holds reference queries. `db_id`
    names the question's database in `database.folder`. `agent` names one of the configuration's [agents], empty means
    [agent] itself. `file` is the number of its file in a run.
    `answer_schema` holds at most one of ANSWER_MARKS and one of ANSWER_TYPES, with a blank between: "boxed number".
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    question: str = Field(min_length=1)
    answer: str = ""
    scorer: str = ""
    agent: str = ""
    answer_schema: str = ""
    task_type: str = ""
    db_id: str = ""
    sql: list[str] = Field(default_factory=list)
    evidence: list[Evidence] = Field(default_factory=list)
    meta: dict[str, Any] = Field(default_factory=dict)
    file: int = 0

    @field_validator("answer", "scorer", "agent", "answer_schema", "task_type", "db_id", mode="before")
    @classmethod
    def _null_is_empty(cls, value: Any) -> Any:
        return "" if value is None else value

    @field_validator("answer_schema")
    @classmethod
    def _schema_is_known(cls, value: str) -> str:
        words = value.split()
        both = [[word for word in words if word in allowed] for allowed in (ANSWER_MARKS, ANSWER_TYPES)]
        if max(map(len, both)) > 1 or sum(map(len, both)) < len(words):
            types = ", ".join(ANSWER_TYPES)
            raise ValueError(f"it may hold answer or boxed, and one of {types}, with a blank between")
        return " ".join(words)

    @property
    def answer_mark(self) -> AnswerMark | Literal[""]:
        """What marks the answer in a reply; "": nothing, all of it is the answer."""
        words = self.answer_schema.split()
        marks: list[AnswerMark] = [mark for mark in ANSWER_MARKS if words.count(mark)]
        return marks[0] if marks else ""

    @property
    def answer_type(self) -> AnswerType | Literal[""]:
        """What the row says that its answer is; "": nothing."""
        words = self.answer_schema.split()
        types: list[AnswerType] = [kind for kind in ANSWER_TYPES if words.count(kind)]
        return types[0] if types else ""

    @field_validator("sql", "evidence", "meta", mode="before")
    @classmethod
    def _decode_json(cls, value: Any, info: Any) -> Any:
        """Parquet columns carry nested fields as JSON text (a stable schema for any user's data)."""
        if isinstance(value, str):
            value = json.loads(value) if value.strip() else None
        return value if value is not None else ({} if info.field_name == "meta" else [])


class QueryResult(Record):
    """What a query gave. `error` is None, or text that the model may read."""

    columns: list[str] = Field(default_factory=list)
    rows: list[list[Any]] = Field(default_factory=list)
    truncated: bool = False
    elapsed_s: float = 0.0
    error: str | None = None

    @property
    def ok(self) -> bool:
        """True when the query ran to its end (an empty result is still ok)."""
        return self.error is None


class SqlCall(Record):
    """One call of the SQL tool: the text that ran, its result, and the turn (from 1) that asked for it."""

    sql: str
    result: QueryResult
    turn: int = 1


ToolOutcome = Literal["ok", "cut", "error", "timeout", "bad_arguments"]


class ToolCall(Record):
    """One call of a tool that is not the SQL tool: what the model wrote, what it saw, and how the call ended.

    `outcome`: ok; cut (the result was longer than allowed); error (the tool raised); timeout; bad_arguments.
    """

    name: str
    arguments: str = ""
    result: str = ""
    outcome: ToolOutcome = "ok"
    turn: int = 1
    elapsed_s: float = 0.0

    @property
    def ok(self) -> bool:
        """True when the tool ran to its end."""
        return self.outcome in ("ok", "cut")


class LlmCall(Record):
    """One answered LLM call: seconds as the client saw them, tokens as the endpoint counted them (None: not told)."""

    elapsed_s: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


# What went on from when to when: generation, tool or judge, and two times in seconds since the epoch.
Moment = tuple[str, float, float]


class Played(BaseModel):
    """What an episode did, and its record too. `messages` is what was said after the question (see transcript.py).

    `n_untrained_calls` of the `n_turns` LLM calls were of agents that are not trained (agent.match). `output` is what
    a foreign program printed. `logprob`: of all tokens of the policy, where it was asked for and every call told it.
    """

    sql_calls: list[SqlCall] = Field(default_factory=list)
    tool_calls: list[ToolCall] = Field(default_factory=list)
    n_turns: int = 0
    n_untrained_calls: int = 0
    n_bad_tool_calls: int = 0
    output: str = ""
    logprob: float | None = None
    messages: list[dict[str, Any]] = Field(default_factory=list)
    timeline: list[Moment] = Field(default_factory=list)

    @property
    def executed_sql(self) -> bool:
        """True when at least one query ran without error."""
        return any(call.result.ok for call in self.sql_calls)

    @property
    def used_a_tool(self) -> bool:
        """True when at least one call of a tool, a query or another, ran to its end."""
        return self.executed_sql or any(call.ok for call in self.tool_calls)


class Episode(Played, Record):
    """One run of the agent on one question. `environment_reward` is what its environment gave, None where none did."""

    question: Question
    final_answer: str = ""
    stop_reason: StopReason = "answered"
    elapsed_s: float = 0.0
    llm_calls: list[LlmCall] = Field(default_factory=list)
    environment_reward: float | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Over all LLM calls, the same text counted in each; None when the endpoint did not tell."""
        return _sum(call.prompt_tokens for call in self.llm_calls)

    @property
    def completion_tokens(self) -> int | None:
        """Over all LLM calls; None when the endpoint did not tell."""
        return _sum(call.completion_tokens for call in self.llm_calls)


def _sum(counts: Iterable[int | None]) -> int | None:
    all_counts = list(counts)
    return None if not all_counts or None in all_counts else sum(count or 0 for count in all_counts)


class Score(Record):
    """A value in [0, 1], or unscored with a reason. Unscored is never 0."""

    value: float | None = Field(default=None, ge=0.0, le=1.0, allow_inf_nan=False)
    unscored: str = ""
    explanation: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_both(self) -> Score:
        if (self.value is None) == (self.unscored == ""):
            raise ValueError("a Score has either a value in [0, 1] or a reason in `unscored`, not both or neither")
        return self


class Reward(Record):
    """What a rollout earned: `parts` sum up to `total`; or `unscored` with the reason and no total."""

    total: float | None = Field(default=None, allow_inf_nan=False)
    parts: dict[str, float] = Field(default_factory=dict)
    unscored: str = ""
    explanation: str = ""
    scorer: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)


Decoding = Literal["sampled", "greedy"]
TrialKey = tuple[str, str, str, str, int]  # model, split, decoding, question id, sample


class AskedRecord(BaseModel):
    """The question of a rollout as it is written down, at the beginning of its line."""

    question_id: str = ""
    question: str = ""
    reference: str = ""
    agent: str = ""
    db_id: str = ""
    task_type: str = ""


class RolloutRecord(Played, AskedRecord):
    """One rollout as it is written down: a line of rollouts.jsonl, of trials.jsonl and of the try-out's --json.

    Keys that a file lacks have their defaults, those that nobody reads are ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    answer: str = ""
    stop_reason: StopReason | Literal["fault"] = "fault"
    reward: float | None = None
    reward_parts: dict[str, float] = Field(default_factory=dict)
    unscored: str = ""
    judge: str = ""
    reason: str = ""
    fault: dict[str, str] = Field(default_factory=dict)  # of a tool: its name, and a word for the reason
    judge_usage: dict[str, int | float] = Field(default_factory=dict)
    judge_item: dict[str, Any] | None = None
    awaits: dict[str, float] = Field(default_factory=dict)  # parts that await the group, and their weights
    episode_s: float = 0.0
    llm_seconds: list[float] = Field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def n_trained_calls(self) -> int:
        """LLM calls that training uses."""
        return self.n_turns - self.n_untrained_calls

    @property
    def answer_score(self) -> float | None:
        """The reward without the bonus; None without a reward."""
        return None if self.reward is None else sum((v for k, v in self.reward_parts.items() if k != "sql"), 0.0)

    @property
    def found_rows(self) -> bool:
        """True when at least one query gave a row."""
        return any(call.result.rows for call in self.sql_calls)


class RunRecord(RolloutRecord, RunKeys):
    """A line of rollouts.jsonl: the rollout, and what the trainer knows of it."""


class TrialRecord(RolloutRecord):
    """A line of trials.jsonl: the rollout, its place, its `execution_match` (None: the reason in `no_match`)."""

    model: str = ""
    split: str = ""
    decoding: Decoding = "sampled"
    sample: int = 0
    execution_match: float | None = None
    no_match: str = ""

    @property
    def key(self) -> TrialKey:
        return self.model, self.split, self.decoding, self.question_id, self.sample


def by_agent[R: AskedRecord](records: Sequence[R]) -> dict[str, list[R]]:
    """The records of each agent, by name; {} where no row names one."""
    groups = grouped(records, lambda record: record.agent or DEFAULT_AGENT)
    return dict(sorted(groups.items())) if any(record.agent for record in records) else {}


def rollout_record(question: Question, episode: Episode | None, reward: Reward) -> RolloutRecord:
    """The record of one rollout; `episode` is None after a fault."""
    about = RolloutRecord(
        question_id=question.id,
        question=question.question,
        reference=question.answer,
        agent=question.agent,
        db_id=question.db_id,
        task_type=question.task_type,
        reward=reward.total,
        reward_parts=reward.parts,
        unscored=reward.unscored,
        judge=reward.scorer,
        reason=reward.explanation,
        fault=reward.metadata.get("fault", {}),
        judge_usage=reward.metadata.get("judge_usage", {}),
        judge_item=reward.metadata.get("item"),
        awaits=reward.metadata.get("awaits", {}),
    )
    if episode is None:
        return about
    played = {
        **{name: getattr(episode, name) for name in Played.model_fields},
        "answer": episode.final_answer,
        "stop_reason": episode.stop_reason,
        "episode_s": episode.elapsed_s,
        "llm_seconds": [call.elapsed_s for call in episode.llm_calls],
        "prompt_tokens": episode.prompt_tokens,
        "completion_tokens": episode.completion_tokens,
        "timeline": [(kind, round(a, 3), round(b, 3)) for kind, a, b in episode.timeline],
    }
    return about.model_copy(update=played)
