"""LoRA adapters and their bases: the right pair is merged, every other one is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, TaskType, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from foundation.errors import UserError
from reward_model.merge_lora import ADAPTER_WEIGHTS, BASE_NOTE, base_note, merge
from reward_model.pairs import Item
from reward_model.scoring import load_scorer
from tests.reward_models import edit_json, make_model, tokenizer

ITEMS = [Item(prompt="问", response="答"), Item(prompt="药品", response="禁忌")]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "base", head=False)


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """An adapter folder as a training leaves it, and the model that it came from."""
    out = tmp_path_factory.mktemp("adapter") / "adapter"
    model: Any = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
    config = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["score"])
    adapted: Any = get_peft_model(model, config)
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if weights.requires_grad:
                weights.copy_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(len(name))))
    adapted.save_pretrained(out)
    tokenizer().save_pretrained(out, save_jinja_files=False)
    (out / BASE_NOTE).write_text(json.dumps(base_note(base)))
    return out, adapted.eval()


@pytest.fixture
def adapter(trained: tuple[Path, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "adapter"))


def refused(adapter: Path, base: Path, message: str) -> None:
    out = adapter.parent / "out"
    with pytest.raises(UserError, match=message):
        merge(adapter, out, base=base)
    assert not out.exists()


def test_the_merged_model_scores_as_the_adapted_one(
    base: Path, trained: tuple[Path, Any], adapter: Path, tmp_path: Path
) -> None:
    merge(adapter, tmp_path / "merged", base=base)
    scorer = load_scorer(tmp_path / "merged")
    ids = [torch.tensor([scorer.encoder.encode(item.dialogue).ids]) for item in ITEMS]
    with torch.inference_mode():
        expected = [float(trained[1](input_ids=row).logits) for row in ids]
    assert [one.score for one in scorer.score(ITEMS)] == pytest.approx(expected, abs=1e-4)
    assert abs(expected[0] - expected[1]) > 1e-2
    with pytest.raises(UserError, match="is not empty"):
        merge(adapter, tmp_path / "merged", base=base)


def test_another_base_is_refused(adapter: Path, tmp_path: Path) -> None:
    refused(adapter, make_model(tmp_path / "other", head=False, seed=2), "has other weights than the base base")
    (adapter / BASE_NOTE).unlink()  # an adapter from elsewhere; the shapes still tell
    refused(adapter, make_model(tmp_path / "wider", head=False, hidden_size=48), "does not fit the base")
    refused(adapter, tmp_path / "nowhere", "is no folder here")


def test_a_head_that_nobody_brings_is_not_made_up(base: Path, adapter: Path) -> None:
    weights = {k: v for k, v in load_file(adapter / ADAPTER_WEIGHTS).items() if "score" not in k}
    save_file(weights, adapter / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    refused(adapter, base, "has no weights of the head")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"a": "b"}}, "auto_map"),
        ({"megatron_config": {"a": 1}, "megatron_core": "os"}, "has megatron_config, which names code"),
        ({"auto_mapping": {"parent_library": "os"}}, "has auto_mapping, which names code"),
        ({"task_type": "CAUSAL_LM"}, "LORA for SEQ_CLS"),
    ],
)
def test_code_and_other_adapters_are_refused(base: Path, adapter: Path, changes: dict[str, Any], message: str) -> None:
    edit_json(adapter / "adapter_config.json", **changes)
    refused(adapter, base, message)


@pytest.mark.parametrize("note", ["", "[]", "{"])
def test_a_damaged_note_is_one_message(base: Path, adapter: Path, note: str) -> None:
    (adapter / BASE_NOTE).write_text(note)
    refused(adapter, base, "not a readable JSON file|must hold a JSON object")


def test_pickled_adapters_are_refused(base: Path, adapter: Path) -> None:
    (adapter / ADAPTER_WEIGHTS).rename(adapter / "adapter_model.bin")
    refused(adapter, base, "no adapter_config.json and adapter_model.safetensors")
