"""Plausible run folders for tests of the report, written through the project's own functions.

A made-up agent answers questions on four made-up drugs; its chance to be right rises with the steps. `hostile` texts go
into every field that a model, a judge, a database or a user's file can fill. tests/wire/test_run_report.py checks that
the real evaluate.py writes what is made here.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from foundation import run_folder
from foundation.files import append_lines, write_json
from foundation.versions import versions
from sql_agent.config import build_config, load_recipe
from sql_agent.evaluation.measures import compare, summarize
from sql_agent.evaluation.results import Counts, EvalReport
from sql_agent.records import Episode, QueryResult, Question, Reward, SqlCall, TrialRecord, rollout_record
from sql_agent.training.summary import build_summary

DRUGS = {
    "甲硝酚片": {"indications": "用于缓解轻度头痛", "dosage": "口服，一次1片，一日2次", "company_name": "青禾制药"},
    "乙羟胺胶囊": {"indications": "用于季节性鼻炎", "dosage": "口服，一次2粒，一日1次", "company_name": "云岭药业"},
    "丙苯唑颗粒": {"indications": "用于消化不良", "dosage": "冲服，一次1袋，一日3次", "company_name": "江畔制药"},
    "丁酰胺注射液": {"indications": "用于术后镇痛", "dosage": "静脉滴注，一日1次", "company_name": "北原生物"},
}
FIELDS = {"indications": "适应症", "dosage": "用法用量", "company_name": "生产企业"}
Tree = dict[str, Any]


def ask(number: int) -> tuple[Question, str, str, str]:
    """A question with its drug, column and right value."""
    drug = list(DRUGS)[number % 4]
    field = list(FIELDS)[number // 4 % 3]
    value = DRUGS[drug][field]
    form = ("{d}的{f}是什么？", "请问{d}的{f}？", "查一下{d}的{f}。")[number // 12 % 3]
    question = Question(
        id=f"q-{number:04d}",
        question=form.format(d=drug, f=FIELDS[field]),
        answer=f"{drug}的{FIELDS[field]}：{value}。",
        task_type=("drug_field", "disease_field", "compare_drugs")[number % 3],
    )
    return question, drug, field, value


def play(number: int, *, skill: float, rng: random.Random) -> Tree:
    """The record of one rollout; right with probability `skill`, else with one of three usual mistakes."""
    question, drug, field, value = ask(number)
    right = rng.random() < skill
    mistake = "" if right else rng.choice(("name", "column", "sql"))
    name = drug[:2] if mistake == "name" else drug
    column = "company_name" if mistake == "column" and field != "company_name" else field
    sql = f"SELECT {column} FROM drugs_info WHERE med_name = '{name}'"
    if mistake == "sql":
        sql = f"SELECT {field}s FROM drugs_info WHERE med_name = '{drug}'"
        result = QueryResult(error=f"no such column: {field}s. Did you mean {field}?", elapsed_s=0.001)
    else:
        rows = [[DRUGS[drug][column]]] if name == drug else []
        result = QueryResult(columns=[column], rows=rows, elapsed_s=0.002)
    told = result.rows[0][0] if result.rows else ""
    answer = f"{drug}的{FIELDS[field]}：{told}。" if told else "数据库中没有这一条记录。"
    grade = 1.0 if right else 0.25 if told and column == field else 0.0
    bonus = 0.1 if result.ok else 0.0
    episode = Episode(
        question=question, final_answer=answer, sql_calls=[SqlCall(sql=sql, result=result)], n_turns=2, elapsed_s=0.8
    )
    missing = "" if right else f", missing: {value}"
    reason = f"coverage {grade:.2f}, support {grade:.2f}{missing}"
    reward = Reward(
        total=bonus + grade, parts={"sql": bonus, "answer": grade}, explanation=reason, scorer="offline reference judge"
    )
    return rollout_record(question, episode, reward).model_dump()


def lost(number: int) -> Tree:
    """The record of a rollout that a fault ended."""
    question = ask(number)[0]
    fault = Reward(unscored="llm_fault", explanation="the model server answered with HTTP 500")
    return rollout_record(question, None, fault).model_dump()


def metrics_row(step: int, of_steps: int, rollouts: list[Tree], *, rng: random.Random) -> Tree:
    """What a training step writes."""
    scored = [r for r in rollouts if not r["unscored"]]
    parts: dict[str, list[float]] = defaultdict(list)
    for row in scored:
        for name, value in row["reward_parts"].items():
            parts[name].append(value)
    share = step / of_steps
    row = {
        **{"kind": "train", "step": step, "of_steps": of_steps, "seconds": 9.0 + rng.random()},
        **{"actor/entropy_loss": 0.5 * (1 - 0.7 * share) + 0.02 * rng.random(), "actor/grad_norm": 0.3 + rng.random()},
        **{"actor/pg_clipfrac": 0.01 * rng.random(), "actor/ppo_kl": 0.0005 * rng.random(), "actor/pg_loss": 0.01},
        **{"actor/weights_changed_share": 1.0, "batch/rows": len(rollouts), "batch/rows_cut": int(rng.random() < 0.1)},
        **{"timing_s/gen": 5.0 + rng.random(), "timing_s/old_log_prob": 1.0, "timing_s/update_actor": 2.0},
        **{"rollout/rollouts": len(rollouts), "rollout/scored": len(scored), "rollout/groups": 4},
        **{"rollout/zero_variance_groups": rng.randint(0, 2), "rollout/turns_mean": 2.0},
        **{"rollout/reward_mean": statistics.fmean(r["reward"] for r in scored)},
        **{"rollout/response_tokens_mean": 60 + 20 * rng.random(), "rollout/stop/answered": len(scored)},
        **{f"rollout/reward_parts/{name}": statistics.fmean(values) for name, values in parts.items()},
    }
    if len(scored) < len(rollouts):
        row["rollout/unscored/llm_fault"] = len(rollouts) - len(scored)
    row |= {"time/generation": 3.6, "time/tool": 0.3, "time/judge": 0.2, "time/old_log_prob": 1.0}
    row |= {"time/update": 2.0, "time/weight_sync": 0.4, "time/store_adapter": 0.6, "time/idle": 0.3}
    row |= {"health/repeat_share": 0.4 * share, "health/kl_to_start": 0.05 * share, "health/new_sign": 0.5}
    row |= {"health/entropy": row["actor/entropy_loss"], "health/clip_share": row["actor/pg_clipfrac"]}
    row |= {"health/truncation_share": row["batch/rows_cut"] / len(rollouts)}
    row |= {"health/unscored_share": 1 - len(scored) / len(rollouts), "health/zero_variance_share": 0.25}
    row |= {"time/other": row["seconds"] - 8.4, "health/reward_mean": row["rollout/reward_mean"]}
    pools = {"new": 90 - step, "never": step // 3, "hard": step // 4, "middle": step // 5, "easy": 2, "always": 1}
    row |= {f"curriculum/{name}": n for name, n in pools.items()}
    if step == 30:
        row["warnings"] = ["step 30: health/repeat_share is 0.3, above health.repeat_share_max = 0.3"]
    return row


def make_run(folder: Path, *, steps: int = 40, seed: int = 1, validate_every: int = 10, questions: int = 4) -> Path:
    """A finished run of `steps` steps with `questions` x 4 rollouts each, validated now and then."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    config = build_config(load_recipe("demo_cpu"), {"trainer": {"max_steps": steps}})
    write_json(folder / run_folder.CONFIG, config.model_dump())

    def validate(step: int) -> None:
        rows = [play(n, skill=0.2 + 0.6 * step / max(1, steps), rng=rng) for n in range(36)]
        keep(folder, rows, step=step, mode="val")
        mean = statistics.fmean(r["reward"] for r in rows)
        found = {"val/reward_mean": mean, "val/scored": len(rows), "val/rollouts": len(rows)}
        row = {"kind": "val", "step": step, "of_steps": steps, "seconds": 3.0, **found}
        append_lines(folder / run_folder.METRICS, [row])

    validate(0)
    probed = {"kind": "probe", "step": 0, "seconds": 1.0, "probe/groups": 12, "probe/flat": 5, "curriculum/new": 90}
    append_lines(folder / run_folder.METRICS, [probed])
    for step in range(1, steps + 1):
        rows = []
        for group in range(questions):
            played = [play(step * 7 + group, skill=0.25 + 0.55 * step / steps, rng=rng) for _ in range(4)]
            rows += [{**row, "group": f"g{step}-{group}"} for row in played]
        if step % 9 == 0:
            rows[-1] = {**lost(step), "group": rows[-1]["group"]}
        keep(folder, rows, step=step, mode="train")
        append_lines(folder / run_folder.METRICS, [metrics_row(step, steps, rows, rng=rng)])
        if step % validate_every == 0:
            validate(step)
    facts = {
        **{"status": "finished", "error": "", "recipe": "demo_cpu", "total_steps": steps, "device": "cpu"},
        **{"judge": "offline reference judge", "model": {"path": "models/tiny", "lora_rank": 0}},
        **{"data": {"train": {"fingerprint": "0123abcd", "questions": 1900}}, "versions": versions()},
    }
    summary = build_summary(folder, total_s=steps * 10.0 + 90, peak_memory_gib=6.5, facts=facts)
    write_json(folder / run_folder.SUMMARY, summary)
    return folder


def keep(folder: Path, rows: list[Tree], *, step: int, mode: str) -> None:
    """Append rollouts as the daemon does."""
    extra = {
        "step": step,
        "mode": mode,
        "status": "succeeded",
        "prompt_tokens_by_call": [60, 90],
        "response_tokens": [14, 20],
    }
    append_lines(folder / run_folder.ROLLOUTS, [{"group": "", **row, **extra} for row in rows])


def add_evaluation(folder: Path, *, models: tuple[str, ...] = ("before", "after"), seed: int = 2, n: int = 36) -> Path:
    """An evaluation of one or two models on two splits, in the run folder."""
    rng = random.Random(seed)
    skills = {"before": 0.25, "after": 0.8}
    out = folder / "evaluation"
    out.mkdir(exist_ok=True)
    trials: list[Tree] = []
    for model in models:
        for split in ("test_entities", "test"):
            for decoding, samples in (("sampled", 4), ("greedy", 1)):
                skill = skills.get(model, 0.5) - (0.15 if split == "test" else 0) + (0.1 if samples == 1 else 0)
                for number in range(n):
                    for sample in range(samples):
                        record = lost(number) if rng.random() < 0.01 else play(number, skill=skill, rng=rng)
                        place = {"model": model, "split": split, "decoding": decoding, "sample": sample}
                        trials.append({**place, **record, "execution_match": None, "no_match": "no_reference_sql"})
    append_lines(out / "trials.jsonl", trials)
    results_of(trials).write(out / "results.json")
    return out


def results_of(trials: list[Tree]) -> EvalReport:
    """results.json, with the figures that evaluate.py computes."""
    found: dict[str, dict[str, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    for trial in map(TrialRecord.model_validate, trials):
        found[trial.model][f"{trial.split}/{trial.decoding}"].append(trial)
    before, after = found.values() if len(found) == 2 else ({}, {})
    names = {model: f"models/{model}" for model in found}
    return EvalReport(
        **{"started": "2026-01-01T00:00:00+00:00", "seconds": 60.0, "partial": False, "samples": 4},
        **{"trials": Counts(planned=len(trials), played=len(trials)), "targets": names, "labels": names},
        **{"questions": {}, "judge": "offline reference judge", "database": "0123abcd", "keys": []},
        models={model: {key: summarize(group) for key, group in keys.items()} for model, keys in found.items()},
        delta={key: compare(before[key], after[key]) for key in before},
        delta_by_task={},
    )
