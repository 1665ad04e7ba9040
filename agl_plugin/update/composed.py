"""verl's configuration of a run, composed from its own files. hydra is imported inside: it takes a moment."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

# What this project's loop reads beside verl's keys, under the name that agent-lightning gave it.
OWN = {
    "agentlightning": {
        "trace_aggregator": {
            "level": "transition",
            "trajectory_max_prompt_length": 2048,
            "trajectory_max_response_length": 8192,
        }
    }
}


def base_config() -> Any:
    """verl's configuration and OWN, without any override. verl is not imported, which takes seconds."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    spec = find_spec("verl")
    assert spec and spec.origin, "verl is not installed: run `make setup`"
    with initialize_config_dir(str(Path(spec.origin).parent / "trainer" / "config"), version_base=None):
        base = compose(config_name="ppo_trainer")
    OmegaConf.set_struct(base, False)
    return OmegaConf.merge(base, OmegaConf.create(OWN))


def verl_config(overrides: dict[str, Any]) -> Any:
    from omegaconf import OmegaConf

    config = OmegaConf.merge(base_config(), OmegaConf.create(overrides))
    config.actor_rollout_ref.actor.optim.total_training_steps = config.trainer.total_training_steps
    return config
