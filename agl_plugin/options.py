"""What a run asks of the trainer's side, as frozen plain data: built where the configuration is, used where verl runs.

Light to import: nothing of the stack is loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from agl_plugin.run.curriculum import CurriculumRules
from agl_plugin.run.health import Health
from agl_plugin.run.kept import KeepRules
from agl_plugin.update.rules import UpdateRules
from foundation.rollout_keys import GradeGroup


@dataclass(frozen=True)
class DaemonOptions:
    """How rollouts are queued, waited for and rewarded.

    `poll_interval_s` is the wait between two looks at the store; `rollout_timeout_s` is how long one may take; after
    `stall_s` without any finishing the run is given up. `grade_group` rewards rollouts that await their group. Groups
    without variance are sampled anew up to `resample` times a step. `proxy` is the LLM proxy, and `gateways` says where
    there is one (agl_plugin.run.node_gateways); `log_probs` asks the sampler for the log-probability of each token;
    `seed` is that of the rollouts' draws. `calls_per_engine` bounds the calls that the gateway has at each engine, 0:
    by its own constant; with `plain_spans` it writes spans as agent-lightning's own readers take them. With
    `async_groups` so many groups more than a step trains are in flight; rollouts above `max_staleness` are left out.
    """

    poll_interval_s: float
    rollout_timeout_s: float
    stall_s: float
    proxy: Literal["gateway", "litellm"] = "gateway"
    proxy_host: str = "127.0.0.1"
    proxy_port: int = 0
    gateways: Literal["one", "per_node"] = "one"
    grade_group: GradeGroup | None = None
    resample: int = 0
    log_probs: bool = False
    seed: int = 0
    calls_per_engine: int = 0
    plain_spans: bool = False
    async_groups: int = 0
    max_staleness: int = 0


@dataclass(frozen=True)
class TrainerOptions:
    """What is done to a batch before verl's update, what is watched, which checkpoints stay, and what is asked next.

    `from_store`: the facts of the run whose stored rollouts are learned from (agl_plugin.audit.stored); {} for none.
    `goes_on_from`: the checkpoints that the run goes back to, the nearest first: {run, step, changed}.
    """

    update: UpdateRules
    health: Health
    keep: KeepRules
    curriculum: CurriculumRules | None = None
    from_store: Mapping[str, Any] = field(default_factory=dict)
    goes_on_from: Sequence[Mapping[str, Any]] = ()

    @property
    def audit_settings(self) -> dict[str, Any]:
        """What an audit keeps of these, as far as there is any."""
        settings = {"rules": asdict(self.update), "from_store": self.from_store, "goes_on_from": self.goes_on_from}
        return {name: value for name, value in settings.items() if value}
