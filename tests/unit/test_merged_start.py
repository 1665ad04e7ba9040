"""The start model of a run with a KL term that goes on with a LoRA adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from foundation.errors import UserError
from sql_agent.commands.export import probe
from sql_agent.serving import merged_start as merging
from sql_agent.serving.models import check_model_folder
from sql_agent.tiny_policy.build import ensure_tiny_policy
from tests.gpu_branch import adapter_of


def model_of(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.long
def test_the_start_model_says_what_the_adapter_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MERGED", tmp_path / "merged")
    base = ensure_tiny_policy(1)
    adapter = adapter_of(tmp_path, model_of(base))
    start = merging.merged_start(base, adapter)
    check_model_folder(start, allow_remote_code=False)
    told, without = probe(PeftModel.from_pretrained(model_of(base), str(adapter))), probe(model_of(base))
    assert torch.allclose(probe(model_of(start)), told, atol=2e-3) and not torch.allclose(without, told, atol=0.1)
    assert merging.merged_start(base, adapter) == start and len(list((tmp_path / "merged").iterdir())) == 1


@pytest.mark.long
def test_an_adapter_of_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MERGED", tmp_path / "merged")
    base = ensure_tiny_policy(1)
    adapter = adapter_of(tmp_path, model_of(base))
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be merged into .* which a KL term and preferences need"):
        merging.merged_start(base, adapter)
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match="no adapter_model.safetensors there"):
        merging.merged_start(base, adapter)
