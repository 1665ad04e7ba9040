"""`agentgrpo judge-report`: judges on judged answers, and what they pay to cheats; as tables, JSON and picture.

Guarantees: scores come from the scorers of training; the offline reference judge is always measured, the LLM judge when
TEACHER_* is set; an item that a judge could not score is counted by reason and in no rate. The figures are defined in
judge_audit/metrics.py and figures.py, the policies in hacks.py. Not covered: measuring reward models.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from foundation.command import given
from foundation.console import notes
from foundation.errors import UserError
from foundation.files import fingerprint, write_json, write_lines
from sql_agent.agent.grading import scoring_of
from sql_agent.config import HOME, RewardConfig, build_config, command_tree, load_recipe
from sql_agent.config.commands import JUDGE
from sql_agent.data.build import build_bundled
from sql_agent.judge_audit.figures import SECONDS, Measured, figures, value_of
from sql_agent.judge_audit.hacks import attempts
from sql_agent.judge_audit.items import BUNDLED_ITEMS, REWRITINGS, JudgedItem, Rewriting, load_items, rewrite
from sql_agent.judge_audit.view import draw_calibration, show
from sql_agent.records import Episode, Evidence, QueryResult, Question, Reward, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import check_llm
from sql_agent.scoring.reward import score
from sql_agent.scoring.scorers import ScoringContext
from sql_agent.training.probe import findings
from sql_agent.training.probe import probe as probe_fields
from sql_agent.training.questions import load_data

OFFLINE = "reference"
PROBED = 200  # questions
OF_PROBE = ("probe", "recipe", "set_", "out")
QUERY = SqlCall(sql="SELECT 1", result=QueryResult(columns=["1"], rows=[[1]]))


async def score_items(
    items: Sequence[JudgedItem | None], scorer: str, context: ScoringContext, *, tell: Callable[[], None]
) -> list[Reward | None]:
    """The reward of each item, with the seconds that it took: an LLM judge is asked all at once (how many calls are in
    flight is its own business), the offline judge one by one, so that nobody's wait is counted."""
    turn = asyncio.Semaphore(1 if scorer == OFFLINE else max(1, len(items)))

    async def judged(item: JudgedItem | None) -> Reward | None:
        async with turn:
            started_s = time.monotonic()
            reward = await score(as_episode(item, scorer), context) if item else None
            took = {SECONDS: time.monotonic() - started_s}
        tell()
        return reward and reward.model_copy(update={"metadata": reward.metadata | took})

    return list(await asyncio.gather(*(judged(item) for item in items)))


def as_episode(item: JudgedItem, scorer: str) -> Episode:
    """The item as an episode that ends with its answer, after a query that ran: what is measured is the answer."""
    evidence = [Evidence(source_table="", row_id="", field="", quote=quote) for quote in item.evidence]
    question = Question(id=item.id, question=item.question, answer=item.reference, scorer=scorer, evidence=evidence)
    return Episode(question=question, final_answer=item.answer, sql_calls=[QUERY])


def measure(
    items: list[JudgedItem],
    judge: Measured,
    context: ScoringContext,
    *,
    rewritings: Sequence[Rewriting],
    strategies: dict[str, list[JudgedItem]],
) -> None:
    """Score everything once, with a progress bar."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    total = len(items) * (1 + len(rewritings)) + sum(map(len, strategies.values()))
    started_s = time.monotonic()
    with Progress(*columns, console=notes, transient=True) as progress:
        task = progress.add_task(escape(judge.name), total=total)

        def scored(group: Sequence[JudgedItem | None]) -> list[Reward | None]:
            return asyncio.run(score_items(group, judge.scorer, context, tell=lambda: progress.advance(task)))

        judge.plain = [reward for reward in scored(items) if reward]
        judge.rewritten |= {how: scored([rewrite(item, how) for item in items]) for how in rewritings}
        judge.strategies |= {name: [reward for reward in scored(tried) if reward] for name, tried in strategies.items()}
    judge.seconds = time.monotonic() - started_s


def write_report(folder: Path, report: dict[str, Any], items: list[JudgedItem], judges: list[Measured]) -> None:
    """report.json, scores.jsonl (each item with its scores and reasons) and calibration.png."""
    write_json(folder / "report.json", report)
    scores = [{judge.name: _score_line(judge, i) for judge in judges} for i in range(len(items))]
    lines = ({**item.model_dump(), "scores": s} for item, s in zip(items, scores, strict=True))
    write_lines(folder / "scores.jsonl", lines)
    draw_calibration(folder / "calibration.png", report["judges"])


def _score_line(judge: Measured, i: int) -> dict[str, Any]:
    reward = judge.plain[i]
    rewritten = {how.name: value_of(rewards[i]) for how, rewards in judge.rewritten.items()}
    return {"score": value_of(reward), "unscored": reward.unscored, "reason": reward.explanation, **rewritten}


def judges_of(config: RewardConfig) -> tuple[ScoringContext, list[Measured]]:
    """The judges to measure; an LLM judge is asked once, so a wrong key or model shows now. Raises UserError."""
    context = build_context(config.model_copy(update={"default_scorer": "judge", "terms": []}))
    judges = [Measured("offline reference judge", OFFLINE)]
    check_llm(context)
    if context.llm:
        judges.append(Measured(context.llm.name, "llm"))
    return context, judges


def probe_report(questions: Sequence[Question], scoring: ScoringContext, folder: Path, *, recipe: str, n: int) -> None:
    """Print what the recipe's rewards pay to answers that know nothing, and write it into probe.json."""
    with notes.status(f"probing the rewards of {recipe or 'the defaults'}; judge: {scoring.judge_name}"):
        fields = probe_fields(questions, scoring, n=n)
    names = list(dict.fromkeys(name for probed in fields for name in probed.paid))
    table = Table("field", "questions", "honest", *names)
    for probed in fields:
        paid = (f"{probed.paid[name]:.2f}" if name in probed.paid else "-" for name in names)
        table.add_row(escape(probed.field), str(probed.n), f"{probed.honest:.2f}", *paid)
    write_json(folder / "probe.json", {"fields": [probed.model_dump() for probed in fields]})
    Console(highlight=False, width=None if sys.stdout.isatty() else 200).print(table)
    print("\n".join([*findings(fields), f"report: {folder}"]), flush=True)


def judge_report(
    command_line: typer.Context,
    items: Annotated[
        Path | None, typer.Option(help="judged answers, one JSON object a line (default: data/judge_items.jsonl)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the report (default: runs/judge-report-TIME)")] = None,
    recipe: Annotated[str, typer.Option(help="settings of a folder of recipes/ or a TOML file")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
    threshold: Annotated[float, typer.Option(min=0.0, max=1.0, help="from here on an answer counts as right")] = 0.5,
    margin: Annotated[float, typer.Option(min=0.0, max=1.0, help="score above label by more: fooled")] = 0.25,
    with_flips: Annotated[bool, typer.Option("--flips/--no-flips", help="score rewritings too: 6 x the calls")] = True,
    probe: Annotated[int, typer.Option(min=0, help="probe rewards on at most so many of its questions instead")] = 0,
    strategies: Annotated[int, typer.Option(min=0, help="bundled questions for each cheating strategy; 0: none")] = 200,
    strategy_calls: Annotated[int, typer.Option(min=0, help="most verdicts of an LLM judge on strategies")] = 440,
) -> int:
    """Measure how far the judges can be trusted, on the bundled set or on one of your own.

    \b
    agentgrpo judge-report                          the bundled answers; the LLM judge where TEACHER_* is set
    agentgrpo judge-report --items my.jsonl --strategies 0
    agentgrpo judge-report --recipe shop_agent      and what answers that know nothing earn (offline)
    agentgrpo judge-report --recipe shop_agent --probe 20      that alone, on so many of its questions, with any judge

    The last line is `report: FOLDER`. Status 1: some items could not be scored.
    """
    if probe and (foreign := given(command_line, but=OF_PROBE)):
        raise UserError(f"--probe {probe}: answers are made, and no others judged; leave out {foreign}")
    keys = command_tree(JUDGE, set_ or [], recipe=recipe, flags={})
    config = build_config(load_recipe(recipe) if recipe else {}, keys)
    folder = out or HOME / "runs" / f"judge-report-{datetime.now():%Y%m%d-%H%M%S}"
    if probe or (recipe and not items):
        build_bundled()
        with closing(scoring_of(config)) as scoring:
            if probe or not scoring.llm:  # each answer asks an LLM judge: only where that is said
                questions, _ = load_data(config, scoring)
                probe_report(questions, scoring, folder, recipe=config.recipe, n=probe or PROBED)
    if probe:
        return 0
    file = items or BUNDLED_ITEMS
    judged = load_items(file)
    context, judges = judges_of(config.reward)
    tried: dict[str, list[JudgedItem]] = {}
    if strategies:
        build_bundled()
        with notes.status("looking for the constant answer that pays most"):
            tried = attempts(n=strategies, data=BUNDLED_ITEMS.parent)
    for judge in judges:
        most = strategy_calls // max(1, len(tried)) if judge.scorer == "llm" else strategies
        answers = {name: texts[:most] for name, texts in tried.items()} if most else {}
        measure(judged, judge, context, rewritings=REWRITINGS if with_flips else (), strategies=answers)
    report = {
        "items": str(file),
        "fingerprint": fingerprint(file),
        "n": len(judged),
        "n_attacks": sum(item.is_attack for item in judged),
        "threshold": threshold,
        "margin": margin,
        "judges": [figures(judged, judge, threshold=threshold, margin=margin) for judge in judges],
    }
    write_report(folder, report, judged, judges)
    show(Console(highlight=False, width=None if sys.stdout.isatty() else 120), report)
    print(f"report: {folder}", flush=True)
    return 1 if any(judge["unscored"] for judge in report["judges"]) else 0
