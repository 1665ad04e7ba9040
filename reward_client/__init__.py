"""Judge and reward-model client. Depends on aiohttp and pydantic; usable without the rest.

judge = LLMJudge(JudgeEndpoint(api_key="...", base_url="https://api.example.com/v1", model="..."))
verdict = await judge.grade(JudgeItem(question="...", reference="...", answer="..."))
"""

from reward_client.endpoints import endpoints_from_env, needed_endpoints, read_endpoints
from reward_client.errors import (
    JudgeBudgetSpent,
    JudgeFault,
    JudgeFolderFault,
    JudgeRejected,
    JudgeUnparsable,
    JudgeUnreachable,
)
from reward_client.groups import grade_group
from reward_client.judge import LLMJudge
from reward_client.schema import Budget, Criteria, GroupVerdict, JudgeEndpoint, JudgeItem, Mode, Verdict

__all__ = [
    "Budget",
    "Criteria",
    "GroupVerdict",
    "JudgeBudgetSpent",
    "JudgeEndpoint",
    "JudgeFault",
    "JudgeFolderFault",
    "JudgeItem",
    "JudgeRejected",
    "JudgeUnparsable",
    "JudgeUnreachable",
    "LLMJudge",
    "Mode",
    "Verdict",
    "endpoints_from_env",
    "needed_endpoints",
    "grade_group",
    "read_endpoints",
]
