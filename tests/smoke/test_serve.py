"""`agentgrpo serve`, and the command that it prints, word for word."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from foundation.net import free_port

AGENTGRPO = Path(sys.executable).with_name("agentgrpo")


def test_the_command_that_it_prints_gets_right_answers(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log:
        command = [AGENTGRPO, "serve", "--port", str(free_port())]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True) as server:
            try:
                assert server.stdout and "serving" in server.stdout.readline(), (tmp_path / "log").read_text()
                printed = re.search(r"^try:\s+agentgrpo (.*)$", (tmp_path / "log").read_text(), re.MULTILINE)
                assert printed, (tmp_path / "log").read_text()
                asked = [AGENTGRPO, *shlex.split(printed[1]), "--limit", "2"]
                done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=120)
                assert done.returncode == 0 and "mean reward 1.100 over 2" in done.stdout, done.stdout + done.stderr
            finally:
                server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 130
