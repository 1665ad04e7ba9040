"""An OpenEnv server, played by reset and step: agent.agl_class = "docs/agents/with_openenv.py:OpenEnvAgent"."""

import json
import os

import httpx
import openai
from openenv.core import GenericEnvClient


class OpenEnvAgent:
    """Plays an OpenEnv server: what the policy says is an action, what the server says its next message."""

    def run(self) -> None:
        key = os.environ["AGL_KEY"]
        llm = openai.OpenAI(base_url=os.environ["AGL_OPENAI_BASE_URL"], api_key=key, max_retries=0)
        with GenericEnvClient(base_url=os.environ["OPENENV_URL"]).sync() as env:
            result = env.reset(seed=int(os.environ.get("SEED", 0)))
            messages = [{"role": "user", "content": os.environ["QUESTION"] + json.dumps(result.observation)}]
            while not result.done:
                text = llm.chat.completions.create(model="auto", messages=messages).choices[0].message.content or ""
                result = env.step({"message": text})
                messages += [{"role": "assistant", "content": text}]
                messages += [{"role": "user", "content": json.dumps(result.observation)}]
        event = {"event_type": "reward", "data": {"value": result.reward}}
        httpx.post(
            os.environ["AGL_EVENT_URL"], json=event, headers={"Authorization": f"Bearer {key}"}
        ).raise_for_status()
