"""A part of the demo that is told to end is waited for."""

from __future__ import annotations

import signal
import subprocess
import sys

from sql_agent.commands.demo import held_out

PART = """
import signal, sys, time

def end(*_):
    print("ends in order", flush=True)
    sys.exit(130)

signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
DEMO = f"import sys; from sql_agent.commands.demo import run; run(sys.executable, '-c', {PART!r})"


def test_a_sigterm_reaches_the_running_part_and_its_last_words_are_shown() -> None:
    command = [sys.executable, "-c", DEMO]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "ready\n"
        demo.send_signal(signal.SIGTERM)
        assert demo.communicate(timeout=30)[0] == "ends in order\n"
        assert demo.returncode != 0


def test_a_recipe_with_questions_of_its_own_is_measured_with_them() -> None:
    assert [file.name for file in held_out("math_cpu")] == ["test_entities.jsonl", "test.jsonl"]
    assert held_out("demo_cpu") == []
