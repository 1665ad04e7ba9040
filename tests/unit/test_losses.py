"""Each loss that `optim.loss` names, in verl's real actor, against a second account of it in float64.

The account takes rows one by one, without padding, and computes advantages, ratios, weights and means in its own words
from the papers' formulas; loss and gradient must agree at both row levels, several tokens beyond the clips included.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from verl.workers.config import PolicyLossConfig

from agl_plugin.update.advantage import add_advantages
from agl_plugin.update.batch import build_batch
from agl_plugin.update.losses import kl_penalty
from agl_plugin.update.rows import NAN, Call
from sql_agent.config import TrainConfig, build_config, parse_assignment
from sql_agent.local import grpo
from sql_agent.training.verl_config import update_rules, verl_overrides
from tests import updates
from tests.actor import actor_of, one_rank, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:In CPU autocast")
TOLERANCE = 1e-6
OWN = """
def unclipped(tokens):
    return -tokens.ratio * tokens.advantages + 0.01 * tokens.log_probs**2
"""


@pytest.fixture(scope="module", autouse=True)
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is tiny: threads would wait for each other
    with one_rank(tmp_path_factory.mktemp("gloo")):
        yield
    torch.set_num_threads(n_threads)


def talk(first: list[int], *turns: tuple[list[int], list[int]], cut: bool = False) -> list[Call]:
    calls, so_far = [], first
    for n, (added, sampled) in enumerate(turns, start=1):
        why = "length" if cut and n == len(turns) else "stop"
        calls.append(Call(so_far + added, sampled, [NAN] * len(sampled), why))
        so_far = so_far + added + sampled
    return calls


# Rewards in steps of 2^-16, as a batch keeps them.
ROLLOUTS: dict[str, tuple[str, float, list[Call]]] = {
    "a": ("q", 1.0, talk([1, 2, 3], ([], [4, 5]), ([6, 7], [8]), ([9], [10, 11]))),
    "b": ("q", 0.0, talk([3, 2], ([], [5]), ([4], [6, 7, 8, 9, 10]))),
    "c": ("q", 0.25, talk([3], ([], [7]))),
    "d": ("p", 0.5, talk([2, 2, 2], ([], [1, 5, 9]), ([4], [6]), cut=True)),
    "e": ("p", 0.625, talk([2, 2, 2], ([1], [1, 3]))),
    "f": ("p", 0.75, talk([2, 2], ([], [4, 4, 1]), ([5], [2, 3]))),
    "g": ("flat", 0.5, talk([1], ([], [2, 3]))),
    "h": ("flat", 0.5, talk([1], ([], [6]))),
}


def config_of(*settings: str) -> TrainConfig:
    step = {"questions_per_step": 3, "mini_batch_questions": 1, "micro_batch_rows": 1}
    rows = {"max_response_tokens": 16, "trajectory_max_response_tokens": 40}
    return build_config(
        {"trainer": {"device": "cpu"}, "optim": step, "rollout": rows}, *map(parse_assignment, settings)
    )


# --- the run's way --------------------------------------------------------------------------------------------------


def batch_of(config: TrainConfig) -> Any:
    """The training step as it reaches `update_actor`; the policy that sampled differs, token by token."""
    limits: dict[str, Any] = {"max_prompt_tokens": 30, "max_response_tokens": 30, "pad_id": 0}
    data = build_batch(ROLLOUTS, merge=config.rollout.level == "trajectory", **limits).data
    tensors, info = data.batch, data.meta_info
    add_advantages(data, config.optim.advantage, update_rules(config))
    info |= {"temperature": 1.0, "micro_batch_size": 9}
    now, _ = actor_of(tiny_model(), micro_rows=9).compute_log_prob(data)
    generator = torch.Generator().manual_seed(8)
    mask = tensors["response_mask"]
    for name, spread in {"old_log_probs": 0.5, "rollout_log_probs": 0.9, "ref_log_prob": 0.4}.items():
        tensors[name] = (now + spread * torch.randn(now.shape, generator=generator, dtype=now.dtype)) * mask
    return data


def updated(
    config: TrainConfig, *, micro_rows: int = 2, local: bool = False
) -> tuple[float, torch.Tensor, dict[str, Any]]:
    """Loss, gradient and metrics of a training step whose weights stay. Its optimizer steps are averaged.

    `local`: as a run in one process makes it, else as verl's worker does.
    """
    keys = verl_overrides(config, model_path="", run_dir=Path(), total_steps=1)["actor_rollout_ref"]["actor"]
    names = ("loss_agg_mode", "clip_ratio_low", "clip_ratio_high", "use_kl_loss", "kl_loss_coef", "kl_loss_type")
    model, gradients = tiny_model(), []
    loss_mode = PolicyLossConfig(loss_mode=keys["policy_loss"]["loss_mode"])
    actor = actor_of(model, micro_rows=micro_rows, policy_loss=loss_mode, **{name: keys[name] for name in names})
    actor.engine.optimizer.step = lambda: gradients.append(gradient_of(model))  # pyright: ignore

    def update(data: Any) -> Any:
        if not local:
            return actor.update_policy(data=data)
        policy = updates.policy_of(model, actor.engine.optimizer, actor.config, config)
        return grpo.update(policy, data, micro_rows=micro_rows)

    data = batch_of(config)
    before = data.batch["response_mask"].clone()
    metrics, _ = updates.step(update, data, update_rules(config))
    assert torch.equal(data.batch["response_mask"], before)  # the trainer's own metrics go on from it
    n_updates = math.ceil(config.optim.questions_per_step / config.optim.mini_batch_questions)
    (loss,) = metrics["actor/pg_loss"]
    loss += config.optim.kl_coef * metrics.get("actor/kl_loss", [0.0])[0]
    loss += config.optim.imitation_coef * metrics.get("actor/imitation_loss", [0.0])[0]
    return loss, torch.stack(gradients).sum(dim=0) / n_updates, metrics


def gradient_of(model: Any) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


# --- the second account ---------------------------------------------------------------------------------------------


def advantages_of(kind: str) -> dict[str, float]:
    """From the rewards and lengths of ROLLOUTS alone."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, (question, _, _) in ROLLOUTS.items():
        groups[question].append(name)
    reward = {name: r for name, (_, r, _) in ROLLOUTS.items()}
    tokens = {name: sum(len(t.sampled) for t in calls) for name, (_, _, calls) in ROLLOUTS.items()}
    every = [reward[name] for name in ROLLOUTS for _ in range(tokens[name])]
    found: dict[str, float] = {}
    for members in groups.values():
        rewards = [reward[name] for name in members]
        for name in members:
            others = [reward[other] for other in members if other != name]
            weighed = sum(reward[m] * tokens[m] for m in members) / sum(tokens[m] for m in members)
            found[name] = {
                "group": (reward[name] - statistics.mean(rewards)) / (statistics.stdev(rewards) + 1e-6),
                "group_no_std": reward[name] - statistics.mean(rewards),
                "rloo": reward[name] - statistics.mean(others),
                "opo": reward[name] - weighed,
                "reinforce++": (reward[name] - statistics.mean(every)) / (statistics.stdev(every) + 1e-6),
            }[kind]
    return found


TokenRule = Callable[..., torch.Tensor]


def ppo(lp: torch.Tensor, old: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    out = []
    for ratio in (lp - old).exp():
        surrogate = torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a)
        out.append(-surrogate if a >= 0 else -torch.maximum(surrogate, torch.tensor(3.0 * a)))
    return torch.stack(out)


def gspo(lp: torch.Tensor, old: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    ratio = (lp - old).mean().exp()  # of the row: what each of its tokens has
    return -torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a).expand(len(lp))


def cispo(lp: torch.Tensor, old: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    weights = [min(max(math.exp(d), 1 - low), 1 + high) for d in (lp - old).tolist()]
    return torch.stack([-w * a * x for w, x in zip(weights, lp, strict=True)])


def minirl(lp: torch.Tensor, old: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    ratios = [math.exp(d) for d in (lp - old).tolist()]
    out = [(r > 1 + high and a > 0) or (r < 1 - low and a < 0) for r in ratios]
    return torch.stack([x * 0 if o else -r * a * x for r, o, x in zip(ratios, out, lp, strict=True)])


def gpg(lp: torch.Tensor, old: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    return -a * lp


def unclipped(lp: torch.Tensor, old: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    return -(lp - old).exp() * a + 0.01 * lp**2


# Loss -> rule, bounds of the ratio below and above 1, aggregation, advantage.
ACCOUNTS: dict[str, tuple[TokenRule, float, float, str, str]] = {
    "grpo": (ppo, 0.2, 0.3, "token-mean", "group"),
    "dapo": (ppo, 0.2, 0.28, "token-mean", "group"),
    "dr_grpo": (ppo, 0.2, 0.2, "seq-mean-token-sum-norm", "group_no_std"),
    "gspo": (gspo, 3e-4, 4e-4, "seq-mean-token-mean", "group"),
    "cispo": (cispo, 1.0, 4.0, "token-mean", "group"),
    "minirl": (minirl, 0.2, 0.3, "seq-mean-token-sum", "group"),
    "gpg": (gpg, 0.2, 0.3, "token-mean", "group"),
    "own": (unclipped, 0.2, 0.3, "token-mean", "group"),
}
KL = {
    "k1": lambda d: -d,
    "k2": lambda d: d**2 / 2,
    "k3": lambda d: d.exp() - d - 1,
    "abs": lambda d: d.abs(),
}


def rows_of(model: Any, data: Any) -> Iterator[tuple[str, torch.Tensor, dict[str, torch.Tensor]]]:
    """Rollout, log-probabilities of the sampled tokens, and what the batch says of them, without any padding."""
    batch, width = data.batch, data.batch["responses"].shape[1]
    for i, name in enumerate(data.non_tensor_batch["rollout_id_list"]):
        seen = batch["attention_mask"][i].bool()
        sampled = torch.cat([torch.zeros(seen.numel() - width), batch["response_mask"][i]])[seen].bool()
        ids = batch["input_ids"][i][seen]
        scores = torch.log_softmax(model(ids[None]).logits[0].double(), dim=-1)
        places = sampled.nonzero()[:, 0]
        on = batch["response_mask"][i].bool()
        given = {k: batch[k][i][on].double() for k in ("old_log_probs", "rollout_log_probs", "ref_log_prob")}
        yield name, scores[places - 1, ids[places]], given


def weights_of(kind: str, level: str, cap: float, old: torch.Tensor, sampler: torch.Tensor) -> torch.Tensor:
    if kind == "off":
        return torch.ones(len(old), dtype=torch.float64)
    gaps = (old - sampler).tolist()
    ratios = [math.exp(gap if level == "token" else sum(gaps)) for gap in gaps]
    inside = [1 / cap <= r <= cap for r in ratios]
    found = (
        [min(r, cap) for r in ratios] if kind == "truncated" else [r * i for r, i in zip(ratios, inside, strict=True)]
    )
    return torch.tensor(found, dtype=torch.float64)


def account(config: TrainConfig, loss: str) -> tuple[float, torch.Tensor]:
    """Loss and gradient of the step; what a loss sets of itself is taken from ACCOUNTS, not from the configuration."""
    rule, low, high, aggregation, advantage = ACCOUNTS[loss]
    optim, rollout = config.optim, config.rollout
    worth = advantages_of(optim.advantage if loss == "grpo" else advantage)
    aggregation = optim.loss_aggregation if loss == "grpo" else aggregation
    model, data, rows = tiny_model(), batch_of(config), []
    for name, lp, given in rows_of(model, data):
        cut = ROLLOUTS[name][2][-1].finish_reason == "length"
        if (loss == "dapo" or optim.overlong_filter) and cut or optim.positive_only and worth[name] <= 0:
            continue
        args = (optim.importance_correction, optim.importance_level, optim.importance_cap)
        weights = weights_of(*args, given["old_log_probs"], given["rollout_log_probs"])
        losses = rule(lp, given["old_log_probs"], worth[name], low, high) * weights
        if optim.kl_coef:
            losses = losses + optim.kl_coef * KL[optim.kl_estimator](given["ref_log_prob"] - lp)
        group = [reward for question, reward, _ in ROLLOUTS.values() if question == ROLLOUTS[name][0]]
        if ROLLOUTS[name][1] >= optim.imitated_from > min(group):
            losses = losses - optim.imitation_coef * lp
        rows.append(losses)
    longest = rollout.trajectory_max_response_tokens if rollout.level == "trajectory" else rollout.max_response_tokens
    total = {
        "token-mean": lambda: torch.cat(rows).mean(),
        "seq-mean-token-mean": lambda: torch.stack([row.mean() for row in rows]).mean(),
        "seq-mean-token-sum": lambda: torch.stack([row.sum() for row in rows]).mean(),
        "seq-mean-token-sum-norm": lambda: torch.stack([row.sum() / longest for row in rows]).mean(),
    }[aggregation]()
    total.backward()
    return total.item(), gradient_of(model)


def agree(config: TrainConfig, loss: str, *, micro_rows: int = 2) -> None:
    """Both back ends with the second account, and what they tell with each other."""
    expected, exact = account(config, loss)
    assert exact.norm() > 1e-6 and abs(expected) > 1e-6
    told = []
    for local in (False, True):
        value, gradient, metrics = updated(config, micro_rows=micro_rows, local=local)
        assert value == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
        assert ((gradient - exact).norm() / exact.norm()).item() < TOLERANCE
        told.append({name: value for name, value in metrics.items() if not name.startswith("audit/")})
    assert told[0].keys() == told[1].keys()
    for name, values in told[0].items():
        assert values == pytest.approx(told[1][name], rel=1e-5, abs=1e-7), name


LEVELS = ["trajectory", "transition"]


@pytest.fixture(scope="module")
def own_loss(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("own") / "my_loss.py"
    file.write_text(OWN)
    return f"{file}:unclipped"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("loss", ACCOUNTS)
def test_a_loss_is_its_formula(loss: str, level: str, own_loss: str) -> None:
    name = own_loss if loss == "own" else loss
    agree(config_of(f"optim.loss={name}", f"rollout.level={level}"), loss)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_what_succeeded_beside_failures_is_imitated(level: str, aggregation: str) -> None:
    """In the group p all reach 0.5: of it nobody is imitated, with 0.6 two are."""
    sets = ("optim.imitation_coef=0.3", f"rollout.level={level}", f"optim.loss_aggregation={aggregation}")
    for least in (0.5, 0.6):
        agree(config_of(*sets, f"optim.imitated_from={least}"), "grpo")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("advantage", ["group", "group_no_std", "rloo", "opo", "reinforce++"])
def test_an_advantage_is_its_formula(advantage: str, level: str) -> None:
    agree(config_of(f"optim.advantage={advantage}", f"rollout.level={level}"), "grpo")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
)
def test_an_aggregation_is_its_formula(aggregation: str, level: str) -> None:
    agree(config_of(f"optim.loss_aggregation={aggregation}", f"rollout.level={level}"), "grpo", micro_rows=1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("weighed", ["truncated/token", "truncated/sequence", "masked/token", "masked/sequence"])
@pytest.mark.parametrize("loss", ["grpo", "minirl"])
def test_a_correction_is_its_formula(loss: str, weighed: str, level: str) -> None:
    kind, _, of = weighed.partition("/")
    settings = [
        f"optim.importance_correction={kind}",
        f"optim.importance_level={of}",
        f"optim.importance_cap={1.5 if of == 'token' else 6}",
    ]
    agree(config_of(f"optim.loss={loss}", f"rollout.level={level}", *settings), loss)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("loss", ["grpo", "cispo"])
@pytest.mark.parametrize("setting", ["overlong_filter", "positive_only"])
def test_what_is_left_out_counts_in_no_mean(setting: str, loss: str, level: str) -> None:
    agree(config_of(f"optim.loss={loss}", f"optim.{setting}=true", f"rollout.level={level}"), loss)


@pytest.mark.parametrize("estimator", KL)
def test_a_kl_term_is_its_formula(estimator: str) -> None:
    settings = ["optim.kl_coef=0.3", f"optim.kl_estimator={estimator}", "optim.overlong_filter=true"]
    agree(config_of(*settings), "grpo")


@pytest.mark.parametrize("d", [2.7, -12.0, 8.0, -0.3])
def test_k3_has_no_bound(d: float) -> None:
    """verl's own has neither the value nor a gradient at the first two."""
    now = torch.tensor([-3.0], requires_grad=True)
    value = kl_penalty(logprob=now, ref_logprob=torch.tensor([d - 3.0]), kl_penalty="k3")
    value.backward()
    assert now.grad is not None
    assert value.item() == pytest.approx(math.exp(d) - 1 - d, rel=1e-6)
    assert now.grad.item() == pytest.approx(1 - math.exp(d), rel=1e-6)


@pytest.mark.parametrize("d", [2.7, -12.0])
def test_a_kl_term_far_from_the_start_is_its_formula(d: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def far(config: TrainConfig) -> Any:
        data = near(config)
        data.batch["ref_log_prob"] += d * data.batch["response_mask"]
        return data

    near = batch_of
    monkeypatch.setattr("tests.unit.test_losses.batch_of", far)
    agree(config_of("optim.kl_coef=0.3"), "grpo")


@pytest.mark.parametrize("loss", ["cispo", "minirl"])
def test_one_optimizer_step_is_the_same_whatever_the_micro_batches(loss: str) -> None:
    """On-policy, where verl takes the log-probabilities of the update itself."""
    config = config_of(f"optim.loss={loss}", "optim.mini_batch_questions=3")
    (_, one, metrics), (_, all_at_once, _) = updated(config, micro_rows=1), updated(config, micro_rows=8)
    assert ((one - all_at_once).norm() / one.norm()).item() < TOLERANCE
    assert metrics["actor/pg_clipfrac"] == [0.0] * len(metrics["actor/pg_clipfrac"])


def test_tokens_beyond_the_bounds_are_counted_as_by_ppo() -> None:
    """minirl leaves out what PPO clips; with one row per micro batch the shares are the same, row by row."""
    shares = [
        updated(config_of(f"optim.loss={loss}"), micro_rows=1)[2]["actor/pg_clipfrac"] for loss in ("grpo", "minirl")
    ]
    assert shares[0] == pytest.approx(shares[1]) and 0 < statistics.mean(shares[0]) < 1


def test_a_step_of_which_nothing_is_left_moves_nothing() -> None:
    """All rollouts of the group were cut; a KL term would else move them."""
    config = config_of("optim.overlong_filter=true", "optim.kl_coef=0.1")
    data = batch_of(config)
    data.batch["truncated"] |= True
    seen: list[Any] = []

    def update(batch: Any) -> Any:
        seen.append(batch)
        return actor_of(tiny_model(), micro_rows=2).update_policy(data=batch)

    metrics, _ = updates.step(update, data, update_rules(config))
    assert (
        metrics["actor/updates"] == [0]
        and metrics["batch/rows_overlong"] == len(data) == metrics["batch/rows_left_out"]
    )
    assert not seen[0].batch["response_mask"].any()
