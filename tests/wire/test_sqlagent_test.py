"""The try-out command against a real local server: what it asks, what it shows, what it says when something fails."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest
from typer.testing import CliRunner, Result

from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.errors import LLMFault
from sql_agent.serving.endpoint import explain_fault
from sql_agent.testing.server import (
    HANG,
    RESET,
    FakeServer,
    Handler,
    Reply,
    chat_reply,
    error_reply,
    in_turn,
    openai_server,
    tool_call_reply,
)
from tests.typed import app_of

app = app_of("ask")

ROOT = Path(__file__).resolve().parents[2]
TOOL = "query_database_by_sql"
SQL = "SELECT indication FROM drugs_info WHERE med_name = '青霉素'"
ANSWER = "青霉素用于敏感菌所致的感染。"
KEY = "sk-secret-1234567890"
ONE_CALL = (tool_call_reply((TOOL, {"sql": SQL})), chat_reply(ANSWER))


@pytest.fixture(autouse=True)
def no_endpoint_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in ("OPENAI", "TEACHER"):
        for name in ("BASE_URL", "API_KEY", "MODEL"):
            monkeypatch.delenv(f"{prefix}_{name}", raising=False)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "small.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE drugs_info (id INTEGER, med_name TEXT, indication TEXT)")
        connection.execute("CREATE TABLE disease (id INTEGER, disease_name TEXT)")
        connection.execute("INSERT INTO drugs_info VALUES (1, '青霉素', '敏感菌所致的感染[red]')")
        connection.execute("INSERT INTO disease VALUES (1, '感冒')")
    connection.close()
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [
        {"id": f"q{i}", "question": "青霉素治什么？", "answer": ANSWER, "task_type": "drug_field"} for i in range(3)
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def scripted() -> Iterator[FakeServer]:
    with openai_server(in_turn(*ONE_CALL)) as server:
        yield server


def invoke(*flags: object) -> Result:
    return CliRunner().invoke(app, [str(flag) for flag in flags], catch_exceptions=False)


def ask(handler: Handler, *flags: object, database: Path, question: str = "青霉素治什么？") -> Result:
    with openai_server(handler) as server:
        shown = ("--base-url", server.base_url, "--model", "fake-model", "--database", database)
        return invoke(*shown, "--question", question, *flags)


def test_every_step_is_shown(scripted: FakeServer, database: Path, questions: Path) -> None:
    done = invoke("--base-url", scripted.base_url, "--file", questions, "--limit", 1, "--database", database)
    assert done.exit_code == 0, done.output
    shown = done.stdout
    for part in (
        "青霉素治什么？",
        "SELECT indication",
        "敏感菌所致的感染[red]",
        "1 row(s)",
        "answered after 2 turn(s)",
    ):
        assert part in shown
    assert f"reference  {ANSWER}" in shown
    assert "1.100 = sql 0.100 + answer 1.000" in shown
    assert "mean reward 1.100 over 1; 2.0 turns, 1.0 SQL calls" in shown and "faults: none" in shown


def test_the_model_sees_the_tool_the_prompt_and_greedy_settings(scripted: FakeServer, database: Path) -> None:
    flags = ("--database", database, "--question", "q", "--max-tokens", 33, "--api-key", KEY)
    flags = (*flags, "--set", "agent.tool_description=Ask the pharmacy.")
    flags = (*flags, "--set", "agent.chat_template_kwargs.enable_thinking=false")
    flags = (*flags, "--set", "rollout.evaluation.frequency_penalty=0.25")
    invoke("--base-url", scripted.base_url, *flags)
    first, second = scripted.requests
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert (first.json["model"], first.json["temperature"], first.json["max_tokens"]) == ("fake-model", 0.0, 33)
    assert (first.json["frequency_penalty"], first.json["top_p"]) == (0.25, 1.0)
    assert first.json["chat_template_kwargs"] == second.json["chat_template_kwargs"] == {"enable_thinking": False}
    assert first.json["tools"][0]["function"]["name"] == TOOL
    assert first.json["tools"][0]["function"]["description"] == "Ask the pharmacy."
    prompt = (ROOT / "sql_agent" / "prompts" / "system_zh.txt").read_text(encoding="utf-8").strip()
    assert first.json["messages"][0] == {"role": "system", "content": prompt}
    assert json.loads(second.json["messages"][-1]["content"])["records"] == [{"indication": "敏感菌所致的感染[red]"}]


@pytest.mark.long
def test_calls_of_another_tool_are_shown_too(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "tables.py"
    file.write_text('def list_tables() -> dict[str, list[str]]:\n    return {"tables": ["disease"]}\n')
    flags = ("--set", f"agent.tools={json.dumps(['sql', str(file)])}")
    done = ask(in_turn(tool_call_reply(("list_tables", {})), *ONE_CALL), *flags, database=database)
    lines = [line.strip() for line in done.stdout.splitlines()]
    at = lines.index("list_tables {}")
    assert (lines[at - 1], lines[at + 1]) == ("turn 1", '{"tables": ["disease"]}')
    assert "turn 2" in done.stdout and "SELECT indication" in done.stdout and "turn 3" not in done.stdout


def test_json_is_one_object_per_question(scripted: FakeServer, database: Path, questions: Path) -> None:
    done = invoke("--base-url", scripted.base_url, "--file", questions, "--database", database, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["question_id"] for row in rows] == ["q0", "q1", "q2"]
    assert rows[0]["sql_calls"][0]["sql"] == SQL
    assert rows[0]["reward_parts"] == {"sql": 0.1, "answer": 1.0}
    # The script's first reply comes once, so the later questions are answered without a query.
    assert rows[1]["reward_parts"]["sql"] == 0.0 and rows[1]["sql_calls"] == []


def test_parallel_tool_calls(database: Path) -> None:
    two = tool_call_reply((TOOL, {"sql": SQL}), (TOOL, {"sql": "SELECT disease_name FROM disease"}))
    [row] = map(json.loads, ask(in_turn(two, chat_reply("完")), "--json", database=database).stdout.splitlines())
    assert [call["result"]["rows"] for call in row["sql_calls"]] == [[["敏感菌所致的感染[red]"]], [["感冒"]]]
    assert (row["n_turns"], row["stop_reason"], row["unscored"]) == (2, "answered", "no_reference")


@pytest.mark.parametrize("scorer", ["sql_result", "own"])
def test_a_question_of_ones_own_is_asked_whatever_the_scorer_needs(
    scorer: str, scripted: FakeServer, database: Path, tmp_path: Path
) -> None:
    (file := tmp_path / "rewards.py").write_text("def own(completions, solution, **columns):\n    return [1.0]\n")
    term = {"scorer": scorer if scorer == "sql_result" else f"{file}:own"}
    flags = ("--database", database, "--set", f"reward.terms={json.dumps([term])}")
    done = invoke("--base-url", scripted.base_url, "--question", "青霉素治什么？", *flags)
    assert done.exit_code == 0, done.output
    assert ANSWER in done.stdout and "none (no_reference)" in done.stdout and "faults: none" in done.stdout


def test_a_row_with_an_answer_still_says_what_its_scorer_lacks(
    scripted: FakeServer, database: Path, questions: Path
) -> None:
    flags = ("--database", database, "--set", "reward.default_scorer=sql_result")
    done = invoke("--base-url", scripted.base_url, "--file", questions, *flags)
    assert done.exit_code == 2 and "row 1 (q0): scorer 'sql_result' needs reference queries" in done.stderr
    assert scripted.requests == []


def test_unknown_tool_ends_the_episode_and_is_no_fault(database: Path) -> None:
    done = ask(in_turn(tool_call_reply(("delete_everything", {})), chat_reply("x")), database=database)
    assert done.exit_code == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    at = lines.index("delete_everything {}")
    assert (lines[at - 1], lines[at + 1]) == ("turn 1", "was not run")
    assert "invalid_tool_call after 1 turn(s)" in done.stdout


def test_a_refusal_is_the_answer_and_no_defect(database: Path) -> None:
    done = ask(lambda _: chat_reply(None, refusal="I cannot help with that."), database=database)
    assert done.exit_code == 0, done.output
    assert "answered after 1 turn(s)" in done.stdout and "I cannot help with that." in done.stdout


def test_failed_sql_shows_its_error_and_pays_no_bonus(database: Path, questions: Path) -> None:
    handler = in_turn(tool_call_reply((TOOL, {"sql": "DROP TABLE disease"})), chat_reply(ANSWER))
    with openai_server(handler) as server:
        flags = ("--file", questions, "--limit", 1, "--database", database)
        done = invoke("--base-url", server.base_url, *flags)
    assert "1.000 = sql 0.000 + answer 1.000" in done.stdout
    assert "SELECT" in done.stdout, "the refusal says what is allowed"


FAULTS: dict[str, tuple[Handler, str]] = {
    "500": (lambda _: error_reply(500, "boom"), "the endpoint failed (status 500)"),
    "401": (lambda _: error_reply(401, f"bad key {KEY}"), "Give the right one with --api-key or OPENAI_API_KEY"),
    "404": (lambda _: error_reply(404, "no such model"), "It offers fake-model"),
    "429": (lambda _: error_reply(429, "slow down"), "rate limit (status 429)"),
    "no tools": (lambda _: error_reply(400, '"auto" tool choice needs a parser'), "--enable-auto-tool-choice"),
    "reset": (lambda _: RESET, "no whole answer"),
    "half a body": (lambda _: Reply(body=chat_reply(ANSWER), missing_bytes=9), "no whole answer (RemoteProtocolError)"),
    "dripping": (
        lambda _: Reply(body=chat_reply(ANSWER), chunk_pause_s=0.3),
        "no answer within agent.llm_timeout_s = 0.5 s",
    ),
    "timeout": (lambda _: HANG, "no answer within agent.llm_timeout_s = 0.5 s"),
    "web page": (lambda _: Reply(body="<html>login</html>", content_type="text/html"), "/chat/completions"),
    "half a JSON": (lambda _: Reply(body='{"id": '), "/chat/completions"),
    "another JSON": (lambda _: Reply(body={"hello": 1}), "/chat/completions"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_explained_and_the_key_is_not_shown(name: str, database: Path) -> None:
    handler, text = FAULTS[name]
    done = ask(handler, "--api-key", KEY, "--set", "agent.llm_timeout_s=0.5", database=database)
    assert done.exit_code == 1
    assert text in " ".join(done.stdout.split())
    assert "1 question(s); none scored; faults: 1 llm_fault" in done.stdout
    assert KEY not in done.output


def test_a_certificate_that_is_refused_is_named() -> None:
    cause = openai.APIConnectionError(request=httpx2.Request("POST", "https://127.0.0.1/v1"))
    cause.__cause__ = httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired (_ssl.c:1000)")
    (fault := LLMFault("?")).__cause__ = cause
    text = explain_fault(fault, LLMEndpoint("https://127.0.0.1/v1", model="m"), timeout_s=1.0)
    assert "has expired" in text and "SSL_CERT_FILE" in text and "Start the server" not in text


@pytest.mark.long
def test_nobody_listens(database: Path) -> None:
    with openai_server(lambda _: RESET) as server:
        address = server.base_url
    done = invoke("--base-url", address, "--model", "m", "--question", "q", "--database", database)
    assert done.exit_code == 1
    assert "no connection (ConnectError)" in done.stdout and address in done.stdout


@pytest.mark.parametrize(("status", "n_asked"), [(401, 1), (404, 1), (500, 3)])
def test_what_would_fail_every_time_is_asked_once(status: int, n_asked: int, database: Path, questions: Path) -> None:
    with openai_server(lambda _: error_reply(status, "no")) as server:
        flags = ("--model", "m", "--file", questions, "--database", database, "--json")
        done = invoke("--base-url", server.base_url, *flags)
        assert len(server.requests) == n_asked
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["unscored"] for row in rows] == ["llm_fault"] * n_asked
    assert all(row["reward"] is None for row in rows) and done.exit_code == 1
    assert ("were not asked" in done.stderr) == (n_asked < 3)


@pytest.mark.long
def test_a_fault_of_one_tool_call_stops_no_other_question(database: Path, questions: Path, tmp_path: Path) -> None:
    (file := tmp_path / "sensor.py").write_text("def sensor() -> str:\n    raise SystemExit('unplugged')\n")
    handler = in_turn(tool_call_reply(("sensor", {})), chat_reply(ANSWER))
    with openai_server(handler) as server:
        flags = ("--file", questions, "--database", database, "--set", f"agent.tools={json.dumps(['sql', str(file)])}")
        done = invoke("--base-url", server.base_url, *flags, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["unscored"] for row in rows] == ["tool_fault", "", ""], done.output
    assert done.exit_code == 1 and "not asked" not in done.stderr


HOSTILE = "[bold]fett[/bold] [/] \x1b[31mred\x1b]0;title\x07 \u202eevil \\[x] :smile:"


def test_hostile_answer_is_shown_literally(database: Path) -> None:
    done = ask(lambda _: chat_reply(HOSTILE), database=database, question="[red]q[/red] [/]")
    assert done.exit_code == 0
    assert r"[bold]fett[/bold] [/] \x1b[31mred\x1b]0;title\x07 \u202eevil \[x] :smile:" in done.stdout
    assert "[red]q[/red] [/]" in done.stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(done.output)


def test_hostile_answer_survives_json(database: Path) -> None:
    done = ask(lambda _: chat_reply(HOSTILE), "--json", database=database)
    assert json.loads(done.stdout)["answer"] == HOSTILE


def test_lone_surrogate_does_not_crash(database: Path) -> None:
    body = json.dumps(chat_reply("a\ud800b"))
    for flags in ([], ["--json"]):
        done = ask(lambda _: Reply(body=body), *flags, database=database)
        assert done.exit_code == 0 and "\ud800" not in done.output


def test_endpoint_from_the_environment(scripted: FakeServer, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url.removesuffix("/v1") + "/v1/chat/completions")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_MODEL", "from-environment")
    assert invoke("--question", "q", "--database", database).exit_code == 0
    assert scripted.requests[0].json["model"] == "from-environment"
    assert scripted.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--base-url", "localhost:8000"], "--base-url 'localhost:8000': an address starts with http://"),
        (["--base-url", f"http://u:{KEY}@host/v1"], "no user name, password"),
        (["--base-url", "http://127.0.0.1:1/v1", "--model", "m", "--api-key", f"{KEY}\n"], "printable ASCII"),
        (["--base-url", "http://127.0.0.1:1/v1"], "no connection (ConnectError)"),
        (["--base-url", "http://x/v1", "--model", "m", "--set", "agent.max_turn=3"], "did you mean agent.max_turns?"),
        (["--base-url", "http://x/v1", "--model", "m", "--set", "agent.system_prompt=none"], "system_zh"),
        (["--base-url", "http://x/v1", "--model", "m", "--recipe", "none"], "no such recipe"),
        (["--base-url", "http://x/v1", "--model", "m", "--file", "none.jsonl"], "does not exist"),
        (["--base-url", "http://x/v1", "--model", "m", "--question", " "], "--question: empty"),
        (["--model", "./no-such-folder"], "A target is a run folder"),
        (["--model", "m@http://127.0.0.1:1/v1"], "named by --base-url, and its model by --model"),
    ],
)
def test_wrong_input_is_named(flags: list[str], text: str) -> None:
    extra = [] if {"--question", "--file"} & set(flags) else ["--question", "q"]
    done = invoke(*flags, *extra)
    assert done.exit_code == 2
    assert text in " ".join(done.stderr.split()) and done.stderr.startswith("error: ")
    assert KEY not in done.output


def test_missing_database_is_named(scripted: FakeServer, tmp_path: Path) -> None:
    done = invoke("--base-url", scripted.base_url, "--question", "q", "--database", tmp_path / "none.db")
    assert done.exit_code == 2 and "none.db" in done.stderr
    assert scripted.requests == []


@pytest.mark.parametrize(("command", "flags"), [("ask", ["--question", "q"]), ("chat", [])])
def test_a_file_that_is_no_database_is_told_before_a_model_is_loaded(
    command: str, flags: list[str], tmp_path: Path
) -> None:
    (path := tmp_path / "drugs.csv").write_text("id,med_name\n" * 99)
    done = CliRunner().invoke(app_of(command), [*flags, "--database", str(path)])
    assert done.exit_code == 2 and "model " not in done.stderr
    assert f"error: database {path}: not a SQLite database; name a file of SQLite" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("folder", "script"), [("sql_agent", "sqlagent_test.py"), (".", "sql_agent/sqlagent_test.py")])
def test_runs_from_both_folders(folder: str, script: str, scripted: FakeServer, database: Path) -> None:
    command = [sys.executable, script, "--base-url", scripted.base_url, "--question", "q", "--database", str(database)]
    done = subprocess.run(
        [*command, "--json"], cwd=ROOT / folder, capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answer"] == ANSWER
