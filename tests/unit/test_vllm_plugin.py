"""vLLM's hooks, on vLLM's own functions where they are light enough to import."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agl_plugin.patches import vllm_plugin


def test_a_template_is_looked_through_once_and_the_answer_stays_the_same() -> None:
    asked: list[str] = []

    def resolve(_tokenizer: Any, template: str, kwargs: dict[str, Any]) -> dict[str, Any]:
        asked.append(template)
        return {name: value for name, value in kwargs.items() if name in template}

    module = SimpleNamespace(resolve_chat_template_kwargs=resolve)
    vllm_plugin.remember_templates(module)
    cases = [("{{ tools }}", {"tools": 1, "x": 2}), ("{{ tools }}", {"tools": 3, "x": 4}), ("{{ tools }}", {"x": 5})]
    found = [module.resolve_chat_template_kwargs(None, template, kwargs) for template, kwargs in cases]
    assert found == [{"tools": 1}, {"tools": 3}, {}]
    assert len(asked) == 2


def test_parameters_compute_without_a_detour() -> None:
    from vllm.model_executor import parameter  # imported by vLLM's plugin hook, or here

    vllm_plugin.plain_parameters(parameter)
    weight = parameter.BasevLLMParameter.__new__(parameter.BasevLLMParameter, torch.ones(2, 3))
    product = torch.nn.functional.linear(torch.ones(1, 3), weight)
    assert product.tolist() == [[3.0, 3.0]] and type(product) is torch.Tensor
    if not torch.cuda.is_available():
        assert parameter.BasevLLMParameter.__torch_function__ == torch.nn.Parameter.__torch_function__


def test_the_engine_leaves_a_core_and_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    seen: list[int] = []

    class Worker:
        def execute_model(self, fails: bool) -> str:
            seen.append(torch.get_num_threads())
            if fails:
                raise RuntimeError("no")
            return "tokens"

    vllm_plugin.leave_a_core(SimpleNamespace(Worker=Worker))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert Worker().execute_model(False) == "tokens"
        with pytest.raises(RuntimeError):
            Worker().execute_model(True)
        assert seen == [2, 2] and torch.get_num_threads() == 3
        torch.set_num_threads(1)
        Worker().execute_model(False)
        assert seen[2:] == [1]
    finally:
        torch.set_num_threads(before)
