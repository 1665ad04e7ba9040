"""Reward functions with TRL's signature, `f(completions, **columns) -> list[float]`: made, named, measured, trained.

Guarantees: what `create_reward` makes lies in [0, 1], where training wants it; without a truth to compare with it is
None (unscored), never 0. A function that is named here trains as well: cloudpickle keeps it, one of a notebook too.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

from foundation.errors import UserError, did_you_mean
from sql_agent.api.given import keep
from sql_agent.records import Question
from sql_agent.scoring.final_answer import read_answer, read_truth, same_number, shown
from sql_agent.scoring.math_check import MathFault, mathematician
from sql_agent.scoring.values import number_of, rows_of

RewardFunction = Callable[..., Sequence[float | None]]
AsyncReward = Callable[..., Awaitable[Sequence[float | None]]]
TRUTH_KEYS = ("ground_truth", "ground_truths", "answer", "solution")
STEP = re.compile(r"^[^\S\n]*(?:step\s*\d+|\d+[.)、]|第\s*[\d一二三四五六七八九十]+\s*步|[-*•])", re.I | re.M)
PASS = 0.5
_registered: dict[str, RewardFunction] = {}


def register_reward_function(name: str, function: RewardFunction) -> None:
    """Call a reward function by a name, in `create_reward` and `train(reward=...)`. Raises UserError."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in MAKERS:
        raise UserError(f"reward {name!r}: must be a Python name other than {', '.join(MAKERS)}")
    if not callable(function):
        raise UserError(f"reward {name!r}: {function!r:.80} is no function")
    _registered[name] = function


def create_reward(kind: str = "accuracy", **parameters: Any) -> RewardFunction:
    """A reward function: accuracy, length_penalty, step, or a registered one (which takes no parameters).

    accuracy                                          1 where the answer is that of `ground_truth`
    length_penalty(penalty_weight, max_length, base)  base, less up to penalty_weight, all of it from max_length on
    step(step_bonus, max_steps, base)                 (1 - step_bonus) x base + step_bonus x steps shown / max_steps

    Raises UserError for an unknown kind or parameter.
    """
    if kind in _registered and not parameters:
        return _registered[kind]
    if kind not in MAKERS:
        names = [*MAKERS, *_registered]
        raise UserError(f"reward {kind!r}: there are {', '.join(names)}{did_you_mean(kind, names)}")
    try:
        return MAKERS[kind](**parameters)
    except (TypeError, ValueError) as exc:
        raise UserError(f"reward {kind!r}: {exc}") from exc


@dataclass(frozen=True)
class Accuracy:
    """1 where the final answer equals the truth: as text, as a number, or as mathematics."""

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        truths = truths_of(columns, len(completions))
        return [accuracy_of(text_of(completion), truth) for completion, truth in zip(completions, truths, strict=True)]


@dataclass(frozen=True)
class LengthPenalty:
    """The base's reward, less for long texts; never below 0."""

    base: RewardFunction = Accuracy()
    penalty_weight: float = 0.001
    max_length: int = 1024

    def __post_init__(self) -> None:
        _check_share("penalty_weight", self.penalty_weight)
        if self.max_length < 1:
            raise ValueError(f"max_length = {self.max_length} must be at least 1 (characters)")

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        rewards = self.base(completions, **columns)
        losses = [self.penalty_weight * min(1.0, len(text_of(text)) / self.max_length) for text in completions]
        return [None if r is None else max(0.0, r - loss) for r, loss in zip(rewards, losses, strict=True)]


@dataclass(frozen=True)
class StepBonus:
    """The base's reward, of which a part is paid for steps that are shown, up to `max_steps` of them."""

    base: RewardFunction = Accuracy()
    step_bonus: float = 0.1
    max_steps: int = 5

    def __post_init__(self) -> None:
        _check_share("step_bonus", self.step_bonus)
        if self.max_steps < 1:
            raise ValueError(f"max_steps = {self.max_steps} must be at least 1")

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        rewards = self.base(completions, **columns)
        bonuses = [
            self.step_bonus * min(1.0, len(STEP.findall(text_of(text))) / self.max_steps) for text in completions
        ]
        base_share = 1 - self.step_bonus
        return [None if r is None else base_share * r + bonus for r, bonus in zip(rewards, bonuses, strict=True)]


MAKERS: dict[str, Callable[..., RewardFunction]] = {
    "accuracy": Accuracy,
    "length_penalty": LengthPenalty,
    "step": StepBonus,
}


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} = {value} must lie in [0, 1]")


def text_of(completion: Any) -> str:
    """The text of a completion: a text, or TRL's list of messages, of which the last counts."""
    if isinstance(completion, list):
        completion = completion[-1]["content"] if completion else ""
    return str(completion)


def truths_of(columns: dict[str, Any], n: int) -> list[str]:
    """The column of truths. Raises UserError where there is none, or of another length."""
    column = next((columns[key] for key in TRUTH_KEYS if columns.get(key) is not None), None)
    if column is None:
        raise UserError(f"no truths: give {TRUTH_KEYS[0]}=[...], one for each completion")
    truths = [column] * n if isinstance(column, str) else list(column)
    if len(truths) != n:
        raise UserError(f"{n} completions and {len(truths)} truths; there must be one for each")
    return [str(truth) for truth in truths]


def final_answer(text: str) -> str:
    """What a text says in the end (see scoring/final_answer.py); "" where it says several things, or doubts."""
    return shown(read_answer(text))


def accuracy_of(completion: str, truth: str) -> float | None:
    """1.0 for a completion whose final answer is the truth's, else 0.0; None where the truth holds no answer.

    An ambiguous answer is wrong. Numbers are compared as numbers; other texts must be equal as texts or as formulas.
    """
    expected, answer = read_truth(truth), read_answer(completion)
    if not expected.text:
        return None
    if _plain(completion) == _plain(truth):
        return 1.0
    if answer.unclear and not expected.unclear:
        return 0.0
    if expected.number and answer.number:
        return float(same_number(expected.number, answer.number))
    if not answer.text or _plain(expected.text) == _plain(answer.text):
        return float(bool(answer.text))
    try:
        return float(mathematician.compare(expected.text, answer.text).equal)
    except MathFault:  # the truth is no mathematics: then it is a text, and the texts differ
        return 0.0


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" $。.").casefold()


@dataclass(frozen=True)
class RewardStats:
    """What rewards look like: [low, high] is the 95 % interval of the mean; `accuracy` the share of 0.5 and more."""

    n: int
    unscored: int
    mean: float
    std: float
    min: float
    max: float
    accuracy: float
    share_zero: float
    share_one: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def evaluate_rewards(
    function: RewardFunction | AsyncReward | str,
    completions: Sequence[Any],
    truths: Sequence[str] | None = None,
    **columns: Any,
) -> RewardStats:
    """Measure a reward function on completions. None counts as unscored and is in no figure. Raises UserError."""
    from foundation.stats import estimate

    function = create_reward(function) if isinstance(function, str) else function
    truth_columns = {} if truths is None else dict.fromkeys(TRUTH_KEYS, list(truths))
    given: Any = function(list(completions), **truth_columns | columns)
    if inspect.iscoroutine(given):
        with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has a loop that runs
            given = thread.submit(asyncio.run, given).result()
    rewards = rows_of(given)
    if rewards is None or len(rewards) != len(completions):
        size = "no list" if rewards is None else f"{len(rewards)} rewards"
        raise UserError(f"the function gave {size} for {len(completions)} completions; it must give a number for each")
    values: list[float] = []
    for reward in rewards:
        number = number_of(reward)
        if number is not None and math.isfinite(number):
            values.append(number)
        elif reward is not None:
            raise UserError(f"the function gave {reward!r:.80}; a reward is a finite number, or None for unscored")
    if not values:
        raise UserError(f"none of {len(rewards)} completions was scored")
    interval = estimate(values)
    return RewardStats(
        n=len(values),
        unscored=len(rewards) - len(values),
        mean=fmean(values),
        std=pstdev(values),
        min=min(values),
        max=max(values),
        accuracy=sum(value >= PASS for value in values) / len(values),
        share_zero=values.count(0) / len(values),
        share_one=values.count(1) / len(values),
        low=interval.low,
        high=interval.high,
    )


@dataclass(frozen=True)
class OnQuestions:
    """A reward function on rows of a question file, whose answers it gets as TRL calls truths too."""

    function: RewardFunction

    def __call__(self, completions: Sequence[Any], **columns: Any) -> Sequence[float | None]:
        truths = columns.get("answer")
        return self.function(completions, **{"ground_truth": truths, "ground_truths": truths} | columns)


def term_of(reward: RewardFunction | str) -> dict[str, Any]:
    """The entry of `reward.terms` that trains with this function: a module below .cache. Raises UserError."""
    name = reward if isinstance(reward, str) else getattr(reward, "__name__", type(reward).__name__)
    name = name if name.isidentifier() else "reward"
    function = create_reward(reward) if isinstance(reward, str) else reward
    if not callable(function):
        raise UserError(f"reward = {reward!r:.80}: give one function, or the name of one")
    with contextlib.suppress(ValueError):  # a function of C without a signature
        try:
            inspect.signature(function).bind_partial([], **dict.fromkeys([*Question.model_fields, *TRUTH_KEYS[:2]]))
        except TypeError as exc:
            raise UserError(f"reward {name!r}: cannot be called ({exc}); end its parameters with **columns") from exc
    path = keep(OnQuestions(function), name=name, folder="rewards", uses=function)
    return {"scorer": f"{path}:{name}", "name": name}
