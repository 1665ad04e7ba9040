"""The audit chain of a run that the real daemon and update made: what it keeps, and that no changed bit passes."""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agentlightning.types import Span
from typer.testing import CliRunner

from agl_plugin.audit import schema
from agl_plugin.audit.log import AuditLog, seal_of
from agl_plugin.audit.recompute import Earned, Settings, advantages
from agl_plugin.audit.replay import Replayed, kept_state
from agl_plugin.audit.verify import verify
from agl_plugin.update.advantage import ESTIMATES, over_rollouts
from agl_plugin.update.fingerprint import fingerprint, moments, sampled, settings_of
from agl_plugin.update.rules import Updated
from benchmarks.audit import ASKED, measure
from foundation import run_folder
from foundation.errors import UserError
from foundation.files import read_lines
from sql_agent.run_audit.search import FOUND, condition, trail_in
from sql_agent.run_report import cases
from sql_agent.run_report.folder import read_run
from sql_agent.run_report.page import environment
from tests.audited import RULES, make_run, settings
from tests.spans import llm_call, reward_span
from tests.typed import app_of, status_of
from tests.unit.test_daemon import Play, crashed, faulty, record, scored, without_ids

app = app_of("audit")

HOSTILE = "\x1b[31mred\x1b[0m <script>alert(1)</script> [bold]x[/bold] \u202e\ud800"
QUERY = {"sql": "SELECT 名 FROM drugs", "turn": 1, "result": {"columns": ["名"], "rows": [["甲药"]], "elapsed_s": 0.1}}
FAILED = {"sql": "SELECT x", "turn": 2, "result": {"columns": [], "rows": [], "error": "no such column: x"}}


def talk(reward: float, *calls: tuple[list[int], list[int]], ended: str = "stop", **more: Any) -> Play:
    """A rollout of these calls, with a record of its own; `ended` is how its calls did."""

    def play(ids: dict[str, Any]) -> list[Span]:
        spans = [
            llm_call(prompt, sampled, seq=n, log_probs=[-0.5] * len(sampled), finish_reason=ended, **ids)
            for n, (prompt, sampled) in enumerate(calls, start=1)
        ]
        return [*spans, reward_span(reward, seq=99, n_calls=len(calls), record=record(reward, **more), **ids)]

    return play


# Rows that continue each other, one that does not, one too long to share, a prompt above the limit.
TALKS = [
    talk(1.0, ([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6]), sql_calls=[QUERY, FAILED], question_id="q7", judge="offline"),
    talk(0.25, ([1, 2], [3]), ([1, 9, 3], [7, 8]), agent="math", answer=HOSTILE, reason=HOSTILE, tool_calls=[]),
    talk(0.5, ([1, 2], [3] * 6), ([1, 2, *[3] * 6, 4], [5] * 6)),
    talk(0.75, ([4] * 16, [5, 6])),
]
GROUPS: list[list[Play]] = [
    TALKS,
    [scored(0.5), scored(0.5, n_calls=2)],
    [scored(0.9), faulty("judge_fault")],
    [crashed, without_ids],
    [scored(0.2), scored(0.7), scored(0.3)],
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("audit") / "run", GROUPS)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def rows(folder: Path, query: str, *values: Any) -> list[dict[str, Any]]:
    with closing(schema.opened(folder)) as connection:
        return [dict(row) for row in connection.execute(query, values)]


def change(folder: Path, statement: str, *values: Any) -> None:
    """Change the file, and make ledger and seal fit again: what only a computation can find."""
    with closing(sqlite3.connect(folder / run_folder.AUDIT)) as connection, connection:
        connection.execute(statement, values)
        previous = ""
        entries = connection.execute('SELECT n, "table", first, last, step FROM ledger').fetchall()
        version = schema.version_of(connection)
        for n, table, first, last, step in entries:
            stored = schema.rows_between(connection, table, first, last, version=version)
            previous = schema.digest(previous, table, stored, step=step)
            connection.execute("UPDATE ledger SET sha256 = ? WHERE n = ?", (previous, n))
    (folder / run_folder.AUDIT_SEAL).write_text(seal_of(folder / run_folder.AUDIT))


def test_a_run_verifies_at_both_levels(made: Path, tmp_path: Path) -> None:
    for folder in (made, make_run(tmp_path / "run", GROUPS, level="transition")):
        found = verify(folder)
        assert found.problems == [] and found.notes == []
        assert found.counts["updates"] == 3 and found.counts["rows"] >= 3 * 10


def test_the_audit_of_a_fork_says_what_it_goes_on_from(run: Path) -> None:
    older = ({"run": "b", "step": 36, "changed": {"optim.lr": [1e-6, 2e-6]}}, {"run": "a", "step": 2, "changed": {}})
    (first,) = rows(run, "SELECT settings FROM run")
    change(run, "UPDATE run SET settings = ?", json.dumps({**json.loads(first["settings"]), "goes_on_from": older}))
    found = verify(run)
    assert found.problems == [] and found.notes == ["goes on from b@36, before that a@2"]


def test_the_step_of_an_entry_is_hashed(run: Path) -> None:
    (run / run_folder.AUDIT_SEAL).unlink()
    with closing(sqlite3.connect(run / run_folder.AUDIT)) as connection, connection:
        connection.execute("UPDATE ledger SET step = step + 1 WHERE n = (SELECT max(n) FROM ledger)")
    assert any("is not what was written" in problem for problem in verify(run).problems)


def with_whole_prompts(connection: sqlite3.Connection) -> None:
    """As files of version 3 have them."""
    connection.row_factory = sqlite3.Row
    for (attempt,) in connection.execute("SELECT id FROM attempt").fetchall():
        for row, prompt in schema.stored_calls(connection, attempt):
            connection.execute("UPDATE llm_call SET prompt_ids = ? WHERE id = ?", (schema.pack(prompt), row["id"]))
    for name in ("follows", "n_shared"):
        connection.execute(f"ALTER TABLE llm_call DROP COLUMN {name}")
    connection.execute("PRAGMA user_version = 3")
    connection.row_factory = None


def test_a_file_of_version_3_verifies(run: Path) -> None:
    """Its calls hold their whole prompts."""
    with closing(sqlite3.connect(run / run_folder.AUDIT)) as connection, connection:
        with_whole_prompts(connection)
    change(run, "UPDATE run SET id = id")
    found = verify(run)
    assert found.problems == [] and found.counts["updates"] == 3


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ("follows = 7", "go on from calls that are not there"),
        ("follows = n", "go on from calls that are not there"),
        ("n_shared = n_shared - 1", "tokens in its prompt, and it saw"),
    ],
)
def test_a_call_whose_prompt_cannot_be_had_shows(run: Path, changed: str, text: str) -> None:
    change(run, f"UPDATE llm_call SET {changed} WHERE n = 2")
    assert any(text in problem for problem in verify(run).problems)


def adam_step(*, lr: float = 0.01, betas: tuple[float, float] = (0.9, 0.999), clip: float = 1.0) -> Updated:
    """Two steps of AdamW on a random layer, kept as an update keeps them."""
    torch.manual_seed(3)
    layer = torch.nn.Linear(40, 40)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=lr, betas=betas)
    before, norms = sampled(layer.parameters()), list[float]()
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.randn(8, 40)).square().sum().backward()
        norms.append(torch.nn.utils.clip_grad_norm_(layer.parameters(), clip).item())
        optimizer.step()
    state = {"weights_before": before, "weights_after": sampled(layer.parameters()), "settings": settings_of(optimizer)}
    return Updated({}, norms, "same", fingerprint(layer), state | moments(optimizer))


def test_a_repeated_update_is_compared_by_weights_moments_and_settings() -> None:
    stored = adam_step()
    assert Replayed(stored, adam_step()).differences == []
    others: dict[str, tuple[str, ...]] = {}
    for name, changed in {"lr": {"lr": 0.0101}, "betas": {"betas": (0.9, 0.99)}, "clip": {"clip": 0.5}}.items():
        others[name] = tuple(Replayed(stored, adam_step(**changed)).differences)
    assert any("change of the weights differs by 0.01 " in line for line in others["lr"])
    assert any("lr was 0.01, and is 0.0101" in line for line in others["lr"])
    assert any("exp_avg_sq differs by" in line for line in others["betas"])
    assert any("exp_avg differs by 0.5 " in line for line in others["clip"])


@pytest.mark.parametrize("name", ["weights_after", "exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize(("size", "same"), [(1e-6, True), (1e-1, False)])
def test_what_another_order_of_sums_leaves_is_the_same(name: str, size: float, same: bool) -> None:
    stored, repeated = adam_step(), adam_step()
    assert stored.state and repeated.state
    base = stored.state["weights_before"] if name == "weights_after" else 0
    moved = {name: base + (repeated.state[name] - base) * (1 + size)}
    found = Replayed(stored, replace(repeated, weights_after="other", state={**repeated.state, **moved}))
    assert (found.differences == []) is same


def test_the_run_keeps_what_its_updates_left(made: Path) -> None:
    first, second, _ = rows(made, "SELECT * FROM update_state ORDER BY id")
    assert first["weights_after"] == second["weights_before"] != second["weights_after"]
    assert json.loads(first["settings"])["lr"] == 0.1 and json.loads(first["settings"])["grad_clip"] == 1e9


def test_an_update_whose_state_was_taken_out_is_named(made: Path) -> None:
    named = pytest.raises(UserError, match=r"no row 'step-77'.*verify")
    with closing(sqlite3.connect(made / run_folder.AUDIT)) as connection, named:
        kept_state(connection, "step-77")


SPOILED = [
    ("UPDATE train_row SET used = 1, why_not = '' WHERE why_not = 'left_out_by_recipe'", "the recipe leaves it out"),
    ("UPDATE train_row SET used = 0, why_not = 'left_out_by_recipe' WHERE used", "the recipe keeps it"),
]


@pytest.mark.parametrize("names", [("overlong_filter",), ("positive_only",), ("overlong_filter", "positive_only")])
def test_rows_that_the_recipe_leaves_out_are_those_and_no_others(tmp_path: Path, names: tuple[str, ...]) -> None:
    whole, cut = ([1, 2], [3, 4]), ([1, 2], [5, 6])
    group = [talk(1.0, whole), talk(0.75, cut, ended="length"), talk(0.0, whole), talk(0.25, cut, ended="length")]
    folder = make_run(tmp_path / "run", [group], rules=replace(RULES, **dict.fromkeys(names, True)))
    assert verify(folder).problems == []
    query = "SELECT reward FROM train_row JOIN verdict USING (rollout_id) WHERE why_not = 'left_out_by_recipe'"
    expected = {"overlong_filter": {0.75, 0.25}, "positive_only": {0.0, 0.25}}
    assert {row["reward"] for row in rows(folder, query)} == set().union(*(expected[name] for name in names))
    for statement, text in SPOILED:
        spoiled = Path(shutil.copytree(folder, tmp_path / f"spoiled{len(list(tmp_path.iterdir()))}"))
        change(spoiled, statement)
        assert any(text in problem for problem in verify(spoiled).problems)


def test_every_rollout_of_the_run_is_there_with_what_became_of_it(made: Path) -> None:
    lines = read_lines(made / run_folder.ROLLOUTS)
    kept = rows(made, "SELECT * FROM rollout JOIN verdict ON rollout_id = rollout.id")
    assert {row["id"]: row["reward"] for row in kept} == {line["rollout_id"]: line.get("reward") for line in lines}
    fates = rows(made, "SELECT why, count(*) AS n FROM left_out WHERE step = 2 GROUP BY why")
    assert {row["why"]: row["n"] for row in fates} == {"unscored": 3, "group_too_small": 1}
    idle = rows(made, "SELECT why_not, count(*) AS n FROM train_row WHERE step = 2 AND NOT used GROUP BY why_not")
    assert {row["why_not"]: row["n"] for row in idle} == {"no_advantage": 3, "prompt_too_long": 1}
    first, second, third = rows(made, "SELECT * FROM policy_update ORDER BY step")
    assert first["weights_after"] == second["weights_before"] != second["weights_after"] == third["weights_before"]
    assert len(json.loads(first["grad_norms"])) == 2 and first["n_used"] < first["n_rows"]


def test_calls_keep_tokens_and_log_probabilities(made: Path) -> None:
    query = """SELECT attempt.id FROM attempt
        JOIN verdict ON verdict.rollout_id = attempt.rollout_id WHERE reward = 0.25 ORDER BY attempt.id LIMIT 1"""
    with closing(schema.opened(made)) as connection:
        found = schema.stored_calls(connection, rows(made, query)[0]["id"])
    tokens = [(prompt, schema.unpack(row["sampled_ids"])) for row, prompt in found]
    assert tokens == [([1, 2], [3]), ([1, 9, 3], [7, 8])]
    assert [schema.unpack(row["prompt_ids"]) for row, _ in found] == [[1, 2], [9, 3]]
    assert schema.unpack(found[1][0]["log_probs"], "f") == [-0.5, -0.5]


def blobs(folder: Path) -> Iterator[tuple[str, str, int, Any]]:
    """Each value of each row."""
    for table, columns in schema.COLUMNS.items():
        for row in rows(folder, f"SELECT rowid, * FROM {table}"):
            yield from ((table, name, row["rowid"], row[name]) for name, _ in columns if row[name] is not None)


def flipped(value: Any, rng: random.Random) -> Any:
    """The value with one bit changed."""
    if isinstance(value, bytes):
        place = rng.randrange(len(value) * 8)
        return bytes(byte ^ (1 << place % 8) if n == place // 8 else byte for n, byte in enumerate(value))
    if isinstance(value, str):
        return f"{value[:-1]}{chr(ord(value[-1]) ^ 1)}" if value else "\x01"
    return math.nextafter(value, math.inf) if isinstance(value, float) else value ^ (1 << rng.randrange(16))


def test_a_changed_value_shows(run: Path) -> None:
    """Without a seal, as in a run that was killed: the ledger alone."""
    (run / run_folder.AUDIT_SEAL).unlink()
    rng = random.Random(1)
    whole = (run / run_folder.AUDIT).read_bytes()
    for table, name, rowid, value in rng.sample(list(blobs(run)), 40):
        with closing(sqlite3.connect(run / run_folder.AUDIT)) as connection, connection:
            changed = (flipped(value, rng), rowid)
            connection.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", changed)
        assert verify(run).problems, (table, name, value)
        (run / run_folder.AUDIT).write_bytes(whole)
    assert not verify(run).problems


def test_a_changed_bit_anywhere_in_the_file_shows(run: Path) -> None:
    rng, path = random.Random(2), run / run_folder.AUDIT
    whole = path.read_bytes()
    for _ in range(40):
        place = rng.randrange(len(whole) * 8)
        path.write_bytes(bytes(flip_at(whole, place)))
        try:
            assert verify(run).problems, place
        except UserError as exc:  # the header says that it is no such file
            assert "audit file" in str(exc) or "version" in str(exc)


def flip_at(data: bytes, place: int) -> bytearray:
    found = bytearray(data)
    found[place // 8] ^= 1 << place % 8
    return found


@pytest.mark.parametrize(
    ("table", "name", "kind", "text"),
    [
        ("llm_call", "prompt_ids", "I", "not what its calls give"),
        ("llm_call", "sampled_ids", "I", "not what its calls give"),
        ("train_row", "response_ids", "I", "not what its calls give"),
        ("train_row", "mask", "B", "mask"),
    ],
)
def test_a_changed_token_shows_where_ledger_and_seal_were_made_to_fit(
    run: Path, table: str, name: str, kind: str, text: str
) -> None:
    where = "id IN (SELECT id FROM train_row)" if table == "train_row" else (
        "attempt_id IN (SELECT attempt_id FROM rollout JOIN train_row ON rollout_id = rollout.id)"
    )  # fmt: skip
    (row, *_) = rows(run, f"SELECT rowid, * FROM {table} WHERE {where} ORDER BY rowid DESC LIMIT 1")
    numbers = schema.unpack(row[name], kind)
    numbers[0] ^= 1
    change(run, f"UPDATE {table} SET {name} = ? WHERE rowid = ?", schema.pack(numbers, kind), row["rowid"])
    assert any(text in problem for problem in verify(run).problems)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("UPDATE train_row SET advantage = -advantage WHERE step = 2 AND used", "its group gives"),
        ("UPDATE train_row SET optimizer_step = 3 - optimizer_step WHERE step = 1 AND used", "the seed gives"),
        ("UPDATE verdict SET reward = reward + 0.01 WHERE reward = 0.75", "sum to"),
        ("UPDATE verdict SET reward = 0.0, unscored = '' WHERE reward IS NULL", "rollouts.jsonl"),
        ("UPDATE rollout SET agent = 'other'", "rollouts.jsonl"),
        ("UPDATE left_out SET why = 'group_too_small'", "it should be unscored"),
        ("UPDATE policy_update SET weights_before = 'x' WHERE step = 2", "did not leave"),
        ("UPDATE policy_update SET grad_norm = grad_norm * 1.000001 WHERE step = 3", "gradient norm"),
        ("UPDATE llm_call SET weights_version = 7 WHERE rowid = 5", "was answered by weights after 7"),
        ("UPDATE train_row SET used = 1, why_not = '' WHERE why_not = 'no_advantage'", "with advantage 0"),
    ],
)
def test_what_does_not_follow_shows(run: Path, statement: str, text: str) -> None:
    change(run, statement)
    assert any(text in problem for problem in verify(run).problems)


@pytest.mark.parametrize("name", list(ESTIMATES))
def test_the_check_computes_the_advantages_of_training_by_itself(name: str) -> None:
    rng = random.Random(name)
    earned = {
        f"r{i}": Earned(f"g{rng.randrange(5)}", rng.choice([0.5, rng.random()]), rng.randrange(1, 9)) for i in range(24)
    }
    earned["alone"] = Earned("single", 0.7, 3)
    mask = torch.tensor([[int(k < one.n_tokens) for k in range(9)] for one in earned.values()])
    rewards = torch.tensor([round(one.reward * 2**16) / 2**16 for one in earned.values()])
    uids = np.array([f"{one.group}/{rollout}" for rollout, one in earned.items()], dtype=object)
    theirs = over_rollouts(name, torch.nn.functional.pad(rewards[:, None], (0, 8)), mask, uids)
    settings_ = replace(Settings.of(settings("trajectory")), estimator=f"{name}_rollouts")
    found = advantages(earned, settings_)
    assert [found[rollout] for rollout in earned] == pytest.approx(theirs[:, 0].tolist(), abs=1e-6)


def test_a_lost_row_shows(run: Path) -> None:
    with closing(sqlite3.connect(run / run_folder.AUDIT)) as connection, connection:
        connection.execute("DELETE FROM verdict WHERE rowid = (SELECT max(rowid) FROM verdict)")
    assert any("verdict" in problem for problem in verify(run).problems)


def ask(*words: object) -> tuple[int, str]:
    """What the command prints."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_why_tells_the_whole_chain_of_a_strange_reward(made: Path) -> None:
    query = "SELECT * FROM verdict JOIN rollout ON id = rollout_id WHERE reward = 1 AND unscored = '' AND step = 2"
    (best,) = rows(made, query)
    status, told = ask("why", made, best["rollout_id"][:-1])
    assert status == 0
    for words in (
        *("(q7)", "training, step 2", "number 1, succeeded", "/c2: 5 tokens seen, 1 sampled (stop)", "-0.500"),
        *("SELECT 名 FROM drugs", "1 rows", "甲药", "no such column: x", "reward 1 = sql 0.1 + answer 0.9, by offline"),
        *(
            "4 scored, mean 0.6250",
            "(this one)",
            f"{best['rollout_id']}/r1: number 0 of step 2",
            "made its tokens more",
        ),
        *("update     step-2", "gradient norm", "checkpoints/global_step_2 (no longer there)"),
    ):
        assert words in told, (words, told)


@pytest.mark.parametrize(
    ("reason", "words"),
    [("judge_fault", "No reward, not even 0"), ("agent_error", "never learned from"), ("no_token_ids", "no token ids")],
)
def test_why_tells_of_a_rollout_without_a_reward(made: Path, reason: str, words: str) -> None:
    (one, *_) = rows(made, "SELECT rollout_id FROM verdict WHERE unscored = ?", reason)
    status, told = ask("why", made, one["rollout_id"])
    assert status == 0 and words in told and f"unscored: {reason}" in told


def test_what_a_model_wrote_is_text(made: Path) -> None:
    (one, *_) = rows(made, "SELECT rollout_id FROM verdict WHERE reward = 0.25")
    _, told = ask("why", made, one["rollout_id"])
    assert "\\x1b[31mred" in told and "[bold]x[/bold]" in told and "\\u202e" in told
    assert "\x1b" not in told and "\u202e" not in told


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--min-reward", "0.95"], 3), (["--max-reward", "0.25", "--step", "2"], 2), (["--unscored", "any"], 9),
        (["--unscored", "judge_fault", "--step", "1"], 1), (["--question", "q7"], 3), (["--question", "高血"], 40),
        (["--question", "%"], 0), (["--tool-error"], 3), (["--mode", "val"], 1), (["--step", "9"], 0),
        (["--agent", "math"], 3), (["--agent", "default", "--mode", "val"], 1), (["--agent", "maths"], 0),
    ],
)  # fmt: skip
def test_find(made: Path, words: list[str], expected: int) -> None:
    status, told = ask("find", made, "--json", "--limit", "100", *words)
    assert status == 0 and len(told.splitlines()) == expected
    assert f"{expected} rollout(s)" in ask("find", made, "--limit", "100", *words)[1]


def test_conditions_that_no_rollout_can_meet_are_refused(made: Path) -> None:
    assert ask("find", made, "--mode", "test")[0] == 2
    status, told = ask("find", made, "--min-reward", "0.9", "--max-reward", "0.1")
    assert status == 2 and "no reward is both" in told


def test_show_and_verify_tell_people(run: Path) -> None:
    status, told = ask("show", run)
    assert status == 0 and "checkpoints/global_step_2" in told and "unscored: 3 judge_fault" in told
    assert ask("verify", run)[0] == 0
    change(run, "UPDATE train_row SET advantage = 9 WHERE step = 2 AND used")
    status, told = ask("verify", run)
    assert status == 1 and "PROBLEM" in told and "FAILED" in told


def test_wrong_questions_end_with_a_reason(made: Path, tmp_path: Path) -> None:
    assert ask("why", made, "ro-")[0] == ask("why", made, "x")[0] == ask("show", tmp_path)[0] == 2
    (tmp_path / run_folder.AUDIT).write_bytes(b"SQLite format 3\0 and then nothing that is")
    assert ask("show", tmp_path)[0] == 2 and "no audit file" in ask("show", tmp_path)[1]


def test_trails_for_the_report(made: Path, tmp_path: Path) -> None:
    (one, *_) = rows(made, "SELECT rollout_id FROM train_row WHERE used AND step = 2")
    assert "in update step-2" in trail_in(made, one["rollout_id"])
    assert trail_in(made, "unknown") == trail_in(tmp_path, "x") == ""


def test_the_report_shows_a_transcripts_rows_and_update(made: Path) -> None:
    best = [case.right for case in cases.groups(read_run(made))]
    assert best and all("in update step-3" in shown.trail for shown in best)
    macros: Any = environment().get_template("macros.html.j2").module
    assert best[0].trail.partition(":")[0] in macros.transcript(best[0])
    assert "&lt;b&gt;" in macros.transcript(replace(best[0], trail="<b>"))


def test_many_rollouts_are_searched_through_indices(tmp_path: Path) -> None:
    """benchmarks/audit.py measures 100,000; here no query may look through a whole large table."""
    assert all(seconds >= 0 for seconds in measure(tmp_path, n_rollouts=300)["query_seconds"].values())
    with closing(schema.opened(tmp_path)) as connection:
        for name, wanted in ASKED.items():
            query = f"EXPLAIN QUERY PLAN {FOUND} WHERE {condition(wanted)} LIMIT 50"
            plan = [row["detail"] for row in connection.execute(query, wanted)]
            scans = [line for line in plan if line.startswith("SCAN") and "question" not in line]
            assert scans == [], (name, plan)


def test_an_audit_that_cannot_be_written_does_not_end_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with AuditLog(tmp_path / "missing", settings={}) as audit:
        audit.add(lambda: {"run": [{"id": "x"}]}, step=1)
    assert audit.metrics()["audit/broken"] == 1.0
    assert [line.getMessage() for line in caplog.records if "the run goes on" in line.getMessage()]


def test_a_transaction_is_whole_or_not_there(tmp_path: Path) -> None:
    with AuditLog(tmp_path, settings={}) as audit:
        audit.add(lambda: {"left_out": [{"rollout_id": "a", "step": 1}]}, step=1)
        audit.add(lambda: {"left_out": [{"rollout_id": "b"}], "verdict": [{"reward": "no number"}]}, step=2)
    assert [row["rollout_id"] for row in rows(tmp_path, "SELECT * FROM left_out")] == ["a"]


def test_a_replay_needs_the_configuration_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / run_folder.AUDIT).write_bytes(b"")
    for text in (None, '{"trainer": '):
        if text:
            (tmp_path / run_folder.CONFIG).write_text(text)
        assert status_of("audit", "replay", str(tmp_path), "1") == 2
        assert "config.json: is damaged" in capsys.readouterr().err or not text
