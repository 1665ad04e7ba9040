"""A task of verifiers, which grades it: agent.agl_class = "docs/agents/with_verifiers.py:VerifiersAgent"."""

import os

import httpx
import verifiers.v1 as vf
from verifiers.v1.harnesses.null import NullHarnessConfig


class AddData(vf.TaskData):
    answer: str


class AddTask(vf.Task[AddData]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(self.data.answer in (trace.last_reply or ""))


class VerifiersAgent:
    """Plays a task of verifiers, which grades it."""

    async def run(self) -> None:
        key = os.environ["AGL_KEY"]
        client = vf.EvalClientConfig(base_url=os.environ["AGL_OPENAI_BASE_URL"], api_key_var="AGL_KEY")
        config = vf.AgentConfig(
            harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig(), model="auto", client=client
        )
        task = AddTask(AddData(prompt=os.environ["QUESTION"], answer=os.environ["ANSWER"]), vf.TaskConfig())
        trace = await vf.make_agent(config).run(task)
        assert trace.ok, trace.errors
        event = {"event_type": "reward", "data": {"value": trace.reward}}
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http:
            (await http.post(os.environ["AGL_EVENT_URL"], json=event)).raise_for_status()
