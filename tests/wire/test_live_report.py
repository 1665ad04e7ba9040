"""The report of a run that goes on: what grows is shown, what one opened stays open, hostile text does nothing.

The browser's tests are skipped with a reason where no Chromium is installed; the routes are tested without one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from foundation import run_folder
from foundation.http_gate import Traffic
from foundation.net import free_port
from sql_agent.config import ROOT
from sql_agent.run_report.live import LiveView
from tests.browser import Browser, missing
from tests.run_folders import make_run
from tests.wire.test_run_report import poisoned_run

needs_browser = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")
TOKEN = "live-report-token-0123"
COMMAND = [sys.executable, "-m", "sql_agent", "report"]
WAIT_S = 60.0
FOUND = "return document.getElementById('now-found').textContent;"


@contextmanager
def live(folder: Path, *flags: str, token: str = "", host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a live report."""

    port = free_port()
    command = [*COMMAND, str(folder), "--live", "--port", str(port), *flags]
    environment = {**os.environ, "REPORT_TOKEN": token}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and f"http://{host}:{port}/" in process.stdout.readline()
            yield f"http://{host}:{port}/"
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 130


def grown(whole: Path, folder: Path, *, steps: int) -> None:
    """The files of a run as they were after so many steps."""
    folder.mkdir(exist_ok=True)
    shutil.copy(whole / run_folder.CONFIG, folder)
    for name in (run_folder.METRICS, run_folder.ROLLOUTS):
        lines = (whole / name).read_text(encoding="utf-8").splitlines(keepends=True)
        with (folder / name).open("r+" if (folder / name).exists() else "w", encoding="utf-8") as file:
            file.writelines(line for line in lines if json.loads(line)["step"] <= steps)


def wait_for(browser: Browser, script: str) -> None:
    """Until the script's value is true."""
    ends_s = time.monotonic() + WAIT_S
    while not browser.run(script):
        assert time.monotonic() < ends_s, script + browser.run(FOUND)[:2000]


def assert_quiet(browser: Browser, address: str) -> None:
    """Nobody else was asked, and nothing complained."""
    assert browser.console() == []
    assert {url for url in browser.requests() if not url.startswith(address)} <= {"about:blank"}


@pytest.mark.long
@needs_browser
def test_the_page_grows_with_its_run(browser: Browser, tmp_path: Path) -> None:
    whole, folder = make_run(tmp_path / "whole", steps=12), tmp_path / "run"
    grown(whole, folder, steps=4)
    with live(folder) as address:
        browser.show(address, width=1280)
        wait_for(browser, "return document.querySelectorAll('#now-groups details').length === 4;")
        assert "unfinished, step 4 of 12, about" in browser.run(FOUND)
        browser.run("document.querySelector('#now-rollouts details').open = true;")
        browser.run("document.querySelector('#now-groups details').open = true; window.stays = 1;")
        wait_for(browser, "return document.querySelectorAll('#now-groups .side').length === 4;")
        read = "return document.querySelector('#now-rollouts details[open] .side').textContent;"
        wait_for(browser, read.replace(";", " !== '';"))
        before = browser.run(read)
        assert "judge" in before and "SELECT" in before
        grown(whole, folder, steps=9)
        with (folder / run_folder.ROLLOUTS).open("a", encoding="utf-8") as file:
            file.write('{"question": "torn')  # a line that is being written
        wait_for(browser, "return document.getElementById('now-found').textContent.includes('step 9 of 12');")
        wait_for(browser, "return document.getElementById('overview').textContent.includes('9 of 12 steps');")
        tips = "return [...document.querySelectorAll('#reward .plot.wide title')].map(t => t.textContent).join();"
        wait_for(browser, tips.replace(".join()", ".join().includes('step 9: ')"))
        assert browser.run("return window.stays === 1;")  # the page was not loaded again
        assert_quiet(browser, address)


@pytest.mark.long
@needs_browser
def test_search_finds_rollouts_of_all_steps(browser: Browser, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=6)
    lines = (folder / run_folder.ROLLOUTS).read_text(encoding="utf-8").splitlines()
    first = {**json.loads(lines[0]), "answer": 'The "Needle", 针。'}
    (folder / run_folder.ROLLOUTS).write_text("\n".join([json.dumps(first, ensure_ascii=False), *lines[1:], ""]))
    count = "return document.querySelectorAll('#now-rollouts details').length;"
    with live(folder) as address:
        browser.show(address, width=390)
        wait_for(browser, count.replace(";", " === 30;"))
        for words, hits in (('"needle", 针', 1), ("no such words anywhere", 0), ("", 30)):
            browser.run(
                f"const s = document.getElementById('now-search'); s.value = {json.dumps(words)};"
                "s.dispatchEvent(new Event('input'));"
            )
            wait_for(browser, count.replace(";", f" === {hits};"))
        assert browser.run("return document.documentElement.scrollWidth;") == 390


@pytest.mark.long
@needs_browser
def test_hostile_text_does_nothing(browser: Browser, tmp_path: Path) -> None:
    with live(poisoned_run(tmp_path / "run")) as address:
        browser.show(address, width=1280)
        wait_for(browser, "return document.querySelectorAll('#now-rollouts details').length === 30;")
        browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; });")
        wait_for(browser, "return !document.getElementById('now-found').textContent.includes('reading …');")
        assert "<script>window.pwned=1</script>" in browser.run(FOUND)
        assert browser.run("return window.pwned === undefined;")
        foreign = "return document.querySelectorAll('img, iframe, object, embed, form, base, [onload]').length;"
        assert browser.run(foreign) == 0
        assert_quiet(browser, address)


@needs_browser
@pytest.mark.slow
def test_a_training_is_seen_while_it_goes(browser: Browser, tmp_path: Path) -> None:
    """A real run of three steps: the page shows each before the run has ended."""
    sets = ["trainer.max_steps=3", "data.val_max_rows=8", "optim.questions_per_step=2", "rollout.group_size=4"]
    sets += ["optim.mini_batch_questions=2", "optim.micro_batch_rows=8", f'trainer.runs_dir="{tmp_path}"']
    flags = ["--backend", "local", "--recipe", "local_cpu", *(word for key in sets for word in ("--set", key))]
    with subprocess.Popen([*COMMAND[:3], "train", *flags], cwd=ROOT, stdout=subprocess.DEVNULL) as run:
        ends_s = time.monotonic() + 300
        while not (found := list(tmp_path.glob("*/metrics.jsonl"))):
            assert run.poll() is None and time.monotonic() < ends_s
            time.sleep(0.2)
        with live(found[0].parent) as address:
            browser.show(address, width=1280)
            seen: set[str] = set()
            while run.poll() is None:
                seen.add(browser.run("return document.getElementById('now-line')?.textContent.trim();"))
            wait_for(
                browser, "return document.getElementById('now-line').textContent.includes('finished, step 3 of 3');"
            )
            assert any(line and line.startswith("unfinished, step") for line in seen), seen
            assert browser.run("return document.querySelectorAll('#now-groups details').length;") == 2
        assert run.wait() == 0


@pytest.mark.long
def test_who_may_ask(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=2)
    with live(folder, token=TOKEN) as address, httpx.Client(base_url=address, trust_env=False) as client:
        refused = client.get("/")
        assert refused.status_code == 401 and "Basic" in refused.headers["www-authenticate"]
        assert client.get("/now", auth=("me", TOKEN[:-1])).status_code == 401
        page = client.get("/", auth=("me", TOKEN))
        assert page.status_code == 200 and "connect-src 'self'" in page.text
        assert client.get("/", auth=("me", TOKEN), headers={"Host": "rebound.example"}).status_code == 400
        for wrong in ("", "n=x", "n=-1", "n=1&n=99999"):
            assert client.get(f"/transcripts?{wrong}", auth=("me", TOKEN)).status_code == 404, wrong


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host", "0.0.0.0", "--live"], "set REPORT_TOKEN"),
        (["--port", "8091"], "--port: only for a live page"),
        (["--live", "--evaluation", "x"], "--evaluation: a live page"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, flags: list[str], words: str) -> None:
    folder = make_run(tmp_path / "run", steps=1)
    done = subprocess.run([*COMMAND, str(folder), *flags], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and words in done.stderr


async def test_files_that_are_made_anew_or_go_cost_an_answer_and_no_more(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2)
    file = run / run_folder.ROLLOUTS
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:9]))
    app = LiveView(run).app(Traffic(), token="", local=True)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

        async def statuses(path: str) -> tuple[int, int]:
            return (await client.get(path)).status_code, (await client.get(path)).status_code

        assert await statuses("/now") == (200, 200)
        file.write_bytes(b"torn\n" + b"".join(lines[:12]))  # longer than before, and each line elsewhere
        assert await statuses("/now") == (503, 200)
        assert "of 12<" in (await client.get("/now")).text
        assert await statuses("/transcripts?n=0") == (200, 200)
        assert await statuses("/transcripts?n=-1") == await statuses("/transcripts?n=%C2%B2") == (404, 404)
        shutil.rmtree(run)
        assert await statuses("/") == (503, 503)
        assert await statuses("/now") == (200, 200)
