"""Queries for datasette: the file metadata.json that it reads, and the command that opens both.

Written for datasette 0.65; datasette escapes what it shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agl_plugin.audit.schema import audit_file
from foundation.files import write_json

METADATA = "audit.metadata.json"
CALLS = "JOIN attempt ON attempt.id = llm_call.attempt_id JOIN rollout ON rollout.id = attempt.rollout_id"
VERDICTS = "JOIN verdict ON verdict.rollout_id = rollout.id"

QUERIES: dict[str, tuple[str, str]] = {
    "chain_of_a_rollout": (
        "What stands behind a rollout: question, verdict, rows and update",
        f"""SELECT rollout.id, rollout.step, mode, question.question, question.reference, answer, reward, parts, judge,
        reason, unscored, train_row.id AS train_row, advantage, used, why_not, train_row.update_id, grad_norm, loss,
        weights_before, weights_after, path AS checkpoint FROM rollout {VERDICTS}
        JOIN question ON question.id = rollout.question_id
        LEFT JOIN train_row ON train_row.rollout_id = rollout.id
        LEFT JOIN policy_update ON policy_update.id = train_row.update_id
        LEFT JOIN checkpoint ON checkpoint.update_id = policy_update.id WHERE rollout.id = :rollout""",
    ),
    "calls_of_a_rollout": (
        "LLM calls and the weights that answered them",
        f"""SELECT llm_call.id, llm_call.n, n_prompt, n_sampled, finish_reason, weights_version,
        round(llm_call.ended_s - llm_call.started_s, 3) AS seconds FROM llm_call {CALLS}
        WHERE rollout.id = :rollout ORDER BY llm_call.n""",
    ),
    "tools_of_a_rollout": (
        "SQL and other tool calls with their results",
        """SELECT id, turn, name, arguments, outcome, n_rows, result, error, seconds FROM tool_call
        WHERE rollout_id = :rollout ORDER BY n""",
    ),
    "rewards_between": (
        "Rollouts by their reward",
        f"""SELECT rollout.id, step, mode, reward, parts, reason FROM rollout {VERDICTS}
        WHERE reward BETWEEN CAST(:low AS REAL) AND CAST(:high AS REAL) AND unscored = '' ORDER BY step LIMIT 1000""",
    ),
    "unscored": (
        "Rollouts without a reward, by reason",
        f"""SELECT unscored, count(*) AS rollouts, min(step) AS first_step, max(step) AS last_step
        FROM rollout {VERDICTS} WHERE unscored > '' GROUP BY unscored ORDER BY rollouts DESC""",
    ),
    "failed_tools": (
        "Tool calls that failed",
        """SELECT tool_call.id, step, name, arguments, outcome, error FROM tool_call
        JOIN rollout ON rollout.id = tool_call.rollout_id WHERE outcome IN ('error', 'timeout', 'bad_arguments')
        ORDER BY step LIMIT 1000""",
    ),
    "not_learned_from": (
        "Why rows and rollouts were not learned from, by step",
        """SELECT step, why, count(*) AS n FROM (SELECT step, why FROM left_out
        UNION ALL SELECT step, why_not FROM train_row WHERE NOT used) GROUP BY step, why ORDER BY step""",
    ),
    "updates": (
        "The updates of the run",
        """SELECT policy_update.id, step, loss, grad_norm, lr, n_rollouts, n_rows, n_used, n_tokens, weights_before,
        weights_after, path AS checkpoint FROM policy_update
        LEFT JOIN checkpoint ON checkpoint.update_id = policy_update.id ORDER BY step""",
    ),
    "groups_of_a_step": (
        "Rewards and advantages of the groups of a step",
        f"""SELECT group_id, rollout.id, reward, advantage, used, why_not FROM rollout {VERDICTS}
        LEFT JOIN train_row ON train_row.rollout_id = rollout.id WHERE rollout.step = CAST(:step AS INTEGER)
        AND mode = 'train' ORDER BY group_id, reward DESC""",
    ),
}


def metadata() -> dict[str, Any]:
    """What datasette reads."""
    queries = {name: {"title": title, "sql": " ".join(sql.split())} for name, (title, sql) in QUERIES.items()}
    return {"title": "Audit of a run", "databases": {"audit": {"queries": queries}}}


def write_metadata(run: Path) -> str:
    """Write it beside the file; the command that opens both. Raises UserError."""
    file = audit_file(run)
    target = file.with_name(METADATA)
    write_json(target, metadata())
    return f"datasette {file} --metadata {target}"
