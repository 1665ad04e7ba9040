"""Judge and reward-model client. Depends on httpx, pydantic and tenacity; usable without the rest of the project.

judge = LLMJudge(JudgeEndpoint(api_key="...", base_url="https://api.example.com/v1", model="..."))
verdict = await judge.grade(JudgeItem(question="...", reference="...", answer="..."))
"""

from reward_client.errors import JudgeFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.judge import LLMJudge
from reward_client.schema import Criteria, JudgeEndpoint, JudgeItem, Usage, Verdict, endpoint_from_env

__all__ = [
    "Criteria",
    "JudgeEndpoint",
    "JudgeFault",
    "JudgeItem",
    "JudgeRejected",
    "JudgeUnparsable",
    "JudgeUnreachable",
    "LLMJudge",
    "Usage",
    "Verdict",
    "endpoint_from_env",
]
