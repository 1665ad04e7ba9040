"""The trials of an evaluation as logs of inspect-ai, one per model, split and decoding, for `inspect view`.

Guarantees: a log holds what results.json was made of: messages with tool calls and their answers, scores with the
judge's reason, tokens, and the error of a trial that a fault ended (which has no score). Needs the extra `eval`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from inspect_ai import log
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import Score
from inspect_ai.tool import ToolCall

from foundation.grouping import grouped
from foundation.stats import Estimate
from sql_agent.evaluation.measures import MEASURES, is_played
from sql_agent.evaluation.results import EvalReport
from sql_agent.records import TrialRecord

Prompts = Mapping[str, str]  # db_id -> the system prompt of its questions
# Score name in the log -> the measure of results.json that sums it up.
SCORES = {"reward": "reward", "answer": "answer score", "execution_match": "execution match"}


def write_logs(
    folder: Path, results: EvalReport, records: Iterable[TrialRecord], prompts: dict[str, Prompts]
) -> list[Path]:
    """Write the logs of an evaluation; `prompts` has those of each model. Returns their files."""
    groups = grouped(records, lambda record: (record.model, record.split, record.decoding))
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for (model, split, decoding), group in groups.items():
        file = folder / f"{model}-{split}-{decoding}.eval"
        log.write_eval_log(to_log(results, group, prompts=prompts[model]), file)
        files.append(file)
    return files


def to_log(results: EvalReport, records: Sequence[TrialRecord], *, prompts: Prompts) -> log.EvalLog:
    """The log of trials that share model, split and decoding."""
    model, split, decoding = records[0].model, records[0].split, records[0].decoding
    name = results.labels[model]
    ids = list(dict.fromkeys(record.question_id for record in records))
    figures = results.models[model][f"{split}/{decoding}"]
    return log.EvalLog(
        status="cancelled" if results.partial else "success",
        eval=log.EvalSpec(
            created=results.started,
            task=f"medical_sql_{split}_{decoding}",
            dataset=log.EvalDataset(name=split, samples=len(ids), sample_ids=ids),
            model=name,
            model_generate_config=GenerateConfig(temperature=1.0 if decoding == "sampled" else 0.0),
            config=log.EvalConfig(epochs=results.samples if decoding == "sampled" else 1),
            metadata={"judge": results.judge, "database": results.database, "role": model},
        ),
        plan=log.EvalPlan(steps=[log.EvalPlanStep(solver="sql_agent.agent.episode.EpisodeRunner")]),
        results=log.EvalResults(
            total_samples=len(records),
            completed_samples=sum(map(is_played, records)),
            scores=[_score(score, figures.measures[measure]) for score, measure in SCORES.items()],
        ),
        stats=log.EvalStats(started_at=results.started, completed_at=datetime.now(UTC).isoformat()),
        samples=[_sample(record, name, prompts[record.db_id]) for record in records],
    )


def _score(name: str, estimate: Estimate) -> log.EvalScore:
    """Mean and interval over questions; without questions no metric, as a log holds no NaN."""
    shown = {"mean": estimate.mean, "ci95_low": estimate.low, "ci95_high": estimate.high}
    metrics = {key: log.EvalMetric(name=key, value=value) for key, value in shown.items() if math.isfinite(value)}
    return log.EvalScore(name=name, scorer=name, metrics=metrics, metadata={"questions": estimate.n})


def _sample(record: TrialRecord, model: str, prompt: str) -> log.EvalSample:
    n_prompt, n_completion = record.prompt_tokens, record.completion_tokens
    usage = None
    if n_prompt is not None and n_completion is not None:
        usage = ModelUsage(input_tokens=n_prompt, output_tokens=n_completion, total_tokens=n_prompt + n_completion)
    notes = {"task_type", "stop_reason", "n_turns", "n_bad_tool_calls", "llm_seconds", "sql_calls", "no_match"}
    fault = None if is_played(record) else log.EvalError(message=record.reason, traceback="", traceback_ansi="")
    return log.EvalSample(
        id=record.question_id,
        epoch=record.sample + 1,
        input=record.question,
        target=record.reference,
        messages=_messages(record, prompt),
        output=ModelOutput.from_content(model, record.answer),
        scores=_scores(record),
        metadata=record.model_dump(include=notes),
        model_usage={model: usage} if usage else {},
        total_time=record.episode_s,
        error=fault,
    )


def _scores(record: TrialRecord) -> dict[str, Score]:
    """Only what has a value: an unscored trial is no 0 here either."""
    about = {"judge": record.judge, "parts": record.reward_parts}
    return {
        name: Score(value=value, answer=record.answer, explanation=record.reason, metadata=about)
        for name, measure in SCORES.items()
        if (value := MEASURES[measure](record)) is not None
    }


def _messages(record: TrialRecord, prompt: str) -> list[ChatMessage]:
    messages: list[ChatMessage] = [ChatMessageSystem(content=prompt), ChatMessageUser(content=record.question)]
    names: dict[str, str] = {}
    for message in record.messages:
        text = message["content"]
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            messages.append(ChatMessageTool(content=text, tool_call_id=call_id, function=names.get(call_id)))
        else:
            calls = [_tool_call(call) for call in message["tool_calls"]]
            names |= {call.id: call.function for call in calls}
            messages.append(ChatMessageAssistant(content=text, tool_calls=calls or None))
    return messages


def _tool_call(call: dict[str, str]) -> ToolCall:
    """Arguments that are no JSON object are kept as they came, with a note."""
    try:
        arguments = json.loads(call["arguments"])
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(id=call["id"], function=call["name"], arguments=arguments)
    raw = {"raw": call["arguments"]}
    return ToolCall(id=call["id"], function=call["name"], arguments=raw, parse_error="no JSON object")
