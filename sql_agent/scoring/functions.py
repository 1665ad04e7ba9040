"""Reward functions with TRL's signature as scorers: `f(completions, **columns) -> list[float]`, as "module:function".

Guarantees: one that cannot be loaded, or that a row lacks a column for, is an error before the run; only the
configuration names functions, a row of data never does. A function gets one completion a call, as text, and with it
every column of the row and every key of `meta`, each a list of one; what it gives is checked as any scorer's value is.
Not covered: TRL's conversational completions, completion_ids and trainer_state.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from foundation.background import contained, in_thread
from foundation.errors import UserError, did_you_mean
from sql_agent.records import Episode, Question, Score
from sql_agent.scoring.registry import BAD_SCORE, SCORERS, ScoringContext, import_module
from sql_agent.scoring.scorers import NO_REFERENCE
from sql_agent.scoring.values import rows_of


async def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives, sync or async. Raises an Exception only.

    A sync one runs in a thread of its own: one that hangs holds up neither the others nor the end of the process.
    """
    if inspect.iscoroutinefunction(function):
        return await contained(function(*args, **kwargs))
    result = await asyncio.wrap_future(in_thread(functools.partial(function, *args, **kwargs)))
    return await contained(result) if inspect.isawaitable(result) else result


@dataclass(frozen=True)
class RewardFunction:
    path: str
    function: Callable[..., Any]

    async def __call__(self, question: Question, episode: Episode, context: ScoringContext) -> Any:
        if problem := self.problem(question):
            return Score(unscored=NO_REFERENCE, explanation=f"question {question.id}: {self.path} {problem}")
        value = await call(self.function, **_columns(question, episode.final_answer))
        rows = rows_of(value)
        if rows is not None and len(rows) == 1:
            return rows[0]
        size = "" if rows is None else f" of {len(rows)}"
        text = f"{self.path} gave a {type(value).__name__}{size} for one completion; it must give a list of one number"
        return Score(unscored=BAD_SCORE, explanation=text)

    def problem(self, question: Question) -> str:
        """Why the function cannot be called for this row, or ""."""
        columns = _columns(question, "")
        try:
            inspect.signature(self.function).bind(**columns)
        except TypeError as exc:
            return f"cannot be called ({exc}); a row has {', '.join(columns)}. End its parameters with **columns"
        except ValueError:  # a function of C without a signature
            return ""
        return ""


def _columns(question: Question, answer: str) -> dict[str, Any]:
    row = {**question.meta, **question.model_dump(), "prompts": question.question, "completions": answer}
    return {name: [value] for name, value in row.items()}


def load_function(path: str) -> None:
    """Make the function of this path a scorer. Raises UserError where there is none."""
    where, _, name = path.rpartition(":")
    try:
        module = import_module(where)
    except Exception as exc:  # the user's own module may fail in any way
        why = f"{where!r} cannot be imported ({exc!r:.300}). Name an installed module or a .py file"
        raise UserError(f"reward.terms: {path!r}: {why}") from exc
    function = getattr(module, name, None)
    if not callable(function):
        hint = did_you_mean(name, [n for n in dir(module) if callable(getattr(module, n))])
        raise UserError(f"reward.terms: {path!r}: {where!r} has no function {name!r}{hint}")
    SCORERS[path] = RewardFunction(path, function)
