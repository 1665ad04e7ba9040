"""Mined questions in a model's words: those that lose a value or lead elsewhere keep their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from foundation.errors import UserError
from reward_client import JudgeEndpoint
from sql_agent.commands.mine import command_of, settle
from sql_agent.mining.phrasing import AT_ONCE, FAILED, FAULTS, SAY, phrased
from sql_agent.mining.questions import Mined, mine_questions
from sql_agent.mining.schema import Schema, read_schema
from sql_agent.mining.state import Settled
from sql_agent.testing.server import Handler, chat_reply, error_reply, openai_server
from tests.unit.test_mining import made_database

SIZES = {"train": 40, "val": 5, "test": 10, "test_wordings": 10, "test_tables": 0}
BEFORE = SAY["en"].partition("{")[0]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_database(tmp_path_factory.mktemp("phrased") / "ships.db")


@pytest.fixture(scope="module")
def schema(path: Path) -> Schema:
    return read_schema(str(path))


@pytest.fixture(scope="module")
def settled(path: Path) -> Settled:
    return settle(str(path), language="en", seed=1, questions=40, tables=[], model="any/model", phrase=True)


@pytest.fixture
def mined(schema: Schema, path: Path) -> Iterator[Mined]:
    yield mine_questions(schema, str(path), language="en", seed=1, sizes=SIZES)


def model_of(mined: Mined, *, words: str = "Kindly say: {}", sql: str = "") -> Handler:
    """A model that says `words` of a question, and reads its own words rightly, or as `sql`."""
    known = {q.question: q.sql[0] for found in mined.splits.values() for q in found}

    def handler(request: dict) -> dict:
        asked = request["messages"][-1]["content"]
        if asked.startswith(BEFORE):
            return chat_reply(words.format(asked.removeprefix(BEFORE)))
        return chat_reply(sql or f"```sql\n{known[asked.rpartition('say: ')[2]]}\n```")

    return handler


def through(handler: Handler, mined: Mined, schema: Schema, settled: Settled, file: Path) -> tuple[Mined, int]:
    with openai_server(handler) as server:
        endpoint = JudgeEndpoint(api_key=SecretStr("k"), base_url=server.base_url, model="m")
        return phrased(mined, schema, settled, endpoint, file=file), len(server.requests)


def texts(mined: Mined) -> list[str]:
    return [question.question for found in mined.splits.values() for question in found]


@pytest.mark.long
def test_words_that_lead_to_the_same_rows_are_taken_and_asked_for_once(
    mined: Mined, schema: Schema, settled: Settled, tmp_path: Path
) -> None:
    made, n_asked = through(model_of(mined), mined, schema, settled, tmp_path / "phrased.jsonl")
    assert texts(made) == [f"Kindly say: {text}" for text in texts(mined)]
    assert f"in the words of m: {len(texts(mined))} of {len(texts(mined))}" == made.phrased
    assert n_asked == 2 * len(texts(mined))
    again, n_asked = through(model_of(mined), mined, schema, settled, tmp_path / "phrased.jsonl")
    assert (texts(again), n_asked) == (texts(made), 0)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"words": "What about it?"}, "a value that is lost or new"),
        ({"words": "{} And 17 more?"}, "a value that is lost or new"),
        ({"words": "Sure!\nHere it is: {}"}, "not one line of text"),
        ({"sql": "SELECT 1 WHERE 0"}, "words that lead to another result"),
        ({"sql": "DROP TABLE boats"}, "words that lead to another result"),
        ({"sql": "I cannot help with that."}, "words that lead to another result"),
    ],
)
def test_rubbish_keeps_the_own_words_and_says_why(
    answers: dict[str, str], why: str, mined: Mined, schema: Schema, settled: Settled, tmp_path: Path
) -> None:
    made, _ = through(model_of(mined, **answers), mined, schema, settled, tmp_path / "phrased.jsonl")
    assert texts(made) == texts(mined) and f"x {why}" in made.phrased and ": 0 of" in made.phrased


def test_a_dead_endpoint_is_asked_no_more_and_named(
    mined: Mined, schema: Schema, settled: Settled, tmp_path: Path
) -> None:
    made, n_asked = through(lambda _: error_reply(500, "boom"), mined, schema, settled, tmp_path / "phrased.jsonl")
    assert texts(made) == texts(mined) and FAULTS <= n_asked <= FAULTS + AT_ONCE
    assert f"{len(texts(mined))} x {FAILED}" in made.phrased and "boom" in made.phrased


def test_without_a_language_model_it_is_refused_and_the_line_to_go_on_names_it(path: Path, settled: Settled) -> None:
    assert command_of(settled, path.parent)[-1] == "--phrase"
    with pytest.raises(UserError, match="--phrase.*name a --model"):
        settle(str(path), language="en", seed=1, questions=40, tables=[], model="", phrase=True)
