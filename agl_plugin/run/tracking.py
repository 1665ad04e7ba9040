"""Where the numbers of a run go beside its folder: verl's trackers, as its configuration names them."""

from __future__ import annotations

import atexit
from typing import Any

from verl.utils.tracking import Tracking


def tracking_of(config: Any) -> Tracking:
    """The trackers of a run, which end before the process does; `config` is verl's, resolved.

    Left to themselves they end when they are collected, which may be after wandb's own end: that waits for ever.
    """
    from omegaconf import OmegaConf

    trainer, tree = config.trainer, OmegaConf.to_container(config, resolve=True)
    tracking = Tracking(trainer.project_name, trainer.experiment_name, list(trainer.logger), config=tree)
    atexit.register(tracking.finish)
    return tracking
