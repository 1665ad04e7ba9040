"""The faults of judging, a branch of the tree in foundation/errors.py: the item stays unscored, which is never a 0."""

from foundation.errors import AgentGRPOError
from reward_client.schema import Usage


class JudgeFault(AgentGRPOError):
    """No verdict could be had. `kind` is the short name counted in run summaries; `usage` is what it cost."""

    status = 1
    kind = "judge_fault"
    usage = Usage()


class JudgeUnreachable(JudgeFault):
    """Connection refused, timeout, a server error, or a rate limit that outlasts the time limit."""

    kind = "judge_unreachable"


class JudgeRejected(JudgeFault):
    """A wrong key, address or model name, found at preflight: no retry can help."""

    kind = "judge_rejected"


class JudgeUnparsable(JudgeFault):
    """The endpoint answered, but not with a verdict of the agreed form."""

    kind = "judge_unparsable"


class JudgeBudgetSpent(JudgeFault):
    """The budget of this run is used up: nothing more is graded."""

    kind = "judge_budget"


class JudgeFolderFault(JudgeFault):
    """The shared folder cannot be read or written, so neither cache nor budget can be trusted."""

    kind = "judge_folder"
