"""What a data set's name means, what of it is learned from, and what is left out and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerFast

from foundation import run_folder
from foundation.errors import UserError
from foundation.files import write_lines
from reward_model.convert_dpo_format import convert_file
from sql_agent.agent.sql_tool import QUERY
from sql_agent.config import DpoConfig, SftConfig, TrainConfig, build_config
from sql_agent.tiny_policy.tokenizer import train_tokenizer
from sql_agent.tuning.encoding import Encoder
from sql_agent.tuning.job import best, encoded, mined, prepare
from sql_agent.tuning.options import brought, resolve_config
from sql_agent.tuning.sources import Source, read_source
from tests.typed import tune_flags

TINY = {"agent": {"system_prompt": "system_short"}}
ASKED = {"role": "user", "content": "问？"}
ANSWERED = {"role": "assistant", "content": "答。"}
SQL = "SELECT med_name FROM drugs_info LIMIT 1"
CALLED = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": QUERY, "arguments": {"sql": SQL}}}]}
SAID = "{% for message in messages %}{{ message.content }}{% endfor %}"
RESULT = {"role": "tool", "tool_call_id": "1", "content": "{}"}


def read(path: Path, *rows: Any, **config: Any) -> Source:
    write_lines(path, rows)
    tree = build_config(TINY, {"sft": {"dataset": str(path)}}, config)
    return read_source(tree.sft, tree.data, tree)


def rollout(reward: float | None, **changes: Any) -> dict[str, Any]:
    """A line of rollouts.jsonl as the trainer writes it."""
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": QUERY, "arguments": '{"sql": "x"}'}]},
        RESULT,
        {"role": "assistant", "content": f"答{changes.get('answer', reward)}", "tool_calls": []},
    ]
    parts = {} if reward is None else {"answer": reward}
    row = {"question_id": "q1", "question": "问？", "reward": reward, "reward_parts": parts}
    return {**row, "mode": "train", "stop_reason": "answered", "messages": messages, **changes}


def test_rollouts_of_several_agents_are_learned_from_as_each_was_told(tmp_path: Path) -> None:
    math = {"agent": {"tools": ["python"], "system_prompt": "tools"}}
    rows = [rollout(1.0), rollout(0.5, agent="math"), rollout(0.5, agent="gone")]
    source = read(tmp_path / run_folder.ROLLOUTS, *rows, agents={"math": math})
    default, other = source.chats
    assert [tool["function"]["name"] for chat in (default, other) for tool in chat.tools] == [QUERY, "python"]
    assert default.messages[0]["content"] != other.messages[0]["content"]
    assert source.left_out == {"agent 'gone', which [agents] does not name": 1}


def test_messages_are_taken_as_they_stand(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    source = read(
        tmp_path / "chats.jsonl",
        {"messages": [ASKED, ANSWERED]},
        {"messages": [ASKED, CALLED, RESULT, ANSWERED]},
        {"messages": [ASKED, ANSWERED], "tools": [tool]},
        {"messages": [ASKED]},
        {"messages": "no"},
        {"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}]},
    )
    plain, called, offered = source.chats
    assert plain.messages == [ASKED, ANSWERED] and plain.tools == [] and offered.tools == [tool]
    assert called.messages[1]["tool_calls"][0]["function"] == {"name": QUERY, "arguments": {"sql": SQL}}
    assert [tool["function"]["name"] for tool in called.tools] == [QUERY]  # the agent's own
    assert set(source.left_out) == {
        "no message of the assistant",
        "messages is no list of messages",
        "a tool call whose arguments are no JSON",
    }


def test_prompt_and_completion_are_texts_or_messages(tmp_path: Path) -> None:
    source = read(
        tmp_path / "rows.jsonl",
        {"prompt": "问？", "completion": "答。"},
        {"prompt": [ASKED], "completion": [ANSWERED]},
        {"prompt": "问？", "completion": " "},
    )
    assert [chat.messages for chat in source.chats] == [[ASKED, ANSWERED]] * 2
    assert source.left_out == {"no text of the assistant": 1}


def test_sharegpt_is_read_as_messages_are(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": QUERY, "parameters": {}}}
    call = {"name": QUERY, "arguments": {"sql": SQL}}
    told = [("human", "问？"), ("function_call", json.dumps(call)), ("observation", "[]"), ("gpt", "答。")]
    turns = [{"from": name, "value": value} for name, value in told]
    source = read(
        tmp_path / "sharegpt.jsonl",
        {"conversations": turns, "tools": json.dumps([tool])},
        {"conversations": [{"from": "narrator", "value": "问？"}]},
        {"conversations": [turns[0], {"from": "function_call", "value": "no JSON"}]},
        {"conversations": "no"},
    )
    (chat,) = source.chats
    assert [message["role"] for message in chat.messages] == ["user", "assistant", "tool", "assistant"]
    assert chat.messages[1]["tool_calls"][0]["function"] == call and chat.tools == [tool]
    assert source.left_out.total() == 3 and "a tool call without a name" in source.left_out
    better, worse = ({"from": "gpt", "value": text} for text in ("答。", "错。"))
    (pair,) = read(tmp_path / "pairs.jsonl", {"conversations": turns[:1], "chosen": better, "rejected": worse}).pairs
    assert (pair.chosen.messages, pair.rejected.messages[1]["content"]) == ([ASKED, ANSWERED], "错。")


def test_what_is_marked_as_no_example_is_not_learned_from(tmp_path: Path) -> None:
    silent = {**ANSWERED, "weight": 0}
    source = read(
        tmp_path / "marked.jsonl",
        {"messages": [ASKED, silent, ASKED, {**ANSWERED, "weight": 1}]},
        {"messages": [ASKED, silent]},
        {"messages": [ASKED, {**ANSWERED, "weight": 0.5}]},
        {"prompt": "问？", "completion": "答。", "label": True},
        {"prompt": "问？", "completion": "错。", "label": False},
    )
    assert [(len(chat.messages), chat.context) for chat in source.chats] == [(4, {1}), (2, frozenset())]
    assert source.left_out == {
        "all messages of the assistant have weight 0": 1,
        "the weight of a message is neither 0 nor 1": 1,
        "label is false: not to be learned from": 1,
    }


def test_a_question_is_shown_with_what_its_reference_sql_gives(tmp_path: Path) -> None:
    raw = {"qid": "a", "question": "问？", "ground_truth": "答。", "sql": [SQL]}
    broken = {"qid": "b", "question": "问二？", "ground_truth": "答。", "sql": ["SELECT nothing FROM nowhere"]}
    source = read(tmp_path / "qa.jsonl", raw, broken, {"qid": "c", "question": "问三？", "ground_truth": ""})
    (chat,) = source.chats
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert json.loads(chat.messages[3]["content"])["count"] == 1 and chat.messages[-1]["content"] == "答。"
    assert source.left_out == {"reference SQL that does not run": 1, "no reference answer": 1}


def test_the_best_rollouts_are_kept_and_unscored_ones_never(tmp_path: Path) -> None:
    rows = [rollout(0.9), rollout(1.1), rollout(0.2), rollout(1.1), rollout(0.85, question_id="q2")]
    rows += [rollout(None, unscored="judge_unreachable"), rollout(1.1, mode="val"), rollout(1.1, messages=[])]
    rows += [rollout(1.1, unscored="no_token_ids", answer="x"), rollout(1.1, n_untrained_calls=1)]
    source = read(tmp_path / run_folder.ROLLOUTS, *rows)
    assert source.are_rollouts and [chat.reward for chat in source.chats] == [0.9, 1.1, 0.2, 1.1, 0.85]
    assert source.left_out["unscored"] == 2 and source.left_out["a rollout of validation"] == 1
    kept, left = best(source.chats, SftConfig())
    assert [chat.reward for chat in kept] == [1.1, 0.85] and left.total() == 3
    kept, left = best(source.chats, SftConfig(best_of=0, min_reward=0.5))
    assert [chat.reward for chat in kept] == [1.1, 0.9, 0.85]
    assert left == {"a reward below sft.min_reward": 1, "the same as another rollout of its question": 1}
    assert kept[0].messages[0]["role"] == "system" and kept[0].messages[1] == ASKED


def test_pairs_have_a_clear_difference_and_one_question(tmp_path: Path) -> None:
    rows = [rollout(reward) for reward in (0.1, 1.1, 0.6, 0.5)] + [rollout(0.6, question_id="q2")]
    rows += [rollout(1.1, group="q1-step-2"), rollout(None, unscored="x", answer="u")]
    source = read(tmp_path / run_folder.ROLLOUTS, *rows)
    pairs, left = mined(source.chats, DpoConfig())
    assert [(pair.chosen.reward, pair.rejected.reward) for pair in pairs] == [(1.1, 0.1)]
    assert left == {"a question without a difference of dpo.margin": 2}
    pairs, _ = mined(source.chats, DpoConfig(margin=0.05))
    assert [(pair.chosen.reward, pair.rejected.reward) for pair in pairs] == [(1.1, 0.1), (0.6, 0.5)]
    assert len(mined(source.chats, DpoConfig(margin=0.05, pairs_per_question=1))[0]) == 1


def test_given_pairs_are_read_raw_and_converted(tmp_path: Path) -> None:
    raw = [{"prompt": "问？", "chosen": "好。", "rejected": "坏。"}]
    raw += [{"messages": [ASKED, ANSWERED], "rejected_messages": [ASKED, {"role": "assistant", "content": "坏。"}]}]
    raw += [{"prompt": "问？", "chosen": "好。", "rejected": "好。"}]
    source = read(tmp_path / "raw.jsonl", *raw)
    assert len(source.pairs) == 2 and source.left_out == {"chosen equals rejected": 1}
    converted = [pair.model_dump(include={"chosen", "rejected"}) for pair in convert_file(tmp_path / "raw.jsonl")[0]]
    again = read(tmp_path / "converted.jsonl", *converted)
    assert [(p.chosen.messages, p.rejected.messages) for p in again.pairs] == [
        (p.chosen.messages, p.rejected.messages) for p in source.pairs
    ]


@pytest.mark.parametrize(
    "rows", [[{"messages": [ASKED, CALLED, RESULT, ANSWERED]}], [{"prompt": "问？", "completion": "答。"}]]
)
def test_a_parquet_file_and_a_json_list_are_read_as_lines_are(tmp_path: Path, rows: list[Any]) -> None:
    lines = read(tmp_path / "rows.jsonl", *rows, *rows)
    (tmp_path / "rows.json").write_text(json.dumps([*rows, *rows], indent=1, ensure_ascii=False), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist([*rows, *rows]), tmp_path / "rows.parquet")
    for name in ("rows.json", "rows.parquet"):
        tree = build_config(TINY, {"sft": {"dataset": str(tmp_path / name)}})
        found = read_source(tree.sft, tree.data, tree)
        assert found.chats == lines.chats and len(found.chats) == 2 and not found.left_out


def test_rollouts_bring_the_prompt_that_they_were_played_with(tmp_path: Path) -> None:
    write_lines(tmp_path / run_folder.ROLLOUTS, [rollout(1.0)])
    old = build_config({"agent": {"system_prompt": "tools", "max_turns": 3}, "optim": {"lr": 0.5}})
    (tmp_path / run_folder.CONFIG).write_text(old.model_dump_json(), encoding="utf-8")
    config = resolve_config("sft", tune_flags("sft", "--data", str(tmp_path)))
    assert (config.agent.system_prompt, config.agent.max_turns) == ("tools", 3)
    assert config.optim == TrainConfig().optim and config.method == "sft"
    other = ["--data", str(tmp_path), "--set", "agent.system_prompt=system_en"]
    assert resolve_config("sft", tune_flags("sft", *other)).agent.system_prompt == "system_en"
    assert brought(None) == {}


@pytest.mark.parametrize(
    ("rows", "rule"),
    [
        ([], "nothing to learn from"),
        ([{"messages": []}], "1 x messages is no list of messages"),
        ([{"question": "?"}], "id"),
    ],
)
def test_a_file_without_anything_to_learn_from_says_why(tmp_path: Path, rows: list[Any], rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        read(tmp_path / "rows.jsonl", *rows)


def test_a_path_that_is_not_there_is_no_hub_name(tmp_path: Path) -> None:
    for name in (str(tmp_path / "gone"), "gone.jsonl", "./gone", "a/b/c"):
        config = build_config({"sft": {"dataset": name}})
        with pytest.raises(UserError, match="does not exist"):
            read_source(config.sft, config.data, config)
    config = build_config({"data": {"train_file": "gone.jsonl"}})
    with pytest.raises(UserError, match="^data.train_file = .*/gone.jsonl: does not exist, nor is it beside"):
        read_source(config.sft, config.data, config)
    config = build_config({"sft": {"dataset": str(tmp_path)}})
    with pytest.raises(UserError, match="holds neither"):
        read_source(config.sft, config.data, config)


def test_environments_and_own_episodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"agent\.command = .* Write its conversations as rows with messages"):
        read(tmp_path / run_folder.ROLLOUTS, rollout(1.0), agent={"command": "python play.py"})


def test_rows_of_two_kinds_are_learned_from_by_the_one_that_can(tmp_path: Path) -> None:
    path, encoder = (
        tmp_path / "mixed.jsonl",
        Encoder(tokenizer_of("{% for m in messages %}{{ m.content }}{% endfor %}")),
    )
    rows = [{"messages": [ASKED, ANSWERED]}, {"prompt": "问？", "chosen": "好", "rejected": "坏"}]
    for settings, rule in ((SftConfig(), "a pair, of which"), (DpoConfig(), "a conversation without a counterpart")):
        source = read(path, *rows)
        assert len(encoded(settings, source, encoder)) == 1
        assert [reason for reason in source.left_out if reason.startswith(rule)]


def test_what_the_template_refuses_or_nobody_asked_is_left_out(tmp_path: Path) -> None:
    template = "{% if messages|length > 2 %}{{ raise_exception('too long') }}{% endif %}" + SAID
    encoder = Encoder(tokenizer_of(template))
    source = read(
        tmp_path / "chats.jsonl",
        {"messages": [ASKED, ANSWERED]},
        {"messages": [ASKED, ANSWERED, ASKED, ANSWERED]},
        {"messages": [ANSWERED, ASKED, ANSWERED]},
        {"messages": [ASKED, {"role": "assistant", "content": " "}]},
        {"chosen": "no prompt, good", "rejected": "no prompt, bad"},
    )
    assert len(encoded(SftConfig(), source, encoder)) == 1
    assert source.left_out == {
        "the model's chat template refuses it (too long)": 1,
        "the assistant begins, with nothing to answer": 2,
        "no text of the assistant": 1,
    }


def test_a_place_that_cannot_be_written_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in ("file", "file/model"):
        config = build_config(TINY, {"method": "sft", "sft": {"dataset": "none", "output_dir": str(tmp_path / out)}})
        with pytest.raises((UserError, OSError), match="xists"):
            prepare(config)


def tokenizer_of(template: str) -> PreTrainedTokenizerFast:
    """One that knows characters."""
    tokenizer = train_tokenizer(["问？答。好坏"] * 50)
    tokenizer.chat_template = template
    return tokenizer
