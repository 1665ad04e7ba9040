"""What the tiny policy may have seen: names as tokens, made-up entities, training phrasings alone."""

from __future__ import annotations

import random

import yaml
from transformers import PreTrainedTokenizerFast

from sql_agent.data.templates import load_templates
from sql_agent.tiny_policy.corpus import SOURCE, Corpus
from sql_agent.tiny_policy.demos import Demonstrator


def entity_names() -> list[str]:
    rows = [row for path in SOURCE.glob("*/*.yaml") for row in yaml.safe_load(path.read_text(encoding="utf-8"))]
    return [str(row.get("med_name") or row.get("disease_name")) for row in rows]


def test_a_name_has_the_same_tokens_wherever_it_stands(tokenizer: PreTrainedTokenizerFast) -> None:
    for name in ["氨氯地平", "阵发性室上性心动过速", "缺铁性贫血"]:
        inside = tokenizer.encode(name, add_special_tokens=False)
        assert len(inside) == len(name)
        for frame in ("{}的适应症是什么？", "WHERE med_name = '{}'", '{{"med_name": "{}"}}', "，{}；"):
            ids = tokenizer.encode(frame.format(name), add_special_tokens=False)
            assert any(ids[i : i + len(inside)] == inside for i in range(len(ids)))


def test_demonstrations_are_reproducible_and_name_no_bundled_entity(corpus: Corpus) -> None:
    one, two = (Demonstrator(corpus, random.Random(7)) for _ in range(2))
    chats = [one.demonstrate() for _ in range(200)]
    assert chats == [two.demonstrate() for _ in range(200)]
    # A value that is searched for is a fact, and a fact may name a disease.
    asked = [str(chat[1]["content"]) for chat in chats if "LIKE" not in str(chat[2])]
    known = [name for name in entity_names() if len(name) > 3]
    assert not [text for text in asked if any(name in text for name in known)]
    assert len(asked) > 100


def test_no_phrasing_of_validation_or_test_is_demonstrated(corpus: Corpus) -> None:
    held_out = {p.id for group in load_templates().phrasings.values() for p in group if p.split != "train"}
    assert held_out and not held_out & {p.id for group in corpus.phrasings.values() for p in group}
