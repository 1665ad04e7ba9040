"""Preference pairs: raw formats, mining, degraded answers, splits. Parsers meet arbitrary JSON."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from foundation.errors import Unusable, UserError
from foundation.files import in_utf8, write_lines
from reward_model.bundled_pairs import QUESTIONS, build, read_split
from reward_model.convert_dpo_format import convert_file, convert_row
from reward_model.degrade import WRONG, Section, right_answer, sections_of, wrong_answer
from reward_model.mine_pairs import mine
from reward_model.pairs import Pair, Skipped, grounded, make_pair, parsed, read_pairs, split_by_key
from sql_agent.config import ROOT
from sql_agent.data.build import build_bundled
from sql_agent.offline_judge.judge import grade

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
TURNS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": JSON | st.text(min_size=1)}
    ),
    max_size=4,
)
ROWS = st.dictionaries(
    st.sampled_from(["prompt", "chosen", "rejected", "messages", "rejected_messages", "x"]), JSON | TURNS | st.text()
)


def turns(*contents: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


def lines_file(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


# Conversion


def test_texts_become_dialogues() -> None:
    pair = convert_row({"prompt": "q", "chosen": "good", "rejected": "bad", "id": 7})
    assert pair.model_dump(include={"chosen", "rejected"}) == {
        "chosen": turns("q", "good"),
        "rejected": turns("q", "bad"),
    }


def test_agent_dialogues_keep_user_and_assistant() -> None:
    system, tool = {"role": "system", "content": "s"}, {"role": "tool", "content": "{}"}
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    parts = {"role": "assistant", "content": [{"type": "text", "text": "go"}, {"type": "text", "text": "od"}]}
    user = turns("q")[0]
    row = {"messages": [system, user, call, tool, parts], "rejected_messages": [system, user, *turns("q", "bad")[1:]]}
    pair = convert_row({**row, "tools": "[]"})
    assert [turn.model_dump() for turn in pair.chosen] == turns("q", "good")
    assert [turn.model_dump() for turn in pair.rejected] == turns("q", "bad")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "no key prompt"),
        ({"prompt": "q", "chosen": "a"}, "no key rejected"),
        ({"prompt": "q", "chosen": "a", "rejected": 3}, "rejected is not a text"),
        ({"prompt": " ", "chosen": "a", "rejected": "b"}, "prompt is empty"),
        ({"prompt": "q", "chosen": "a", "rejected": "a"}, "chosen equals rejected"),
        ({"messages": turns("q", "a")}, "rejected_messages is missing"),
        ({"messages": turns("q", "a"), "rejected_messages": turns("other", "b")}, "different prompts"),
        ({"messages": turns("q", "a"), "rejected_messages": turns("q")}, "does not end with an answer"),
        ({"messages": [1], "rejected_messages": turns("q", "b")}, "messages is missing or no list"),
        ({"messages": turns("q", "a"), "rejected_messages": [{"role": "user", "content": {}}]}, "content is not text"),
        ({"messages": turns("q", "a")[1:], "rejected_messages": turns("q", "b")}, "begin with a user turn"),
    ],
)
def test_a_row_that_is_no_pair_has_a_reason(row: dict[str, Any], reason: str) -> None:
    with pytest.raises((Unusable, ValidationError), match=reason):
        convert_row(row)


def test_every_line_ends_in_the_output_or_in_a_count(tmp_path: Path) -> None:
    good = {"prompt": "q", "chosen": "a", "rejected": "b"}
    raw = lines_file(
        tmp_path / "raw.jsonl", [good, "", "{", "[]", good, {"prompt": "q"}, '{"prompt": "\\ud800"}', good]
    )
    raw.write_bytes(raw.read_bytes() + b'\xff\xfe\n{"prompt":"p\xe2\x80\xa8x","chosen":"a","rejected":"b"}')
    pairs, skipped = convert_file(raw)
    assert [pair.prompt for pair in pairs] == ["q", "p\u2028x"]
    assert skipped.counts == {
        "not JSON": 1,
        "not a JSON object": 1,
        "the same pair as an earlier line": 2,
        "no key chosen (nor messages)": 1,
        "a lone surrogate in a text": 1,
        "not UTF-8": 1,
    }
    assert skipped.lines["the same pair as an earlier line"] == [5, 8]


def test_dialogues_of_a_prompt_are_converted_as_what_convert_writes_is() -> None:
    """As UltraFeedback has them, and TRL."""
    system = {"role": "system", "content": "s"}
    row = {"prompt": "q", "chosen": [system, *turns("q", "a")], "rejected": turns("q", "b"), "score_chosen": 8.5}
    pair = convert_row(row)
    assert pair == make_pair("q", "a", "b") == convert_row(pair.model_dump())


@given(ROWS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_object_is_a_pair_or_unusable(row: dict[str, Any]) -> None:
    skipped = Skipped()
    pairs = list(parsed([(1, row)], convert_row, skipped))
    if not pairs:
        assert all(len(reason) < 200 for reason in skipped.counts)
        return
    [(_, pair)] = pairs
    assert pair.chosen[0] == pair.rejected[0] and pair.chosen != pair.rejected
    assert {turn.role for turn in [*pair.chosen, *pair.rejected]} == {"user", "assistant"}
    assert all(turn.content.strip() for turn in [*pair.chosen, *pair.rejected])


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=1, max_size=3))
def test_dialogues_keep_their_words(texts: list[tuple[str, str]]) -> None:
    said = [text for pair in texts for text in pair]
    row = {"messages": turns(*said), "rejected_messages": turns(*said[:-1], said[-1] + "!")}
    if all(text.strip() for text in said):
        assert [turn.content for turn in convert_row(row).chosen] == said


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "raw.jsonl"


@given(data=st.binary(max_size=300))
@settings(deadline=None)
def test_any_bytes_can_be_read(scratch: Path, data: bytes) -> None:
    scratch.write_bytes(data)
    pairs, skipped = convert_file(scratch)
    n_lines = sum(bool(line.strip()) for line in in_utf8(data).split(b"\n"))
    assert len(pairs) + skipped.counts.total() == n_lines


def test_the_documented_command(tmp_path: Path) -> None:
    raw = lines_file(tmp_path / "raw.jsonl", [{"prompt": "q", "chosen": "好", "rejected": "坏"}, "{"])
    out = tmp_path / "converted.jsonl"
    command = [sys.executable, "convert_dpo_format.py", f"--input={raw}", "--output", str(out)]
    done = subprocess.run(command, cwd=ROOT / "reward_model", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 x not JSON (line 2)" in done.stderr and "1 pairs" in done.stdout
    assert json.loads(out.read_text()) == {"chosen": turns("q", "好"), "rejected": turns("q", "坏")}
    raw.write_text("{}\n")
    done = subprocess.run(command, cwd=ROOT / "reward_model", capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no line could be converted" in done.stderr and "Traceback" not in done.stderr


# Mining


def rollout(answer: str, value: float, **changes: Any) -> dict[str, Any]:
    parts = {"sql": 0.1, "answer": value}
    row = {"question_id": "1", "question": "q", "reference": "r", "answer": answer, "mode": "train", "group": "g"}
    return {**row, "reward": 0.1 + value, "reward_parts": parts, "unscored": "", **changes}


def test_best_against_worst_of_a_group(tmp_path: Path) -> None:
    rows = [rollout("mid", 0.5), rollout("worst", 0.1), rollout("best", 0.9), rollout("other", 1.0, group="h")]
    lines_file(tmp_path / "rollouts.jsonl", rows)
    mined = mine([tmp_path], margin=0.2)  # the run, or its file
    assert mined == mine([tmp_path / "rollouts.jsonl"], margin=0.2)
    assert mined.pairs == [make_pair(grounded("q", "r"), "best", "worst", kind="mined")]
    assert mined.n_groups == 2 and mined.skipped.counts == {"a group with one scored rollout": 1}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([rollout("a", 0.5), rollout("b", 0.4)], "differ by less than 0.2"),
        ([rollout("a", 1.0), rollout("b", 0.0, reward=None, unscored="llm_fault")], "an unscored rollout"),
        ([rollout("a", 1.0), rollout("b", 0.0, mode="val")], "a validation rollout"),
        ([rollout("a", 1.0), rollout("a", 0.0)], "gave one text two values"),
        ([rollout(" ", 1.0), rollout("a", 0.0)], "best answer is empty"),
        ([rollout("a", 1.0), rollout("b", 0.0, reward_parts={})], "no reward_parts.answer"),
        ([rollout("a", 1.0), rollout("b", 0.0, reward_parts={"answer": 10**400})], "no reward_parts.answer"),
        ([rollout("a", 1.0), rollout("b", 0.0, reward_parts={"answer": float("nan")})], "no reward_parts.answer"),
        ([rollout("a", 1.0), rollout("b", 0.0, question=None)], "no question, reference or answer as text"),
    ],
)
def test_groups_that_give_no_pair_are_counted(tmp_path: Path, rows: list[Any], reason: str) -> None:
    mined = mine([lines_file(tmp_path / "r.jsonl", rows)], margin=0.2)
    assert mined.pairs == [] and any(reason in text for text in mined.skipped.counts)


def test_the_bonus_does_not_rank_answers(tmp_path: Path) -> None:
    """Between two equal answers, the one that ran SQL is no better text."""
    rows = [rollout("a", 0.5, reward=0.6), rollout("b", 0.5, reward=0.5)]
    assert mine([lines_file(tmp_path / "r.jsonl", rows)], margin=0.05).pairs == []


def test_mining_needs_a_margin(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--margin 0"):
        mine([lines_file(tmp_path / "r.jsonl", [])], margin=0)


# Degraded answers

FACT = st.text("甲乙丙丁戊己庚辛壬癸", min_size=2, max_size=5)
SECTIONS = st.lists(
    st.builds(
        Section, st.sampled_from(["", "药的禁忌"]), st.lists(FACT, min_size=1, max_size=5, unique=True).map(tuple)
    ),
    min_size=1,
    max_size=3,
)


@settings(deadline=None)
@given(SECTIONS, st.integers(), st.sampled_from(WRONG))
def test_degraded_answers_are_worth_what_they_say(sections: list[Section], seed: int, kind: Any) -> None:
    strange = ["子丑寅卯", "辰巳", "午未申", "酉戌亥"]
    rng = random.Random(seed)
    answer = wrong_answer(kind, sections, question="问题？", strange_facts=strange, rng=rng)
    facts = [fact for section in sections for fact in section.facts]
    if answer is None:
        assert kind == "dropped" and len(facts) == 1
        return
    assert 0 <= answer.value < 1 and answer.kind == kind
    has_all = all(fact in answer.text for fact in facts)
    has_strange = any(fact in answer.text for fact in strange)
    assert has_strange == (kind in ("invented", "wrong_entity"))
    assert has_all or kind != "invented"
    right = right_answer(sections, rng)
    assert right.value == 1 and all(fact in right.text for fact in facts)


def test_a_strange_fact_is_never_one_of_the_reference() -> None:
    sections = [Section("", ("对本品过敏",))]
    for seed in range(20):
        made = wrong_answer(
            "wrong_entity", sections, question="", strange_facts=["过敏", "哺乳期"], rng=random.Random(seed)
        )
        assert made and "哺乳期" in made.text and "过敏" not in made.text
    assert not wrong_answer("invented", sections, question="", strange_facts=["过敏"], rng=random.Random(1))


def test_a_reference_in_sections() -> None:
    assert sections_of("甲的禁忌：一；二。乙的用法：三。") == [
        Section("甲的禁忌", ("一", "二")),
        Section("乙的用法", ("三",)),
    ]
    assert sections_of("没有冒号的一句话") == [Section("", ("没有冒号的一句话",))]


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build_bundled()
    out = tmp_path_factory.mktemp("pairs")
    build(QUESTIONS, out, seed=1)
    return out


@pytest.mark.long
def test_bundled_pairs_hold_entities_out(bundled: Path) -> None:
    prompts = {
        split: {pair.prompt for pair in read_pairs(bundled / f"{split}.jsonl")[0]} for split in ("train", "test")
    }
    assert len(prompts["train"]) == 1900 and len(prompts["test"]) == 505 and not prompts["train"] & prompts["test"]
    rows = {split: {row for s in read_split(QUESTIONS / f"{split}.parquet") for row in s.rows} for split in prompts}
    assert rows["train"] and not rows["train"] & rows["test"]


def test_wrong_facts_come_from_the_same_split(bundled: Path) -> None:
    sources = read_split(QUESTIONS / "test.parquet")
    known = "".join(fact for source in sources for section in source.sections for fact in section.facts)
    for pair in read_pairs(bundled / "test.jsonl")[0]:
        if pair.kind == "wrong_entity":
            for section in sections_of(pair.rejected[-1].content)[1:2]:
                assert all(fact.removeprefix(f"{n}. ") in known for n, fact in enumerate(section.facts, start=1))


def test_the_reference_judge_agrees_with_the_pairs(bundled: Path) -> None:
    """An independent look at the labels: the rule-based judge ranks nearly every pair the same way."""
    pairs = random.Random(1).sample(read_pairs(bundled / "train.jsonl")[0], 150)
    agreed: Counter[bool] = Counter()
    for pair in pairs:
        question, _, reference = pair.prompt.partition("\n\n参考答案：")
        sides = [
            grade(question=question, reference=reference, answer=turns[-1].content, evidence=[])
            for turns in (pair.chosen, pair.rejected)
        ]
        agreed[bool(sides[0] and sides[1] and sides[0].value > sides[1].value)] += 1
    assert agreed[True] >= 140


@pytest.mark.long
def test_the_same_seed_gives_the_same_pairs(bundled: Path, tmp_path: Path) -> None:
    build(QUESTIONS, tmp_path, seed=1)
    for name in ("train.jsonl", "labelled.jsonl"):
        assert (tmp_path / name).read_bytes() == (bundled / name).read_bytes()


def test_a_leaking_folder_is_refused(tmp_path: Path) -> None:
    build_bundled()
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.parquet").symlink_to(QUESTIONS / "train.parquet")
    with pytest.raises(UserError, match="nothing would be held out"):
        build(tmp_path, tmp_path / "out", seed=1)
    with pytest.raises(UserError, match="not a question file"):
        build(tmp_path / "nowhere", tmp_path / "out", seed=1)


# Splits and files


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=60), st.floats(0.01, 0.99), st.integers())
def test_a_prompt_is_on_one_side(rows: list[int], share: float, seed: int) -> None:
    keys = [str(row) for row in rows]
    if len(set(keys)) < 2:
        with pytest.raises(UserError, match="two prompts or more"):
            split_by_key(rows, keys, share=share, seed=seed)
        return
    train, held = split_by_key(rows, keys, share=share, seed=seed)
    assert train and held and not set(train) & set(held) and sorted(train + held) == sorted(rows)


def test_pairs_survive_the_disk(tmp_path: Path) -> None:
    pairs = [make_pair("q\u2028\n", "好", "", kind="empty")]
    write_lines(tmp_path / "p.jsonl", (pair.model_dump() for pair in pairs))
    assert read_pairs(tmp_path / "p.jsonl")[0] == pairs
    assert Pair.model_validate(json.loads((tmp_path / "p.jsonl").read_text())) == pairs[0]
    (tmp_path / "p.jsonl").write_text('{"chosen": []}\n')
    with pytest.raises(UserError, match="no line is a pair"):
        read_pairs(tmp_path / "p.jsonl")
