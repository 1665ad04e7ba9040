"""Which questions the report shows, and their transcripts: the most improved, the worst, best against worst of a group.

Guarantees: at most as many pairs as SHOWN and MOST_GROUPS say; of a trial that was played twice the later one counts.
Texts stay as they are: the page's template cuts and escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from foundation.grouping import grouped
from sql_agent.records import RolloutRecord
from sql_agent.run_report.folder import Entry, RunData

SHOWN = {"improved": 5, "worse": 3, "still low": 3}
MOST_GROUPS, MOST_STANDINGS = 3, 12
CLEAR = 0.05  # a smaller difference is no case of getting better or worse
LOW = 0.6  # half a good answer and the bonus: what stays below is still low


@dataclass(frozen=True)
class Transcript:
    """One rollout or trial. The entry's reward counts: it is None where the rollout was not learned from. `trail` are
    its ids in the audit, from its rows to the update."""

    label: str
    reward: float | None
    record: RolloutRecord
    trail: str = ""


def transcript(label: str, entry: Entry) -> Transcript:
    return Transcript(label, entry.reward, entry.record(), entry.trail())


@dataclass(frozen=True)
class Case:
    """One question with two transcripts side by side; `rewards` says in words what happened."""

    kind: str
    where: str
    rewards: str
    left: Transcript
    right: Transcript


@dataclass(frozen=True)
class Compared:
    """A question's scored entries on both sides; none before where training alone is looked at."""

    before: list[Entry]
    after: list[Entry]

    @property
    def old(self) -> float:
        return _mean(self.before)

    @property
    def new(self) -> float:
        return _mean(self.after)

    @property
    def change(self) -> float:
        return self.new - self.old

    @property
    def record(self) -> RolloutRecord:
        return self.after[0].record()

    @property
    def where(self) -> str:
        first = self.after[0]
        return first.split or (f"step {first.step}" if first.side == "train" else "validation")


def _mean(entries: list[Entry]) -> float:
    """The mean over decodings, so that one greedy trial weighs as much as all sampled ones."""
    by_decoding = grouped(entries, lambda entry: entry.decoding)
    return fmean(fmean(entry.reward or 0.0 for entry in alike) for alike in by_decoding.values())


def _by_question(entries: Iterable[Entry]) -> dict[tuple[str, str], list[Entry]]:
    scored = (entry for entry in entries if entry.reward is not None and entry.question_id)
    return grouped(scored, lambda entry: (entry.split, entry.question_id))


def sides(run: RunData) -> tuple[str, list[Entry], list[Entry]]:
    """What is compared, in words, with the entries before and after.

    The evaluation's two models; without them the first and the last validation; without two of these nothing.
    """
    models = list(run.results.models) if run.results else list(dict.fromkeys(entry.side for entry in run.trials))
    if len(models) == 2:
        before, after = ([entry for entry in run.trials if entry.side == model] for model in models)
        return "evaluation", before, after
    vals = [entry for entry in run.rollouts if entry.side == "val"]
    steps = sorted({entry.step for entry in vals})
    if len(models) == 1 or len(steps) < 2:
        return "", [], []
    before, after = ([entry for entry in vals if entry.step == step] for step in (steps[0], steps[-1]))
    return f"validation at step {steps[0]} and at step {steps[-1]}", before, after


def compared(run: RunData) -> list[Compared]:
    _, before, after = sides(run)
    old, new = _by_question(before), _by_question(after)
    return [Compared(old[key], new[key]) for key in old if key in new]


def pairs(run: RunData) -> list[Case]:
    """Before and after side by side: the most improved questions, those that got worse, and the lowest that stayed."""
    questions = compared(run)
    ranked = {
        "improved": _improved(questions),
        "worse": sorted((q for q in questions if q.change < -CLEAR), key=lambda q: q.change),
        "still low": sorted((q for q in questions if abs(q.change) <= CLEAR and q.new < LOW), key=lambda q: q.new),
    }
    return [_pair(kind, q) for kind, candidates in ranked.items() for q in candidates[: SHOWN[kind]]]


def _improved(questions: list[Compared]) -> list[Compared]:
    return sorted((q for q in questions if q.change > CLEAR), key=lambda q: -q.change)


def _pair(kind: str, question: Compared) -> Case:
    left, right = _typical(question.before), _typical(question.after)
    n_old, n_new = len(question.before), len(question.after)
    trials = "" if n_old == n_new == 1 else f" ({n_old} and {n_new} trials)"
    return Case(
        kind,
        where=" · ".join(part for part in (right.split, right.decoding) if part),
        rewards=f"mean reward {question.old:.2f} → {question.new:.2f}{trials}",
        left=transcript("before", left),
        right=transcript("after", right),
    )


def _typical(entries: list[Entry]) -> Entry:
    """The greedy trial; without one, the trial with the reward nearest to the mean."""
    middle = _mean(entries)
    return min(entries, key=lambda e: (e.decoding != "greedy", abs((e.reward or 0.0) - middle)))


def groups(run: RunData) -> list[Case]:
    """Best against worst rollout of a group, from the last third of the steps: what an update is made of.

    Where all groups are alike, the lowest of them: one asks of nothing as often why it got what it did.
    """
    train = [entry for entry in run.rollouts if entry.side == "train" and entry.reward is not None and entry.group]
    last = max((entry.step for entry in train), default=0)
    by_group = grouped((e for e in train if e.step > last * 2 // 3), lambda entry: (entry.step, entry.group))
    in_order = [sorted(members, key=lambda e: e.reward or 0.0) for members in by_group.values()]
    wide = [members for members in in_order if _spread(members) > CLEAR]
    wide.sort(key=lambda members: (-_spread(members), -members[0].step))
    flat = [members for members in in_order if len(members) > 1]
    flat.sort(key=lambda members: (members[0].reward or 0.0, -members[0].step))
    return [_group(members) for members in (wide or flat)[:MOST_GROUPS]]


def _spread(members: list[Entry]) -> float:
    return (members[-1].reward or 0.0) - (members[0].reward or 0.0)


def _group(members: list[Entry]) -> Case:
    worst, best = members[0], members[-1]
    rewards = ", ".join(f"{entry.reward:.2f}" for entry in reversed(members[-16:]))
    return Case(
        "group",
        where=f"training, step {best.step}",
        rewards=f"{len(members)} rewards: {rewards}{', …' if len(members) > 16 else ''}",
        left=transcript("one" if worst.reward == best.reward else "worst", worst),
        right=transcript("another" if worst.reward == best.reward else "best", best),
    )


def standings(run: RunData) -> tuple[list[Compared], list[Compared]]:
    """The most improved and the worst questions, at most MOST_STANDINGS each; of training where nothing is compared."""
    if questions := compared(run):
        worst = sorted(questions, key=lambda q: (q.new, q.change))
        return _improved(questions)[:MOST_STANDINGS], worst[:MOST_STANDINGS]
    entries = run.trials or [entry for entry in run.rollouts if entry.side == "train"]
    last = max((entry.step for entry in entries), default=0)
    recent = _by_question(entry for entry in entries if entry.step >= last * 2 // 3)
    return [], [Compared([], group) for group in sorted(recent.values(), key=_mean)[:MOST_STANDINGS]]
