"""The one command line: `agentgrpo`, or `python -m sql_agent` in a checkout; and the older names of its commands.

Guarantees: a command's module is imported when it is called, so help and completion take no time. The machinery, the
statuses and the older names of flags stand in foundation/command.py.
"""

from __future__ import annotations

import sys

from foundation.command import STATUSES, Table, group, prepare, run_old

CURATE: Table = {
    "chats": ("sql_agent.commands.curate:chats", "The questions that stand alone in chat logs."),
    "traffic": ("sql_agent.commands.curate:traffic", "What a served agent kept, as data to learn from."),
    "keep": ("sql_agent.commands.curate:keep", "An LLM keeps or drops each question."),
    "again": ("sql_agent.commands.curate:again", "A second, strict reading of what was kept."),
    "new": ("sql_agent.commands.curate:new", "Questions that an older set does not ask yet."),
    "leakage": ("sql_agent.commands.curate:leakage", "Training questions that give held-out ones away."),
    "difficulty": ("sql_agent.commands.difficulty:difficulty", "Questions that a model answers sometimes, not always."),
}
REWARD_MODEL: Table = {
    "pairs": ("reward_model.bundled_pairs:main", "Preference pairs from questions with reference answers."),
    "convert": ("reward_model.convert_dpo_format:main", "Raw preference data as pairs."),
    "mine": ("reward_model.mine_pairs:main", "Preference pairs from a run's rollouts."),
    "train": ("reward_model.reward_modeling:command", "Train a reward model on pairs, with TRL."),
    "merge": ("reward_model.merge_lora:main", "Merge a LoRA adapter into its base."),
    "scale": ("reward_model.scale_command:main", "Fit the map from a model's logits to [0, 1]."),
    "score": ("reward_model.inference:main", "Score a response, a pair or a file, without a server."),
    "serve": ("reward_model.inference_api:main", "Serve a reward model over HTTP."),
}
AUDIT: Table = {
    "show": ("sql_agent.commands.audit:show", "Steps, rewards, updates, and why rollouts are unscored."),
    "find": ("sql_agent.commands.audit:find", "Find rollouts."),
    "why": ("sql_agent.commands.audit:why", "Why a rollout got its reward, and what that did to the weights."),
    "verify": ("sql_agent.commands.audit:verify", "Compute all rows, masks and advantages again."),
    "replay": ("sql_agent.commands.audit:replay", "Repeat the update of a step."),
}
COMMANDS: Table = {
    "train": ("sql_agent.commands.train:train", "Train an agent with GRPO."),
    "sft": ("sql_agent.commands.tune:sft", "Teach a model from conversations."),
    "dpo": ("sql_agent.commands.tune:dpo", "Teach a model from preferences."),
    "evaluate": ("sql_agent.commands.evaluate:evaluate", "Measure a model, or two against each other."),
    "export": ("sql_agent.commands.export:export", "Turn a checkpoint into a model folder."),
    "report": ("sql_agent.commands.report:report", "Write the report page of a run again."),
    "audit": (AUDIT, "Ask a run why: from a reward to its question, tokens, tools, verdict, rows and update."),
    "ask": ("sql_agent.commands.ask:ask", "Ask the agent, and see its SQL, its answer and its reward."),
    "chat": ("sql_agent.commands.ask:talk", "Talk to the agent."),
    "serve": ("sql_agent.commands.serve:serve", "Serve a model to OpenAI clients, as it was trained."),
    "mcp": ("sql_agent.commands.mcp_server:mcp", "The SQL tool for MCP clients, on stdin and stdout."),
    "store": ("agl_plugin.store.__main__:main", "A store that lasts, for runs with --store."),
    "data": ("sql_agent.data.build:main", "Build the bundled data, or questions of your own."),
    "curate": (CURATE, "Chat logs and raw questions -> training questions."),
    "prompt": ("sql_agent.commands.prompt:prompt", "Improve the agent's system prompt."),
    "judge-report": ("sql_agent.commands.judge_report:judge_report", "Measure how far the judges can be trusted."),
    "reward-model": (REWARD_MODEL, "Make, train, calibrate and serve a reward model."),
    "new": ("recipes.new:main", "Make a recipe for an agent of your own."),
    "doctor": ("utils.check_install:doctor", "Say what is wrong with this machine."),
    "mine": ("sql_agent.commands.mine:mine", "Your own database -> questions, and a better agent."),
    "demo": ("sql_agent.commands.demo:demo", "Train the tiny policy, and show by how much it got better."),
    "gsm8k": ("sql_agent.commands.gsm8k:train_gsm8k", ""),  # without a line it is in no list
    "gsm8k-chat": ("sql_agent.commands.gsm8k:chat_gsm8k", ""),
}
# Scripts that are links to sql_agent/alias.py.
SCRIPTS = {
    "train_sql_agent.py": "train",
    "train_local.py": "train --backend local",
    "train_gsm8k_agent.py": "gsm8k",
    "train_sft.py": "sft",
    "train_dpo.py": "dpo",
    "test_interactive.py": "gsm8k-chat",
    "sqlagent_test.py": "ask",
    "evaluate.py": "evaluate",
    "export.py": "export",
    "report.py": "report",
    "judge_report.py": "judge-report",
    "optimize_prompt.py": "prompt",
    "chat_session_filter.py": "curate chats",
    "filter_with_llm.py": "curate keep",
    "filter_again.py": "curate again",
    "filter_new_question.py": "curate new",
    "check_leakage.py": "curate leakage",
    "filter_by_difficulty.py": "curate difficulty",
    "reward_scale.py": "reward-model scale",
}
HELP = """Train agents that use tools with reinforcement learning, and show whether they got better.

\b
agentgrpo train --ci-fast        one training step: does everything work here?
agentgrpo ask                    the agent at work
agentgrpo demo                   train a tiny policy, and measure it before and after

`agentgrpo COMMAND --help` has the flags and examples of each; recipes and --set KEY=VALUE say the rest
(docs/10-configuration.md).
"""
app = group(COMMANDS, help=HELP, epilog=STATUSES, add_completion=True)


def main() -> None:
    prepare()
    app(prog_name="agentgrpo")


def run_script(name: str) -> None:
    """The script of this name."""
    words = sys.argv[1:]
    command = SCRIPTS[name]
    if command == "ask" and "--chat" in words:
        words.remove("--chat")
        command = "chat"
    run_old(COMMANDS, [*command.split(), *words])
