"""The model that a run with a KL term, or on preferences, starts from when it goes on with a LoRA adapter: the base
with the adapter in it.

verl and TRL compare with the model without its adapter. With the old adapter merged into the weights, and a new one
of zeros trained on top, the model without its adapter is the one that the run starts from.
Guarantees: merged in float32, kept in float32; a folder appears complete or not at all, and is made once per pair.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.weights import share
from sql_agent.config import HOME, ROOT
from sql_agent.serving.checkpoint_model import TEXT_FILES
from sql_agent.serving.checkpoints import stamps

MERGED = HOME / ".cache" / "merged"


def merged_start(base: Path, adapter: Path | None) -> Path:
    """The folder of `base` with `adapter` merged in, made now if it is not there yet. Raises UserError."""
    if adapter is None:
        return base
    if not (adapter / "adapter_model.safetensors").is_file():
        raise UserError(
            f"--lora-adapter-path {adapter}: no adapter_model.safetensors there (pickled weights can run code)"
        )
    made_of = [(str(part), stamps(part)) for part in (base, adapter)]
    folder = MERGED / f"{adapter.name}-{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:10]}"
    if folder.exists():
        return folder
    # A process of its own: torch would stay in the memory of this one.
    command = [sys.executable, "-m", "sql_agent.serving.merged_start", str(base), str(adapter), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=ROOT)
    if done.returncode and not folder.exists():  # another run may have been faster
        *_, why = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise UserError(
            f"model.lora_adapter_path = {adapter}: cannot be merged into {base}, which a KL term and preferences "
            f"need: {why[:300]}. Take the adapter's own base; GRPO goes on without it at optim.kl_coef = 0"
        )
    return folder


def _merge(base: Path, adapter: Path, out: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".merging-") as temp:
        folder = Path(temp) / "model"
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, use_safetensors=True)
        adapted: Any = PeftModel.from_pretrained(model, str(adapter))
        adapted.merge_and_unload(safe_merge=True).save_pretrained(folder)
        share(folder)
        for file in base.iterdir():
            if file.suffix in TEXT_FILES and "index" not in file.name and not (folder / file.name).exists():
                shutil.copy2(file, folder / file.name)
        os.replace(folder, out)


if __name__ == "__main__":
    _merge(*map(Path, sys.argv[1:]))
