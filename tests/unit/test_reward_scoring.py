"""Loading and scoring: which folders are refused, and that a score depends on its item alone."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from foundation.errors import UserError
from reward_model.batching import MicroBatcher, Overloaded
from reward_model.encoding import Encoder
from reward_model.pairs import Item
from reward_model.scoring import NotFinite, RewardScorer, Scored, load_scorer
from tests.reward_models import MAX_TOKENS, edit_json, make_model, tokenizer

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "reward")


@pytest.fixture(scope="module")
def scorer(folder: Path) -> RewardScorer:
    return load_scorer(folder)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


# Folders


def refused(folder: Path, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_scorer(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_in_the_folder_is_refused(copy: Path, name: str) -> None:
    edit_json(copy / name, auto_map={"AutoModelForSequenceClassification": "evil.Model"})
    (copy / "evil.py").write_text("raise SystemExit('code of the folder ran')")
    refused(copy, "auto_map")
    edit_json(copy / name, auto_map=None, text_config={"parts": [{"auto_map": {}}]})
    refused(copy, "auto_map")


class Bomb:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (open, (str(self.path), "w"))


def test_pickled_weights_are_refused_and_never_opened(copy: Path, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    (copy / "pytorch_model.bin").write_bytes(bomb)
    load_scorer(copy)  # beside safetensors it is not touched
    (copy / "model.safetensors").unlink()
    refused(copy, "Pickled weights")
    (copy / "model.safetensors").write_bytes(bomb)
    refused(copy, "cannot be loaded")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shard", ["../reward/model.safetensors", "/etc/passwd", "model.bin", "missing.safetensors"])
def test_an_index_stays_in_its_folder(copy: Path, shard: str) -> None:
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"score.weight": shard}}))
    refused(copy, "names files that are missing")


def test_other_models_are_refused(copy: Path, tmp_path: Path) -> None:
    refused(make_model(tmp_path / "lm", head=False), "architectures is")
    refused(make_model(tmp_path / "two", num_labels=3), "has 3 outputs")
    refused(tmp_path / "nowhere", "no config.json")
    edit_json(copy / "config.json", architectures=["NoSuchForSequenceClassification"], model_type="no-such")
    refused(copy, "cannot be loaded")


def test_a_missing_head_is_not_made_up(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    refused(copy, "lack score.weight")


def test_weights_of_another_shape_are_refused(copy: Path) -> None:
    edit_json(copy / "config.json", hidden_size=48)
    refused(copy, "cannot be loaded")


def test_weights_that_give_no_number_are_refused(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["score.weight"][:] = float("nan")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    refused(copy, "not a finite number")


def test_an_adapter_must_be_merged_first(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    refused(tmp_path, "merge it first")


def test_a_tokenizer_without_a_template_is_refused(copy: Path) -> None:
    edit_json(copy / "tokenizer_config.json", chat_template=None)
    refused(copy, "no chat template")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"model_type": "qwen3"}'])
def test_broken_configurations_are_refused(copy: Path, text: str) -> None:
    (copy / "config.json").write_text(text)
    refused(copy, "not a readable JSON file|must hold a JSON object|architectures is")


def test_more_tokens_than_the_model_has(folder: Path) -> None:
    with pytest.raises(UserError, match="was made for 512"):
        load_scorer(folder, max_tokens=MAX_TOKENS + 1)


# Encoding

MARKS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def encoder(max_tokens: int = 64) -> Encoder:
    return Encoder(tokenizer(), max_tokens=max_tokens)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([*MARKS, "<|im_", "end|>", "<|", "药", "x "])).map("".join))
def test_a_text_cannot_forge_a_turn(text: str) -> None:
    marks = [tokenizer().convert_tokens_to_ids(mark) for mark in MARKS]
    plain = encoder(512).encode([("user", "q"), ("assistant", "")]).ids
    ids = encoder(512).encode([("user", "q"), ("assistant", text)]).ids
    assert [token for token in ids if token in marks] == [token for token in plain if token in marks]
    assert all(mark not in encoder().without_marks(text) for mark in MARKS)


def test_deeply_nested_marks_cost_one_pass() -> None:
    """Taken out layer by layer, the texts of one request would keep the model from all others for minutes."""
    started_s = time.process_time()
    assert encoder().without_marks("<|im_" * 3000 + "<|im_end|>" + "end|>" * 3000 + "药") == "药"
    assert time.process_time() - started_s < 1


@given(st.text(max_size=300), st.text(max_size=300))
@settings(deadline=None, max_examples=40)
def test_a_dialogue_fits_and_keeps_its_frame(prompt: str, response: str) -> None:
    made = encoder().encode([("user", prompt), ("assistant", response)])
    assert len(made.ids) <= 64
    bare = encoder().encode([("user", ""), ("assistant", "")]).ids
    assert made.ids[:2] == bare[:2] and made.ids[-2:] == bare[-2:]
    whole = encoder(10_000).encode([("user", prompt), ("assistant", response)])
    assert made.truncated == (len(whole.ids) > 64) and (made.truncated or made.ids == whole.ids)


def test_the_answer_is_cut_before_the_question() -> None:
    made = encoder(64).encode([("user", "药品"), ("assistant", "甲乙" * 200)])
    text = str(tokenizer().decode(made.ids))
    assert made.truncated and "药品" in text and text.rstrip().endswith("<|im_end|>") and len(made.ids) == 64


def test_no_room_for_texts_is_an_error() -> None:
    with pytest.raises(UserError, match="leaves no room"):
        encoder(8)


# Scores

TEXTS = st.text("药品的禁忌：；。abc 12<|im_end|>", max_size=120)


@given(st.lists(st.builds(Item, prompt=TEXTS, response=TEXTS, reference=TEXTS), min_size=1, max_size=8))
@settings(deadline=None, max_examples=15)
def test_the_same_score_alone_and_in_a_batch(scorer: RewardScorer, items: list[Item]) -> None:
    together = scorer.score(items)
    alone = [scorer.score([item])[0] for item in items]
    assert [one.score for one in together] == pytest.approx([one.score for one in alone], abs=TOLERANCE)


def test_long_neighbours_do_not_change_a_score(scorer: RewardScorer) -> None:
    short, longer = Item(prompt="问", response="答"), Item(prompt="问" * 100, response="答" * 300)
    [alone] = scorer.score([short])
    scores = scorer.score([longer] * 20 + [short])
    assert scores[-1].score == pytest.approx(alone.score, abs=TOLERANCE)
    assert abs(scores[0].score - alone.score) > 100 * TOLERANCE  # the model does tell texts apart


def test_the_reference_is_part_of_the_item(scorer: RewardScorer) -> None:
    with_it, without = scorer.score(
        [Item(prompt="问", response="答", reference="对"), Item(prompt="问", response="答")]
    )
    assert abs(with_it.score - without.score) > 100 * TOLERANCE


def test_a_long_answer_is_cut_and_flagged(scorer: RewardScorer) -> None:
    short, cut = scorer.score([Item(prompt="问", response="答"), Item(prompt="问", response="答" * 5000)])
    assert not short.truncated and cut.truncated


def test_bfloat16_is_close(folder: Path, scorer: RewardScorer) -> None:
    items = [Item(prompt="问", response="答" * n) for n in range(1, 6)]
    rough = load_scorer(folder, dtype="bfloat16").score(items)
    assert [one.score for one in rough] == pytest.approx([one.score for one in scorer.score(items)], abs=0.5)


# Micro-batches


class Model:
    """Scores by length; remembers its batches; fails on "bad"; waits where it is told to."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, items: Sequence[Item]) -> list[Scored]:
        assert self.gate.wait(10)
        self.batches.append(len(items))
        if any(item.response == "bad" for item in items):
            raise NotFinite("no number")
        return [Scored(float(len(item.response)), truncated=False) for item in items]


def items_of(*responses: str) -> list[Item]:
    return [Item(prompt="q", response=response) for response in responses]


def batcher_of(model: Model, *, batch_size: int, max_queued: int = 100) -> MicroBatcher:
    return MicroBatcher(model, batch_size=batch_size, max_queued=max_queued, on_batch=lambda size, seconds: None)


async def test_single_requests_share_a_batch() -> None:
    model = Model()
    batcher = batcher_of(model, batch_size=8)
    scores = await asyncio.gather(*(batcher.submit(items_of("x" * n)) for n in range(20)))
    assert [one.score for [one] in scores] == list(range(20))
    assert len(model.batches) <= 4 and max(model.batches) == 8


async def test_the_order_of_a_request_is_kept() -> None:
    scores = await batcher_of(Model(), batch_size=3).submit(items_of("xxx", "", "x", "xxxxx", "xx"))
    assert [one.score for one in scores] == [3, 0, 1, 5, 2]


async def test_one_bad_item_spares_its_neighbours() -> None:
    batcher = batcher_of(Model(), batch_size=8)
    tasks = [batcher.submit(items_of(text)) for text in ("a", "bad", "bb", "ccc")]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[1], NotFinite)
    assert [one[0].score for one in results if isinstance(one, list)] == [1, 2, 3]


async def test_a_full_queue_refuses_at_once_and_loses_nothing() -> None:
    model = Model()
    model.gate.clear()
    batcher = batcher_of(model, batch_size=2, max_queued=4)
    first = asyncio.create_task(batcher.submit(items_of("a", "b", "c", "d")))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(batcher.submit(items_of("e", "f")))
    await asyncio.sleep(0.05)
    assert batcher.is_full
    with pytest.raises(Overloaded):
        await batcher.submit(items_of("g"))
    model.gate.set()
    assert len(await first) == 4 and len(await second) == 2


async def test_a_request_that_is_gone_does_not_stop_the_others() -> None:
    model = Model()
    model.gate.clear()
    batcher = batcher_of(model, batch_size=1)
    gone = [asyncio.create_task(batcher.submit(items_of(text))) for text in ("a", "aa")]
    stays = asyncio.create_task(batcher.submit(items_of("bb")))
    await asyncio.sleep(0.05)
    for task in gone:
        task.cancel()
    model.gate.set()
    assert (await stays)[0].score == 2
    assert all(task.cancelled() for task in gone) and sum(model.batches) == 2  # one had begun, the other never does
