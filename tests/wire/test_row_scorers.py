"""Scorers named by the rows of a batch: the guarded database, a reward model's API, the user's own functions."""

from __future__ import annotations

import asyncio
import json
import math
import time
from contextlib import closing
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UserError
from reward_client.scale_map import ScaleMap, load_scale
from sql_agent.config import DatabaseConfig, RewardConfig
from sql_agent.records import Episode, QueryResult, Question, Reward, SqlCall
from sql_agent.scoring import registry as scorer_registry
from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import check_judge, check_scorers
from sql_agent.scoring.registry import SCORERS, ScoringContext, scorer
from sql_agent.scoring.reward import score
from sql_agent.testing.server import Answer, Reply, error_reply, in_turn, openai_server
from tests.broken_addresses import broken_addresses
from tests.sql_db import TABLES, make_database, open_database

TOKEN = "token-very-secret"
SCALE = {"logits": [-5.0, 0.0, 5.0], "rewards": [0.0, 0.5, 1.0], "fitted_on": "reference set"}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEACHER_API_KEY", "TEACHER_MODEL", "TEACHER_BASE_URL", "REWARD_MODEL_URL", "REWARD_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_scorers() -> Any:
    """Scorers that a test adds are gone after it."""
    before = dict(SCORERS)
    yield
    SCORERS.clear()
    SCORERS.update(before)


def question(**values: Any) -> Question:
    return Question.model_validate({"id": "q1", "question": "有多少种药？", "answer": "300", **values})


def run_agent(folder: Path, *queries: str, **values: Any) -> Episode:
    """What the agent's tool would have recorded for these queries (three rows are kept of a result)."""
    with open_database(folder / "medical.db", max_rows=3) as database:
        calls = [SqlCall(sql=sql, result=database.query_sync(sql)) for sql in queries]
    return Episode(question=question(**{"scorer": "sql_result"} | values), final_answer="答", sql_calls=calls)


def sql_reward(folder: Path, *queries: str, **values: Any) -> Reward:
    tables = DatabaseConfig.model_validate({"path": str(folder / "medical.db"), "tables": TABLES})
    context = build_context(RewardConfig(), tables)
    with closing(context):
        return asyncio.run(score(run_agent(folder, *queries, **values), context))


NAMES = "SELECT med_name FROM drugs_info WHERE id < 4"
ORDERED = f"{NAMES} ORDER BY id"
DISEASES = "SELECT disease_name FROM disease"


@pytest.mark.parametrize(
    ("reference", "queries", "value"),
    [
        ([NAMES], [NAMES], 1.0),
        ([NAMES], ["SELECT med_name AS n FROM drugs_info WHERE id <= 3 ORDER BY id DESC"], 1.0),
        ([ORDERED], ["SELECT med_name FROM drugs_info WHERE id <= 3 ORDER BY id DESC"], 0.0),
        ([ORDERED], ["SELECT med_name FROM drugs_info WHERE id <= 3 ORDER BY price"], 1.0),
        ([NAMES], ["SELECT id, med_name FROM drugs_info WHERE id < 4"], 0.0),
        (
            ["SELECT id, med_name FROM drugs_info WHERE id < 4"],
            ["SELECT med_name, id FROM drugs_info WHERE id < 4"],
            1.0,
        ),
        ([NAMES], ["SELECT med_name FROM drugs_info WHERE id < 5"], 0.0),
        # All 300 rows are compared, not the three that the agent saw.
        (["SELECT med_name FROM drugs_info"], ["SELECT med_name FROM drugs_info WHERE id > 0"], 1.0),
        (["SELECT med_name FROM drugs_info"], ["SELECT med_name FROM drugs_info WHERE id > 1"], 0.0),
        # The last k queries count, so neither a right one long before the end nor a series of guesses pays.
        ([NAMES], [NAMES, DISEASES], 0.0),
        ([NAMES], [DISEASES, NAMES, "SELECT nonsense"], 1.0),
        # One that ran before counts where it ran last.
        ([NAMES], [NAMES, DISEASES, NAMES], 1.0),
        ([NAMES], [DISEASES, NAMES, DISEASES], 0.0),
        ([NAMES, DISEASES], [DISEASES, NAMES], 1.0),
        ([NAMES, DISEASES], [DISEASES, "SELECT id FROM disease"], 0.5),
        # What the query says itself is no result.
        (["SELECT COUNT(*) FROM drugs_info"], ["SELECT 300"], 0.0),
        (["SELECT COUNT(*) FROM drugs_info"], ["WITH t AS (SELECT 300 AS a) SELECT a FROM t"], 0.0),
        (["SELECT COUNT(*) FROM drugs_info"], ["SELECT MAX(300) FROM disease"], 0.0),
        (["SELECT COUNT(*) FROM drugs_info"], ["SELECT 300 + 0 * COUNT(*) FROM disease"], 0.0),
        (["SELECT 'a text' FROM drugs_info LIMIT 1"], ['SELECT "a text" FROM drugs_info LIMIT 1'], 0.0),
        (["SELECT id FROM drugs_info"], ['SELECT "ID" FROM drugs_info'], 1.0),
        (["SELECT COUNT(*) FROM drugs_info"], ["SELECT COUNT(id) FROM drugs_info"], 1.0),
        ([NAMES], [], 0.0),
    ],
)
def test_sql_result(tmp_path: Path, reference: list[str], queries: list[str], value: float) -> None:
    make_database(tmp_path)
    assert sql_reward(tmp_path, *queries, sql=reference).parts["answer"] == value


@pytest.mark.parametrize(
    ("reference", "query", "value"),
    [
        (NAMES, "SELECT med_name AS n FROM drugs_info WHERE id <= 3", 1.0),
        (NAMES, "SELECT med_name FROM drugs_info WHERE id < 5", 0.5 * 3 / 4),
        (NAMES, "SELECT med_name FROM drugs_info WHERE id < 3", 0.5 * 2 / 3),
        (NAMES, "SELECT id, med_name FROM drugs_info WHERE id < 4", 0.5 / 2),
        ("SELECT id, med_name FROM drugs_info WHERE id < 4", NAMES, 0.5 / 2),
        (ORDERED, "SELECT med_name FROM drugs_info WHERE id < 4 ORDER BY id DESC", 0.5 / 9),
        # What a policy without the answer may try: whole tables, their product, their union, constants, one row often.
        (NAMES, "SELECT med_name FROM drugs_info", 0.5 * 3 / 300),
        (NAMES, "SELECT a.med_name, b.med_name FROM drugs_info a, drugs_info b WHERE b.id < 31", 0.0),
        (NAMES, "SELECT med_name FROM drugs_info UNION ALL SELECT disease_name FROM disease", 0.0),
        (NAMES, "SELECT 1 FROM drugs_info", 0.0),
        (NAMES, "SELECT COUNT(*) FROM drugs_info", 0.0),
        (NAMES, "SELECT a.med_name FROM drugs_info a, drugs_info b WHERE a.id = 1", 0.0),
    ],
)
def test_sql_partial_pays_little_for_everything(tmp_path: Path, reference: str, query: str, value: float) -> None:
    make_database(tmp_path)
    found = sql_reward(tmp_path, query, sql=[reference], scorer="sql_partial").parts["answer"]
    assert found == pytest.approx(value, abs=0.006)


@pytest.mark.parametrize(
    ("reference", "unscored"),
    [
        ("SELECT nothing FROM drugs_info", "bad_reference_query"),
        ("DELETE FROM drugs_info", "bad_reference_query"),
        ("SELECT login FROM accounts", "bad_reference_query"),
        ("SELECT med_name FROM drugs_info WHERE id < 0", "bad_reference_query"),
        ("SELECT a.id, b.id FROM drugs_info a, drugs_info b", "bad_reference_query"),
    ],
)
def test_a_bad_reference_query_is_unscored(tmp_path: Path, reference: str, unscored: str) -> None:
    make_database(tmp_path)
    found = sql_reward(tmp_path, NAMES, sql=[reference])
    assert found.unscored == unscored and found.explanation and found.total is None


def test_a_missing_database_is_a_fault(tmp_path: Path) -> None:
    make_database(tmp_path)
    episode = run_agent(tmp_path, NAMES, sql=[NAMES])
    gone = DatabaseConfig.model_validate({"path": str(tmp_path / "gone.db"), "tables": TABLES})
    with closing(build_context(RewardConfig(), gone)) as context:
        assert asyncio.run(score(episode, context)).unscored == "database_fault"
    assert asyncio.run(score(episode, build_context(RewardConfig()))).unscored == "no_database"


# The reward model


def scale_file(folder: Path, **changes: Any) -> Path:
    path = folder / "scale.json"
    path.write_text(json.dumps({**SCALE, **changes}))
    return path


def model_context(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> ScoringContext:
    monkeypatch.setenv("REWARD_MODEL_URL", url)
    monkeypatch.setenv("REWARD_API_TOKEN", TOKEN)
    settings = {"scale_file": str(scale_file(folder)), "attempts": 1, "timeout_s": 20, **options}
    return build_context(RewardConfig.model_validate({"reward_model": settings}))


def ask_model(context: ScoringContext) -> Reward:
    episode = Episode(question=question(scorer="reward_model"), final_answer="答")
    return asyncio.run(score(episode, context))


def test_a_reward_model_scores_on_its_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda body: Reply(body={"score": 2.5})) as server:
        base = server.base_url.removesuffix("/v1")
        for url in (base, f"{base}/", f"{base}/score"):
            found = ask_model(model_context(tmp_path, url, monkeypatch))
            assert found.parts == {"sql": 0.0, "answer": 0.75} and found.metadata == {"logit": 2.5}
    assert {r.path for r in server.requests} == {"/score"}
    assert server.requests[0].json == {"prompt": "有多少种药？", "response": "答"}
    assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


BROKEN = broken_addresses({"score": 2.5})


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_address_of_the_reward_model_is_unscored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Answer
) -> None:
    started_s = time.monotonic()
    with openai_server(lambda _: broken) as server:
        found = ask_model(model_context(tmp_path, server.base_url, monkeypatch, timeout_s=2))
    assert found.total is None and found.unscored in ("judge_unreachable", "judge_unparsable")
    assert time.monotonic() - started_s < 6


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error_reply(500, "boom"), "judge_unreachable"),
        (error_reply(429, "slow down"), "judge_unreachable"),
        (error_reply(401, TOKEN), "judge_rejected"),
        (error_reply(302, "elsewhere", Location="http://127.0.0.1:9/"), "judge_rejected"),
        (Reply(body="<html>", content_type="text/html"), "judge_unparsable"),
        (Reply(body='{"score": NaN}'), "judge_unparsable"),
        (Reply(body='{"score": 1e999}'), "judge_unparsable"),
        (Reply(body=f'{{"score": {10**400}}}'), "judge_unparsable"),
        (Reply(body=f'{{"score": 1, "reward": {10**400}}}'), "judge_unparsable"),
        (Reply(body='{"score": true}'), "judge_unparsable"),
        (Reply(body='{"score": 1, "reward": 1.7}'), "judge_unparsable"),
        (Reply(body='{"score": "4.9"}'), "judge_unparsable"),
        (Reply(body="[4.9]"), "judge_unparsable"),
        (Reply(body=b" " * 200_000), "judge_unparsable"),
    ],
)
def test_a_fault_of_the_reward_model_is_unscored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, kind: str
) -> None:
    with openai_server(lambda _: answer) as server:
        context = model_context(tmp_path, server.base_url, monkeypatch, timeout_s=20)
        found = ask_model(context)
    assert (found.total, found.unscored, found.parts) == (None, kind, {})
    assert TOKEN not in found.explanation + repr(context)


def test_a_reward_model_is_asked_again_within_its_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([error_reply(503, "starting"), Reply(body={"score": 0.0})])
    with openai_server(lambda _: next(answers)) as server:
        found = ask_model(model_context(tmp_path, server.base_url, monkeypatch, attempts=2, timeout_s=20))
    assert found.parts["answer"] == 0.5 and len(server.requests) == 2


def test_a_busy_reward_model_is_waited_for_and_not_counted_as_a_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = error_reply(503, "the server ends", Retry_After="1")
    with openai_server(in_turn(busy, busy, {"score": 0.0})) as server:
        found = ask_model(model_context(tmp_path, server.base_url, monkeypatch, attempts=1, timeout_s=20))
    at_s = [request.at_s for request in server.requests]
    assert found.parts["answer"] == 0.5 and at_s[1] - at_s[0] >= 1 and at_s[2] - at_s[1] >= 1


@pytest.mark.parametrize(("wait", "attempts"), [("3600", 3), ("soon", 2)])
def test_waiting_for_a_reward_model_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: str, attempts: int
) -> None:
    started_s = time.monotonic()
    with openai_server(lambda _: error_reply(503, "x", Retry_After=wait)) as server:
        found = ask_model(model_context(tmp_path, server.base_url, monkeypatch, attempts=attempts, timeout_s=4))
    assert found.unscored == "judge_unreachable" and time.monotonic() - started_s < 6
    assert len(server.requests) == (1 if wait == "3600" else 2)


@pytest.mark.parametrize("proxy", ["socks9://x", "http://[", "nonsense"])
def test_a_proxy_variable_that_cannot_be_used_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    for name in ("ALL_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    found = ask_model(model_context(tmp_path, "http://reward.invalid", monkeypatch, timeout_s=1))
    assert found.unscored == "judge_unreachable" and TOKEN not in found.explanation


def test_a_raw_logit_without_a_scale_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: Reply(body={"score": 4.9, "reward": None})) as server:
        context = model_context(tmp_path, server.base_url, monkeypatch, scale_file="")
        found = ask_model(context)
        with pytest.raises(UserError, match="REWARD_MODEL_URL.*raw logit"):
            check_judge(context)
    assert found.unscored == "judge_rejected" and "4.9 is a raw logit" in found.explanation and found.total is None


def test_the_servers_own_scale_counts_where_there_is_none_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: Reply(body={"score": 4.9, "reward": 0.25, "truncated": False})) as server:
        context = model_context(tmp_path, server.base_url, monkeypatch, scale_file="", send_reference=True)
        assert ask_model(context).parts["answer"] == 0.25
        check_judge(context)
        assert ask_model(model_context(tmp_path, server.base_url, monkeypatch)).parts["answer"] == pytest.approx(0.99)
    assert server.requests[0].json["reference"] == "300" and "reference" not in server.requests[-1].json


def test_no_reward_model_is_found_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = build_context(RewardConfig())
    assert ask_model(context).unscored == "no_reward_model"
    with pytest.raises(UserError, match=r"row 1 \(q1\): scorer 'reward_model' needs REWARD_MODEL_URL"):
        check_scorers([question(scorer="reward_model")], context)
    with pytest.raises(UserError, match="default_scorer = 'reward_model'.*REWARD_MODEL_URL"):
        build_context(RewardConfig(default_scorer="reward_model"))
    for url, problem in (
        ("127.0.0.1:8400", "starts with http"),
        ("http://[::1", "starts with http"),
        ("http://me:pass-word@host", "no user name"),
        ("http://host/score?token=pass-word", "no user name"),
    ):
        monkeypatch.setenv("REWARD_MODEL_URL", url)
        said = build_context(RewardConfig()).no_reward_model
        assert problem in said and "pass-word" not in said
    monkeypatch.setenv("REWARD_MODEL_URL", "http://127.0.0.1:9")
    missing = {"reward_model": {"scale_file": str(tmp_path / "none.json")}}
    with pytest.raises(UserError, match="row 1.*none.json: no scale map"):
        check_scorers([question(scorer="reward_model")], build_context(RewardConfig.model_validate(missing)))


@pytest.mark.parametrize(
    "changes",
    [
        {"logits": [0, 0, 1]},
        {"logits": [0, 1]},
        {"rewards": [0.0, 0.9, 0.5]},
        {"rewards": [0.0, 0.5, 1.7]},
        {"rewards": [0.0, 0.5, math.nan]},
        {"logits": "abc"},
        {"logits": None},
    ],
)
def test_a_bad_scale_map_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="scale.json"):
        load_scale(scale_file(tmp_path, **changes))


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=2))
def test_the_scale_is_monotone_and_bounded(pair: list[float]) -> None:
    scale = ScaleMap(logits=(-5.0, 0.0, 5.0), rewards=(0.1, 0.5, 0.9))
    low, high = sorted(pair)
    assert 0.1 <= scale(low) <= scale(high) <= 0.9


# Scorers of one's own

OWN = """
from sql_agent.scoring.scorers import scorer

@scorer("length")
def length(question, episode, context):
    return min(1.0, len(episode.final_answer) / 10)
"""


@pytest.mark.usefixtures("own_scorers")
def test_mixed_scorers_in_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_database(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)

    @scorer("slow_half")
    async def slow_half(question: Question, episode: Episode, context: ScoringContext) -> float:
        await asyncio.sleep(0.01)
        return 0.5

    rows = [
        question(scorer="math", answer="0.5", answer_schema="boxed"),
        question(scorer="exact"),
        question(scorer="reference"),
        question(scorer="length"),
        question(scorer="slow_half"),
        question(scorer="sql_result", sql=[NAMES]),
        question(scorer="reward_model"),
        question(scorer="agentcpm"),
    ]
    answers = [r"\boxed{\frac{1}{2}}", "300", "300", "12345", "x", "x", "x", "x"]
    with openai_server(lambda _: Reply(body={"score": 5})) as server:
        monkeypatch.setenv("REWARD_MODEL_URL", server.base_url)
        tables = DatabaseConfig.model_validate({"path": str(tmp_path / "medical.db"), "tables": TABLES})
        settings = {
            "scorer_modules": [str(tmp_path / "mine.py")],
            "reward_model": {"scale_file": str(scale_file(tmp_path))},
        }
        context = build_context(RewardConfig.model_validate(settings), tables)
        with pytest.raises(UserError, match="row 8.*TEACHER"):
            check_scorers(rows, context)
        calls = [SqlCall(sql=NAMES, result=QueryResult(columns=["n"], rows=[["药品001"], ["药品002"], ["药品003"]]))]
        episodes = [Episode(question=q, final_answer=a, sql_calls=calls) for q, a in zip(rows, answers, strict=True)]

        async def batch() -> list[Reward]:
            return await asyncio.gather(*(score(episode, context) for episode in episodes))

        with closing(context):
            rewards = asyncio.run(batch())
    assert [r.parts.get("answer") for r in rewards] == [1, 1, 1, 0.5, 0.5, 1, 1, None]
    assert rewards[-1].unscored == "no_llm_judge"
    assert [r.scorer for r in rewards] == [q.scorer for q in rows]


@pytest.mark.usefixtures("own_scorers")
@pytest.mark.parametrize("value", [1.5, -0.1, math.nan, math.inf, 10**400, "good", None], ids=lambda v: f"{v!s:.9}")
def test_a_scorer_that_gives_nonsense_is_unscored(value: Any) -> None:
    @scorer("nonsense")
    def nonsense(question: Question, episode: Episode, context: ScoringContext) -> float:
        return value

    found = asyncio.run(
        score(Episode(question=question(scorer="nonsense"), final_answer="x"), build_context(RewardConfig()))
    )
    assert found.unscored == "bad_score" and "[0, 1]" in found.explanation


@pytest.mark.usefixtures("own_scorers")
def test_a_scorer_comes_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(*values: str) -> None:
        entries = [
            EntryPoint(value.partition("=")[0], value.partition("=")[2], "agentgrpo.scorers") for value in values
        ]
        monkeypatch.setattr(
            scorer_registry, "entry_points", lambda group: entries if group == "agentgrpo.scorers" else []
        )

    installed("by_package=sql_agent.scoring.scorers:exact")
    context = build_context(RewardConfig(default_scorer="by_package"))
    assert asyncio.run(score(Episode(question=question(), final_answer="300"), context)).parts["answer"] == 1
    for wrong, match in (
        ("a=sql_agent.nowhere:f", "a.*cannot be loaded|cannot be loaded"),
        ("a=sql_agent.config:ROOT", "no function"),
        ("exact=sql_agent.scoring.scorers:reference", "'exact' is registered twice"),
    ):
        installed(wrong)
        with pytest.raises(UserError, match=match):
            build_context(RewardConfig())


@pytest.mark.usefixtures("own_scorers")
def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    for name in ("no_such_module_anywhere", str(tmp_path / "no.py"), str(tmp_path / "broken.py")):
        with pytest.raises(UserError, match="reward.scorer_modules"):
            build_context(RewardConfig(scorer_modules=[name]))
    (tmp_path / "clash.py").write_text(
        "from sql_agent.scoring.scorers import scorer\n@scorer('judge')\ndef mine(q, e, c): return 1\n"
    )
    with pytest.raises(UserError, match="'judge' is registered twice"):
        build_context(RewardConfig(scorer_modules=[str(tmp_path / "clash.py")]))
