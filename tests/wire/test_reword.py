"""`reward.reword` over the real scoring API: what a reward model may add to an answer in other words, and what not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation.errors import UserError
from foundation.net import free_port
from reward_client.reward_model import RewardModelClient
from sql_agent.config import RewardConfig
from sql_agent.offline_judge.judge import grade
from sql_agent.records import Episode, Evidence, QueryResult, Question, Reward, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.reward import score
from sql_agent.training.probe import is_cheap
from tests.reward_api import Api

CAP = 0.6
FACTS = ["定期监测肝功能", "出现肌痛及时检查肌酸激酶", "亚洲人群宜从小剂量开始"]
CELL = "；".join(FACTS)
QUESTION = Question(
    id="q",
    question="瑞舒伐他汀的注意事项是什么？",
    answer=f"瑞舒伐他汀的注意事项：{CELL}。",
    evidence=[Evidence(source_table="drugs", row_id="1", field="precautions", quote=CELL)],
)
OTHER_WORDS = "要按时查肝功能，肌肉疼了查肌酸激酶，亚洲人由小剂量吃起。"
PART = f"{FACTS[0]}；肌肉疼了查肌酸激酶。"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEACHER_API_KEY", "TEACHER_MODEL", "TEACHER_BASE_URL", "JUDGE_ENDPOINTS", "REWARD_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def config(**settings: Any) -> RewardConfig:
    model = {"send_reference": True, "attempts": 1, "timeout_s": 20}
    return RewardConfig.model_validate({"sql_bonus": 0, "reword": CAP, "reward_model": model, **settings})


def earned(answer: str, question: Question = QUESTION, *, looked_up: bool = True, **settings: Any) -> Reward:
    calls = [SqlCall(sql="SELECT 1", result=QueryResult(columns=["a"], rows=[[1]]))] * looked_up
    episode = Episode(question=question, final_answer=answer, sql_calls=calls)
    return asyncio.run(score(episode, build_context(config(**settings))))


def quoted(answer: str) -> tuple[float, float]:
    """What the quotes earn, and the share that other words may tell."""
    found = grade(question=QUESTION.question, reference=QUESTION.answer, answer=answer, evidence=[CELL])
    assert found
    return found.value, found.open


@pytest.mark.parametrize(("answer", "share"), [(OTHER_WORDS, 1.0), (PART, 2 / 3)])
def test_other_words_are_raised_as_far_as_the_model_says_and_the_facts_are_open(
    answer: str, share: float, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARD_MODEL_URL", api.url)
    client = RewardModelClient(api.url)
    said = asyncio.run(client.score(prompt=QUESTION.question, response=answer, reference=QUESTION.answer))
    value, is_open = quoted(answer)
    assert is_open == pytest.approx(share) and 0 < said.reward < 1
    found = earned(answer)
    assert found.parts["answer"] == pytest.approx(value + (CAP - value) * share * said.reward)
    assert value < found.parts["answer"] < CAP and found.metadata["logit"] == said.logit


@pytest.mark.parametrize(
    "answer",
    [
        "不必查肝功能，肌肉疼了查肌酸激酶，亚洲人由小剂量吃起。",  # a denial
        "每8周查肝功能，肌肉疼了查肌酸激酶，亚洲人由小剂量吃起。",  # a number of its own
        "肌肉疼了查肌酸激酶？",  # a question
        f"{CELL}；睡前服用。",  # nothing is left to tell in other words
        f"{CELL}。",  # a quote
        QUESTION.question,
    ],
)
def test_what_lies_or_leaves_nothing_open_earns_what_its_quotes_do(
    answer: str, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARD_MODEL_URL", api.url)
    assert earned(answer).parts["answer"] == pytest.approx(quoted(answer)[0])


def test_another_things_facts_and_answers_without_a_query_are_not_raised(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARD_MODEL_URL", api.url)
    assert earned(OTHER_WORDS, looked_up=False).parts["answer"] == pytest.approx(quoted(OTHER_WORDS)[0])
    cells = [QUESTION.evidence[0], Evidence(source_table="drugs", row_id="2", field="precautions", quote="睡前服用")]
    both = QUESTION.model_copy(update={"question": "比较甲药和乙药的注意事项。", "evidence": cells, "answer": ""})
    assert earned(f"甲药：睡前服用。乙药：{CELL}。其他的要看情况。", both).parts["answer"] <= 0.05


def test_a_fault_of_the_model_is_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_MODEL_URL", f"http://127.0.0.1:{free_port()}")
    found = earned(OTHER_WORDS, reward_model={"attempts": 1, "timeout_s": 0.5})
    assert (found.total, found.unscored) == (None, "judge_unreachable")
    assert earned(CELL).total == 1.0  # who needs no model is not held up by one


def test_it_is_off_without_a_model_and_the_judges_name_says_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWARD_MODEL_URL", raising=False)
    context = build_context(config())
    assert "other words: off, REWARD_MODEL_URL is not set" in context.judge_name and is_cheap([QUESTION], context)
    assert earned(OTHER_WORDS).parts["answer"] == pytest.approx(quoted(OTHER_WORDS)[0])
    monkeypatch.setenv("REWARD_MODEL_URL", api.url)
    assert earned(OTHER_WORDS, reword=0).parts["answer"] == pytest.approx(quoted(OTHER_WORDS)[0])
    context = build_context(config())
    assert "the reward model, up to 0.6" in context.judge_name and not is_cheap([QUESTION], context)
    monkeypatch.setenv("REWARD_MODEL_URL", "nonsense")
    with pytest.raises(UserError, match=r"reward.reword = 0.6: REWARD_MODEL_URL"):
        build_context(config())
