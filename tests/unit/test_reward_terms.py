"""Several terms make a reward: their parts and bounds, functions with TRL's signature, what is refused before a run."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UserError
from sql_agent.config import ROOT, DatabaseConfig, RewardConfig, build_config, parse_assignment
from sql_agent.records import Episode, LlmCall, QueryResult, Question, Reward, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import check_scorers, needs_answer
from sql_agent.scoring.registry import SCORERS, ScoringContext
from sql_agent.scoring.reward import score
from sql_agent.testing.server import error_reply, openai_server
from tests.sql_db import TABLES, make_database

SQL = "SELECT price FROM drugs_info WHERE id = 2"
HALVES = [{"scorer": "sql_result", "weight": 0.5}, {"scorer": "exact", "weight": 0.5}]
PAGES = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("20-reward.md", "50-extending.md")}


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No judge of the environment, a folder of one's own, and no scorer left behind."""
    for name in ("TEACHER_API_KEY", "TEACHER_MODEL", "TEACHER_BASE_URL", "JUDGE_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    before = dict(SCORERS)
    yield
    SCORERS.clear()
    SCORERS.update(before)


def question(**values: Any) -> Question:
    return Question.model_validate({"id": "q1", "question": "价格是多少？", "answer": "1", "sql": [SQL], **values})


def context_of(*terms: dict[str, Any], **config: Any) -> ScoringContext:
    return build_context(RewardConfig.model_validate({"terms": terms, **config}))


def reward(said: str, context: ScoringContext, *queries: str, **values: Any) -> Reward:
    """The queries run in the test's database where there is one, else they give a row."""
    with closing(context):
        database = context.database_of("")
        results = [database.query_sync(q) if database else QueryResult(rows=[[1]]) for q in queries]
        calls = [SqlCall(sql=sql, result=result) for sql, result in zip(queries, results, strict=True)]
        episode = Episode(question=question(**values), final_answer=said, sql_calls=calls)
        return asyncio.run(score(episode, context))


def with_database(tmp_path: Path, *terms: dict[str, Any], **config: Any) -> ScoringContext:
    path = tmp_path / "medical.db"
    database = DatabaseConfig(path=str(path if path.exists() else make_database(tmp_path)), tables=TABLES)
    return build_context(RewardConfig.model_validate({"terms": terms, **config}), database)


def function(tmp_path: Path, body: str, *, head: str = "def f(completions, **columns)") -> dict[str, Any]:
    """A term whose function has this body. The file has a name of its own, because it is loaded once."""
    (tmp_path / "mine.py").write_text(f"import asyncio, math\nimport numpy as np\n{head}:\n    {body}\n")
    return {"scorer": f"{tmp_path}/mine.py:f"}


# Parts and bounds


def test_execution_match_and_answer_pay_by_halves(tmp_path: Path) -> None:
    found = reward("1", with_database(tmp_path, *HALVES), SQL)
    assert found.parts == {"sql": 0.1, "sql_result": 0.5, "exact": 0.5} and found.total == pytest.approx(1.1)
    assert found.scorer == "sql_result + exact" and "sql_result: 1 of 1" in found.explanation


def test_a_right_answer_from_a_wrong_query_has_its_half(tmp_path: Path) -> None:
    wrong = reward("1", with_database(tmp_path, *HALVES), "SELECT price FROM drugs_info WHERE id = 3")
    assert wrong.parts == {"sql": 0.1, "sql_result": 0.0, "exact": 0.5}


def test_the_example_of_the_docs_pays_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toml,) = re.findall(r"```toml\n(\[reward\]\nterms.*?)```", PAGES["20-reward.md"], re.DOTALL)
    (code,) = re.findall(r"```python\n(def is_chinese.*?)```", PAGES["50-extending.md"], re.DOTALL)
    (assignment,) = re.findall(r"--set '(reward\.terms=.*?)'", PAGES["20-reward.md"])
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "rewards.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    terms = tomllib.loads(toml)["reward"]["terms"]
    assert terms[:2] == parse_assignment(assignment)["reward"]["terms"]
    assert build_config(parse_assignment(assignment)).reward.terms[0].scorer == "sql_result"
    asked = {"evidence": [{"source_table": "drugs_info", "row_id": 2, "field": "price", "quote": "高血压"}]}
    best = reward("高血压", with_database(tmp_path, *terms), SQL, answer="高血压", **asked)
    expected = {"sql": 0.1, "sql_result": 0.5, "judge": 0.5, "length_penalty": 0.0, "step_bonus": 0.05}
    assert best.parts == pytest.approx({**expected, "is_chinese": 0.1}) and best.total == pytest.approx(1.25)
    worst = reward("x" * 400, with_database(tmp_path, *terms), answer="高血压", **asked)
    assert worst.parts["length_penalty"] == -0.1 and worst.total == pytest.approx(-0.1)


@pytest.mark.parametrize(("chars", "value"), [(0, 0), (100, 0), (150, -0.1), (200, -0.2), (10_000, -0.2)])
def test_length_is_taken_off_beyond_the_target(chars: int, value: float) -> None:
    context = context_of({"scorer": "length_penalty", "weight": 0.2, "target": 100})
    found = reward("x" * chars, context).parts["length_penalty"]
    assert found == pytest.approx(value) and math.copysign(1, found) == (-1 if value else 1)


@pytest.mark.parametrize(
    ("tokens", "value"), [((), 0), ((64, 80), 0), ((81,), -1 / 20), ((90, 3), -0.5), ((100,), -1), ((500, 1), -1)]
)
def test_the_soft_punishment_is_that_of_dapo(tokens: tuple[int, ...], value: float) -> None:
    """(L_max - cache - n) / cache between L_max - cache = 80 and L_max = 100 tokens."""
    context = context_of({"scorer": "overlong_penalty", "target": 80, "limit": 100})
    calls = [LlmCall(elapsed_s=0.1, completion_tokens=n) for n in tokens]
    episode = Episode(question=question(), final_answer="1", llm_calls=calls)
    assert asyncio.run(score(episode, context)).parts["overlong_penalty"] == pytest.approx(value)


def test_an_unknown_number_of_tokens_is_no_reward() -> None:
    context = context_of({"scorer": "overlong_penalty", "target": 80})
    calls = [LlmCall(elapsed_s=0.1, completion_tokens=500), LlmCall(elapsed_s=0.1)]
    found = asyncio.run(score(Episode(question=question(), final_answer="1", llm_calls=calls), context))
    assert found.unscored == "no_token_count"


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (
            {"scorer": "overlong_penalty", "target": 80, "limit": 80},
            r"limit = 80 is where .* above target = 80; raise it",
        ),
        ({"scorer": "exact", "limit": 5}, r"limit = 5 .* leave it out \('exact'\)"),
        ({"scorer": "overlong_penalty"}, "needs a target in tokens"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(term: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        build_context(build_config({"reward": {"terms": [term]}}).reward)


def test_thoughts_and_what_stands_outside_the_mark_count_as_length() -> None:
    context = context_of({"scorer": "length_penalty", "target": 10}, {"scorer": "exact"})
    hidden = reward(f"<think>{'x' * 40}</think><answer>1</answer>", context, answer_schema="answer")
    assert hidden.parts == {"sql": 0.0, "length_penalty": -1.0, "exact": 1.0}
    assert reward("x" * 40, context, answer_schema="answer").parts == {"sql": 0.0, "length_penalty": -1.0, "exact": 0.0}


@pytest.mark.parametrize(
    ("n_calls", "bad", "target", "value"), [(0, 0, 0, 0), (0, 2, 0, 0), (1, 0, 0, 1), (1, 1, 0, 0.5), (4, 0, 2, 0.5)]
)
def test_more_calls_never_earn_more_of_the_step_bonus(n_calls: int, bad: int, target: int, value: float) -> None:
    calls = [SqlCall(sql="SELECT 1", result=QueryResult(rows=[[1]]))] * n_calls
    episode = Episode(question=question(), final_answer="", sql_calls=calls, n_bad_tool_calls=bad)
    found = asyncio.run(score(episode, context_of({"scorer": "step_bonus", "weight": 0.5, "target": target})))
    assert found.parts["step_bonus"] == pytest.approx(0.5 * value)


@pytest.mark.long
@given(st.text(max_size=300), st.integers(0, 6), st.lists(st.floats(0.001, 100), min_size=3, max_size=3))
def test_a_reward_is_within_its_bounds(answer: str, n_calls: int, weights: list[float]) -> None:
    names = ("exact", "step_bonus", "length_penalty")
    terms = [{"scorer": name, "weight": weight} for name, weight in zip(names, weights, strict=True)]
    found = reward(answer, context_of(*terms[:2], {**terms[2], "target": 50}), *["SELECT 1"] * n_calls)
    assert found.total is not None and found.total == sum(found.parts.values())
    assert -weights[2] <= found.total <= 0.1 + weights[0] + weights[1] + 1e-9


def test_a_row_keeps_its_own_scorer(tmp_path: Path) -> None:
    found = reward("1", with_database(tmp_path, *HALVES), SQL, scorer="math")
    assert found.parts == {"sql": 0.1, "answer": 1.0} and found.scorer == "math"


def test_terms_can_have_names_and_the_default_scorer_is_the_term_answer() -> None:
    named = context_of({"scorer": "exact", "weight": 0.25, "name": "same"}, {"scorer": "exact"}, sql_bonus=0)
    assert reward("1", named, "SELECT 1").parts == {"same": 0.25, "exact": 1.0}
    short, long = context_of(default_scorer="exact"), context_of({"scorer": "exact", "name": "answer"})
    assert reward("1", short) == reward("1", long)


# Faults are no rewards


def test_one_unscored_term_leaves_the_rollout_unscored(tmp_path: Path) -> None:
    found = reward("1", with_database(tmp_path, *HALVES), sql=["SELECT price FROM drugs_info WHERE id < 0"])
    assert (found.total, found.unscored, found.parts) == (None, "bad_reference_query", {})


def test_a_judge_that_is_down_takes_the_other_terms_along(monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: error_reply(401, "key")) as server:
        for name, text in (("API_KEY", "k"), ("MODEL", "m"), ("BASE_URL", server.base_url)):
            monkeypatch.setenv(f"TEACHER_{name}", text)
        terms = [{"scorer": "exact", "weight": 0.5}, {"scorer": "judge"}, {"scorer": "llm"}]
        judge = {"folder": str(Path.cwd() / "judge")}
        found = reward("1", context_of(*terms, judge=judge), "SELECT 1")
    assert (found.total, found.unscored, found.parts) == (None, "judge_rejected", {})
    assert found.metadata["judge_usage"]["calls"] == len(server.requests) >= 1


def test_what_awaits_its_group_keeps_the_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "MODEL"):
        monkeypatch.setenv(f"TEACHER_{name}", "k")
    monkeypatch.setenv("TEACHER_BASE_URL", "http://127.0.0.1:9/v1")
    judge = {"mode": "groupwise", "folder": str(Path.cwd() / "judge")}
    context = context_of({"scorer": "exact", "weight": 0.5}, {"scorer": "judge", "weight": 0.25}, judge=judge)
    found = reward("1", dataclasses.replace(context, in_group=True), "SELECT 1")
    assert (found.total, found.unscored) == (None, "awaits_group") and found.metadata["awaits"] == {"judge": 0.25}
    assert found.parts == {"sql": 0.1, "exact": 0.5} and found.metadata["item"]["answer"] == "1"


@pytest.mark.parametrize(
    "body",
    [
        *("return [math.nan]", "return [math.inf]", "return [-0.01]", "return [1.01]", "return [10 ** 400]"),
        *("return [None]", "return ['1']", "return [[1.0]]", "return []", "return [1.0, 1.0]", "return [0.5] * 99999"),
        *("return 1.0", "return None", "return '1'", "return {0: 1.0}", "yield 1.0"),
        *("return np.array([1.0, 1.0])", "return np.array([math.nan])", "return np.array(['1'])"),
        *(
            "return np.array([[1.0, 1.0]])",
            "return [np.array([0.5, 0.5])]",
            "return np.float32(2)",
            "return np.ma.masked",
        ),
    ],
)
def test_a_function_that_gives_nonsense_leaves_the_rollout_unscored(tmp_path: Path, body: str) -> None:
    found = reward("1", context_of({"scorer": "exact"}, function(tmp_path, body)))
    assert (found.total, found.unscored, found.parts) == (None, "bad_score", {}) and "f: " in found.explanation
    assert len(found.explanation) < 400


@pytest.mark.parametrize("head", ["def f(completions, **columns)", "async def f(completions, **columns)"])
def test_a_function_that_raises_leaves_the_rollout_unscored(tmp_path: Path, head: str) -> None:
    found = reward("1", context_of({"scorer": "exact"}, function(tmp_path, "return [1 / 0]", head=head)))
    assert (found.total, found.unscored) == (None, "scorer_error")
    assert re.search(r"division by zero.* in \w+ \(\w+\.py:\d+\)$", found.explanation)


def test_a_fault_in_ones_own_function_leaves_the_rollout_unscored_by_its_name(tmp_path: Path) -> None:
    body = "from sql_agent.errors import DatabaseFault\n    raise DatabaseFault('it is gone')"
    found = reward("1", context_of({"scorer": "exact"}, function(tmp_path, body)))
    assert (found.total, found.unscored) == (None, "database_fault") and "it is gone" in found.explanation


@pytest.mark.parametrize("head", ["def f(completions, **columns)", "async def f(completions, **columns)"])
@pytest.mark.parametrize("raised", ["SystemExit(3)", "KeyboardInterrupt()", "StopIteration(1)"])
def test_a_function_that_exits_leaves_the_rollout_unscored(tmp_path: Path, head: str, raised: str) -> None:
    found = reward("1", context_of({"scorer": "exact"}, function(tmp_path, f"raise {raised}", head=head)))
    assert (found.total, found.unscored) == (None, "scorer_error")
    assert raised.partition("(")[0] in found.explanation


def test_an_exit_is_told_with_its_place_in_the_function(tmp_path: Path) -> None:
    found = reward("1", context_of({"scorer": "exact"}, function(tmp_path, "raise SystemExit(3)")))
    assert re.search(r"raised SystemExit\(3\) in f \(mine\.py:\d+\)$", found.explanation)


HANGS = """
import asyncio, time
from sql_agent.scoring.functions import call

def hang():
    while True:
        time.sleep(60)

async def all_of_them():
    hanging = [asyncio.create_task(call(hang)) for _ in range(60)]
    await asyncio.sleep(0)
    print(await call(lambda: "given"), flush=True)
    for task in hanging:
        task.cancel()

asyncio.run(all_of_them())
"""


def test_functions_that_hang_hold_up_neither_others_nor_the_end_of_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "given\n", "")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("def f(completions, **columns)", "return [float(completions == ['1'])]"),
        ("def f(prompts, completions, answer, **columns)", "return [np.float32(answer[0] == completions[0])]"),
        *(
            ("def f(completions, **columns)", f"return {value}")
            for value in (
                "np.array([1.0])",
                "np.array([[1.0]])",
                "np.float32(1)",
                "[np.array([1.0])]",
                "[np.bool_(True)]",
            )
        ),
        *(
            ("def f(completions, **columns)", f"import decimal, fractions, torch\n    return {value}")
            for value in ("[decimal.Decimal(1)]", "[fractions.Fraction(1)]", "torch.ones(1)", "[torch.tensor(1.0)]")
        ),
        ("def f(completions, hint, meta, **columns)", "return (1 if hint == ['x'] and meta[0]['hint'] == 'x' else 0,)"),
        ("async def f(completions, **columns)", "await asyncio.sleep(0); return [True]"),
    ],
)
def test_functions_get_the_row_and_may_be_async(tmp_path: Path, head: str, body: str) -> None:
    context = context_of({**function(tmp_path, body, head=head), "weight": 0.5})
    check_scorers([question(meta={"hint": "x"})], context)
    assert reward("<think>2</think>1", context, meta={"hint": "x"}).parts == {"sql": 0.0, "f": 0.5}


# Refused before a run


def test_a_column_that_a_row_lacks_is_named_with_the_row(tmp_path: Path) -> None:
    context = context_of(function(tmp_path, "return [1.0]", head="def f(completions, solution, **columns)"))
    with pytest.raises(UserError, match=r"row 2 \(q1\): scorer '.*mine.py:f' .*'solution'\); a row has .*answer"):
        check_scorers([question(meta={"solution": "1"}), question(), question(scorer="exact")], context)
    with pytest.raises(
        UserError, match=r"make_database' cannot be called \(missing .*'folder'.* End .* with \*\*columns"
    ):
        check_scorers([question()], context_of({"scorer": "tests.sql_db:make_database"}))


def test_rows_without_reference_sql_are_named(tmp_path: Path) -> None:
    context = with_database(tmp_path, *HALVES)
    with closing(context), pytest.raises(UserError, match=r"row 2 \(q1\): scorer 'sql_result' needs .* another scorer"):
        check_scorers([question(), question(sql=[]), question(sql=[], scorer="exact")], context)
    assert needs_answer(question(), context)


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ([{"scorer": "sql_resul"}], r"reward.terms: scorer = 'sql_resul': no such scorer.*did you mean sql_result\?"),
        ([{"scorer": "sql_result"}], "needs a database"),
        ([{"scorer": "reward_model"}], "REWARD_MODEL_URL"),
        ([{"scorer": "length_penalty"}], "'length_penalty': needs a target in characters"),
        ([{"scorer": "no_such_module:f"}], "'no_such_module' cannot be imported .*installed module or a .py file"),
        ([{"scorer": "no_such.py:f"}], "'no_such.py' cannot be imported"),
        ([{"scorer": "tests.sql_db:open_databas"}], r"has no function 'open_databas'; did you mean open_database\?"),
        ([{"scorer": "tests.sql_db:SECRET"}], "has no function 'SECRET'"),
    ],
)
def test_a_term_that_cannot_run_is_named(
    terms: list[dict[str, Any]], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REWARD_MODEL_URL", raising=False)
    with pytest.raises(UserError, match=text):
        context_of(*terms)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('[{"scorer": "exact", "weight": 0}]', r"reward.terms.0.weight = 0: .*greater than 0"),
        ('[{"scorer": "exact", "weight": -1}]', "reward.terms.0.weight = -1"),
        ('[{"scorer": "exact", "weight": NaN}]', "reward.terms.0.weight = nan"),
        ('[{"scorer": "exact", "weight": 1e9}]', "less than or equal to 100"),
        ('[{"scorer": "exact", "weight": "half"}]', "valid number"),
        ('[{"scorer": "exact", "wieght": 0.5}]', r"terms.0.wieght = 0.5: unknown key; did you mean weight\?"),
        ('[{"weight": 0.5}]', "reward.terms.0.scorer"),
        ('[{"scorer": ""}]', "reward.terms.0.scorer"),
        ("exact", "reward.terms = 'exact': .*list"),
        ('["exact"]', "reward.terms.0 = 'exact'"),
        ('[{"scorer": "exact"}, {"scorer": "exact"}]', "the part 'exact' of 'exact' must have a name .*name = "),
        ('[{"scorer": "a:f"}, {"scorer": "b:f"}]', "the part 'f' of 'a:f'"),
        ('[{"scorer": "exact", "name": "total"}]', "not sql or total"),
        ('[{"scorer": "exact", "name": "sql"}]', "not sql or total"),
        ('[{"scorer": "exact", "name": "a/b"}]', "letters"),
        (
            '[{"scorer": "exact", "target": 5}]',
            "target = 5 is for length_penalty, overlong_penalty and step_bonus only",
        ),
        ('[{"scorer": "step_bonus", "target": -1}]', "reward.terms.0.target = -1"),
    ],
)
def test_bad_terms_are_named_with_value_and_rule(value: str, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        build_config(parse_assignment(f"reward.terms={value}"))
    assert len(str(caught.value)) < 300


def test_a_default_scorer_beside_terms_is_refused() -> None:
    both = {"reward": {"default_scorer": "math", "terms": [{"scorer": "exact"}]}}
    with pytest.raises(UserError, match=r"^configuration:\n  reward.default_scorer = 'math' grades nothing beside"):
        build_config(both)
    assert build_config(both, parse_assignment("reward.default_scorer=judge")).reward.terms[0].part == "exact"


def test_rows_cannot_name_functions_nor_what_needs_a_target() -> None:
    context = context_of()
    for name in ("os:system", "tests.sql_db:open_database"):
        with pytest.raises(UserError, match="no such scorer"):
            check_scorers([question(scorer=name)], context)
        with pytest.raises(UserError, match="no such scorer"):
            reward("1", context, scorer=name)
    with pytest.raises(UserError, match=r"scorer 'length_penalty' needs a target"):
        check_scorers([question(scorer="length_penalty")], context)


def test_terms_survive_json() -> None:
    config = build_config({"reward": {"terms": [*HALVES, {"scorer": "length_penalty", "target": 9, "name": "long"}]}})
    assert build_config(config.model_dump()) == config
