"""The faults of judging: a branch of the tree in foundation/errors.py.

JudgeFault               no verdict: the item stays unscored (it is never a 0)
 |-- JudgeUnreachable    connection refused, timeout, 5xx, rate limit that outlasts the time limit
 |-- JudgeRejected       401, 403, 404: wrong key, address or model name; found at preflight
 |-- JudgeUnparsable     an answer came, but no valid verdict could be read from it
 |-- JudgeBudgetSpent    the run's budget of calls, tokens or money is used up
 +-- JudgeFolderFault    the folder that processes share (cache, limits, budget) cannot be used
"""

from __future__ import annotations

from foundation.errors import AgentGRPOError
from reward_client.schema import Usage


class JudgeFault(AgentGRPOError):
    """No verdict could be had. `kind` is the short name counted in run summaries; `usage` is what it cost."""

    status = 1
    kind = "judge_fault"
    usage = Usage()


class JudgeUnreachable(JudgeFault):
    """The endpoint did not answer in time, or answered with a server error."""

    kind = "judge_unreachable"


class JudgeRejected(JudgeFault):
    """The endpoint refuses this key, address or model: no retry can help."""

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


FAULTS: dict[str, type[JudgeFault]] = {
    fault.kind: fault
    for fault in (JudgeUnreachable, JudgeRejected, JudgeUnparsable, JudgeBudgetSpent, JudgeFolderFault)
}
