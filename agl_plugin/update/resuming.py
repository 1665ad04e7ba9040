"""What a resumed run takes from a checkpoint's optimizer: its moments and steps, not its settings.

torch's states hold the learning rate and the other settings too, so a run that goes on with another `optim.lr` would
keep the old one without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_settings(optimizer: Any, schedule: Any) -> Iterator[None]:
    """Keep the configured settings and base rates while a checkpoint's states are loaded into both.

    `schedule` is a LambdaLR; the learning rates afterwards are those of its step.
    """
    settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    rates = schedule.base_lrs
    yield
    schedule.base_lrs = rates
    schedule._last_lr = [
        rate * factor_at(schedule.last_epoch) for rate, factor_at in zip(rates, schedule.lr_lambdas, strict=True)
    ]
    for group, group_settings, rate in zip(optimizer.param_groups, settings, schedule._last_lr, strict=True):
        group.update({**group_settings, "lr": rate})
