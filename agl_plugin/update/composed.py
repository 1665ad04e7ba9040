"""verl's configuration of a run, composed as agent-lightning does. hydra is imported inside: it takes a moment."""

from __future__ import annotations

from typing import Any


def verl_config(overrides: dict[str, Any]) -> Any:
    """verl's configuration, as agent-lightning loads it, with the overrides."""
    from hydra import compose, initialize
    from omegaconf import OmegaConf

    with initialize(version_base=None, config_path="pkg://agentlightning/verl"):
        base = compose(config_name="config")
    OmegaConf.set_struct(base, False)
    return OmegaConf.merge(base, OmegaConf.create(overrides))
