"""Where the numbers of a run go beside its folder: verl's trackers, as its configuration names them."""

from __future__ import annotations

from typing import Any

from verl.utils.tracking import Tracking


def tracking_of(config: Any) -> Tracking:
    """The trackers of a run; `config` is verl's, resolved."""
    from omegaconf import OmegaConf

    trainer, tree = config.trainer, OmegaConf.to_container(config, resolve=True)
    return Tracking(trainer.project_name, trainer.experiment_name, list(trainer.logger), config=tree)
