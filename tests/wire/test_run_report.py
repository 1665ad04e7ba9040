"""The report in a real browser: complete, still, harmless, readable in both themes, on a desk and on a phone.

Skipped with a reason where no Chromium is installed (apt-get install chromium chromium-driver). The command line and
the real evaluate.py's files are tested without one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foundation import run_folder
from foundation.files import append_lines, write_json
from sql_agent.config import ROOT
from sql_agent.run_report.file import REPORT, write_report
from sql_agent.run_report.folder import read_run
from sql_agent.run_report.headline import headlines
from sql_agent.testing.server import Answer, chat_reply, openai_server, tool_call_reply
from tests.browser import Browser, Theme, missing
from tests.run_folders import add_evaluation, make_run
from tests.sql_db import make_database

needs_browser = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")
WIDTHS = [390, 1280]
THEMES: list[Theme] = ["light", "dark"]
SECTIONS = ["overview", "reward", "time", "health", "transcripts", "questions", "configuration", "versions"]
OPEN_ALL = "document.querySelectorAll('details').forEach(d => { d.open = true; });"

# What a model could write to leave its place in the page.
HOSTILE = (
    "</script><script>window.pwned=1</script></style><style>body{display:none}</style></title></svg></pre>"
    "<img src=x onerror=window.pwned=2><svg onload=window.pwned=3><iframe srcdoc='<script>parent.pwned=4</script>'>"
    '"onload="window.pwned=5" autofocus onfocus="window.pwned=6" x=\'\' {{ 7*7 }}{% raw %} '
    "<meta http-equiv=refresh content='30;url=http://127.0.0.1:9/'><a href=javascript:pwned=7>$\\frac{1}{0}$</a>"
    "<!-- --><![CDATA[ \x1b[31m \u202egnp.\u202c &lt;b&gt; 数据"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with an evaluation."""
    folder = make_run(tmp_path_factory.mktemp("runs") / "20260101-000000-demo_cpu-demo", steps=30)
    add_evaluation(folder)
    return write_report(folder)


def poison(value: Any, *, keep: tuple[str, ...] = ()) -> Any:
    """The same tree with every text, and every key that is free, made hostile; `keep` names the keys that stay."""
    if isinstance(value, dict):
        return {k: v if k in keep else poison(v, keep=keep) for k, v in value.items()}
    if isinstance(value, list):
        return [poison(v, keep=keep) for v in value]
    return value + HOSTILE if isinstance(value, str) else value


def poisoned_run(folder: Path) -> Path:
    """A run with hostile text wherever text can be, its folder's name included."""
    make_run(folder, steps=12)
    add_evaluation(folder)
    for name in (run_folder.ROLLOUTS, "evaluation/trials.jsonl"):
        rows = [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        (folder / name).unlink()
        keep = ("mode", "model", "split", "decoding", "unscored", "stop_reason", "outcome")
        for number, row in enumerate(rows):
            row = poison(row, keep=keep)
            row["reward_parts"] = {name + HOSTILE: part for name, part in row["reward_parts"].items()}
            row["unscored"] += HOSTILE if row["unscored"] and number % 2 else ""
            rows[number] = row
        append_lines(folder / name, rows)
    summary = json.loads((folder / run_folder.SUMMARY).read_text())
    summary |= {"error": HOSTILE, "status": "failed", "recipe": HOSTILE, "judge": HOSTILE, "model": {"path": HOSTILE}}
    for name in ("versions", "data", "seconds"):
        summary[name] = {key + HOSTILE: poison(value) for key, value in summary[name].items()}
    write_json(folder / run_folder.SUMMARY, summary)
    config = json.loads((folder / run_folder.CONFIG).read_text())
    write_json(folder / run_folder.CONFIG, {**poison(config), HOSTILE: {HOSTILE: HOSTILE}})
    metrics = [json.loads(line) for line in (folder / run_folder.METRICS).read_text().splitlines()]
    names = ("health/", "time/", "rollout/reward_parts/", "rollout/unscored/", "rollout/stop/")
    extra = {name + HOSTILE: 0.5 for name in names}
    (folder / run_folder.METRICS).unlink()
    append_lines(folder / run_folder.METRICS, [{**row, **extra, "warnings": [HOSTILE]} for row in metrics])
    tree = json.loads((folder / "evaluation" / "results.json").read_text())
    tree["labels"] = {"before": HOSTILE, "after": HOSTILE}
    for name, keys in tree["models"].items():
        found = keys["test/greedy"]
        found["by_task"] = {task + HOSTILE: value for task, value in found["by_task"].items()}
        found["measures"] = {**found["measures"], HOSTILE: found["measures"]["reward"]}
        tree["models"][name] = {HOSTILE + "/" + HOSTILE: found, **keys}
    write_json(folder / "evaluation" / "results.json", tree)
    assert read_run(folder).problems == []
    return folder


# Complete and still


@pytest.mark.long
@needs_browser
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_complete_and_asks_for_nothing(browser: Browser, page: Path, width: int, theme: Theme) -> None:
    browser.show(page, width=width, theme=theme)
    boxes = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('[id]')].map(e => [e.id, "
        "[e.getBoundingClientRect().width, e.getBoundingClientRect().height, getComputedStyle(e).visibility]]));"
    )
    for section in SECTIONS:
        box_width, height, visibility = boxes[section]
        assert box_width > 0.7 * min(width, 400) and height > 60 and visibility == "visible", section
    charts = browser.run(
        "return [...document.querySelectorAll('.plot')].filter(e => e.offsetWidth > 0)"
        ".map(e => [e.getBoundingClientRect().width, e.getBoundingClientRect().height]);"
    )
    assert len(charts) == 4 + 12 and all(w > 200 and h > 80 for w, h in charts)
    assert browser.console() == []
    assert browser.requests() == [page.resolve().as_uri()]


@pytest.mark.long
@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_reaches_over_the_edge(browser: Browser, page: Path, width: int) -> None:
    browser.show(page, width=width)
    found = browser.run(OPEN_ALL + "return [document.documentElement.scrollWidth, window.innerWidth];")
    assert found == [width, width]
    wide = browser.run(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .sr, svg') && "
        "e.getBoundingClientRect().right > window.innerWidth + 0.5).map(e => e.outerHTML.slice(0, 120));"
    )
    assert wide == []


@needs_browser
def test_pictures_follow_the_theme(browser: Browser, page: Path) -> None:
    stroke = "return getComputedStyle(document.querySelector('.plot.wide svg path')).fill + "
    stroke += "getComputedStyle(document.querySelector('.plot.wide text')).fill;"
    colors = []
    for theme in THEMES:
        browser.show(page, width=1280, theme=theme)
        colors.append(browser.run(stroke))
    assert colors[0] != colors[1] and "254" not in "".join(colors)  # 254, 0, n: a colour that stands for a variable


@needs_browser
def test_ids_are_unique_and_what_they_name_is_there(browser: Browser, page: Path) -> None:
    browser.show(page, width=1280)
    ids, named = browser.run(
        "return [[...document.querySelectorAll('[id]')].map(e => e.id), [...document.querySelectorAll('[href^=\"#\"]')]"
        ".map(e => e.getAttribute('href').slice(1))];"
    )
    assert len(ids) == len(set(ids)) and set(named) <= set(ids)


# Harmless


@pytest.mark.long
@needs_browser
@pytest.mark.parametrize("policy", ["with the page's policy", "without it"])
@pytest.mark.parametrize("kind", ["evaluation", "validation"])
def test_hostile_text_does_nothing(browser: Browser, tmp_path: Path, kind: str, policy: str) -> None:
    folder = poisoned_run(tmp_path / "<img src=x onerror=window.pwned=8>\"'&{{ 7*7 }}")
    if kind == "validation":
        (folder / "evaluation").rename(tmp_path / "elsewhere")
    page = write_report(folder)
    text = page.read_text(encoding="utf-8")
    assert text.count("Content-Security-Policy") == 1
    if policy == "without it":  # the escaping alone must do
        head, _, rest = text.partition('<meta http-equiv="Content-Security-Policy"')
        page.write_text(head + rest.partition(">")[2], encoding="utf-8")
    browser.show(page, width=1280)
    browser.run(OPEN_ALL + "document.querySelectorAll('summary, button').forEach(e => e.click());")
    assert browser.run("return window.pwned === undefined;")
    counts = browser.run(
        "const n = s => document.querySelectorAll(s).length; return {scripts: n('script'), styles: n('style'), "
        "links: n('link'), metas: n('meta'), "
        "foreign: n('img, iframe, object, embed, form, input, base, foreignObject'), "
        "handlers: [...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
        ".filter(a => a.name.startsWith('on') || /^\\s*javascript:/i.test(a.value)).length};"
    )
    assert counts == {
        **{"scripts": 1, "styles": 1, "foreign": 0, "links": 1, "handlers": 0},
        "metas": 5 if policy == "with the page's policy" else 4,
    }
    shown = browser.run("return document.body.textContent;")
    assert shown.count("<script>window.pwned=1</script>") > 60 and "{{ 7*7 }}" in shown
    assert "\\x1b[31m" in shown and "\\u202egnp" in shown and "\u202e" not in shown and "\x1b" not in shown
    assert browser.console() == [] and browser.requests() == [page.resolve().as_uri()]
    assert browser.run("return document.documentElement.scrollWidth;") == 1280


@needs_browser
def test_the_policy_stops_what_would_escape(browser: Browser, page: Path, tmp_path: Path) -> None:
    """The second wall: were a text not escaped, it could neither run nor load anything."""
    text = page.read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    attack = "<script>window.pwned=1</script><img src='http://127.0.0.1:9/x.png' onerror='window.pwned=2'>"
    broken.write_text(text.replace("<main", attack + "<main"), encoding="utf-8")
    browser.show(broken, width=1280)
    assert browser.run("return window.pwned === undefined;")
    assert [url for url in browser.requests() if url.startswith("http")] == []
    assert any("Content Security Policy" in line for line in browser.console())


# Readable by everyone


@pytest.mark.long
@needs_browser
@pytest.mark.parametrize("theme", THEMES)
def test_text_has_contrast(browser: Browser, page: Path, theme: Theme) -> None:
    browser.show(page, width=1280, theme=theme)
    assert browser.run(OPEN_ALL + CONTRAST) == []


# Texts whose contrast to what lies behind them is below WCAG AA: 4.5, or 3 for large text.
CONTRAST = """
const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1]; };
const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
const light = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
  return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = e => { const layers = [];
  for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]); };
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (walker.nextNode()) {
  const node = walker.currentNode, e = node.parentElement;
  if (!node.textContent.trim() || e.closest('script, style, title, .sr') || !e.getClientRects().length) continue;
  const style = getComputedStyle(e), svg = e.closest('svg');
  const back = behind(e), color = over(parse(svg ? style.fill : style.color), back);
  const [a, b] = [light(color), light(back)].sort((x, y) => y - x);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.7 && style.fontWeight >= 700);
  seen += 1;
  if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5))
    found.push(((a + 0.05) / (b + 0.05)).toFixed(2) + ' ' + node.textContent.trim().slice(0, 40) + ' .' + e.className);
}
return seen > 500 ? [...new Set(found)] : ['only ' + seen + ' texts'];
"""


@needs_browser
def test_pictures_have_words_and_tables_have_heads(browser: Browser, page: Path) -> None:
    browser.show(page, width=1280)
    labels = browser.run(
        "return [...document.querySelectorAll('svg')]"
        ".map(s => s.closest('[role=img]')?.getAttribute('aria-label') || '');"
    )
    assert len(labels) == 2 * 4 + 12 and all(len(label) > 30 for label in labels)
    assert any("The training reward goes from" in label for label in labels)
    bare = browser.run(
        "return [...document.querySelectorAll('table')].filter(t => !t.querySelector('th[scope]')).length + "
        "[...document.querySelectorAll('section')].filter(s => !document.getElementById("
        "s.getAttribute('aria-labelledby'))).length + (document.documentElement.lang === 'en' ? 0 : 1);"
    )
    assert bare == 0
    levels = browser.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1]);")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))


@pytest.mark.long
@needs_browser
def test_everything_can_be_reached_by_keyboard(browser: Browser, page: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.show(page, width=1280)

    def press(*keys: str) -> None:
        ActionChains(browser.driver).send_keys(*keys).perform()

    focus = "const e = document.activeElement; return [e.tagName, e.textContent.trim().slice(0, 30), e.id];"
    press(Keys.TAB)
    assert browser.run(focus)[1] == "Skip to the numbers"
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle;")
    assert outline == "solid" and browser.run("return document.activeElement.getBoundingClientRect().left;") == 0
    order = []
    for _ in range(10):
        press(Keys.TAB)
        order.append(browser.run(focus))
    assert [name for tag, name, _ in order if tag == "A"][:3] == ["Overview", "Reward", "Time"]
    assert order[7][2] == "theme" and order[8][0] == "SUMMARY"
    browser.run("document.querySelectorAll('details.case')[1].querySelector('summary').focus(); return 0;")
    press(Keys.ENTER)
    assert browser.run("return document.querySelectorAll('details.case')[1].open;") is True
    # What scrolls by itself must take the focus, or its right half is lost without a mouse.
    assert browser.run("return document.querySelectorAll('.scroll:not([tabindex])').length;") == 0


@pytest.mark.long
@needs_browser
def test_buttons_switch_theme_and_unfold(browser: Browser, page: Path) -> None:
    browser.show(page, width=1280, theme="light")
    back = "return getComputedStyle(document.body).backgroundColor;"
    click = "document.querySelector('{}').click(); "
    start = browser.run(back)
    assert browser.run(click.format("#theme") + back) == start  # light, as the system is
    assert browser.run(click.format("#theme") + back) != start
    assert browser.run(click.format("#theme") + back) == start  # the system's again
    count = "return [...document.querySelectorAll('details.case')].filter(d => d.open).length;"
    assert browser.run(count) == 1
    assert browser.run(click.format("[data-fold=close]") + count) == 0
    everything = browser.run("return document.querySelectorAll('details.case').length;")
    assert browser.run(click.format("[data-fold=open]") + count) == everything > 5


@needs_browser
def test_the_page_prints(browser: Browser, page: Path) -> None:
    browser.show(page, width=1280, theme="dark", media="print")
    found = browser.run(
        "window.dispatchEvent(new Event('beforeprint')); return [getComputedStyle(document.body).backgroundColor, "
        "getComputedStyle(document.querySelector('.top')).display, "
        "[...document.querySelectorAll('details.case')].every(d => d.open)];"
    )
    assert found == ["rgb(255, 255, 255)", "none", True]
    pdf = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    assert len(pdf) > 50_000


@needs_browser
def test_a_run_without_steps_has_a_quiet_page(browser: Browser, tmp_path: Path) -> None:
    write_json(tmp_path / run_folder.SUMMARY, {"status": "failed", "error": "no store answers at …"})
    page = write_report(tmp_path)
    browser.show(page, width=390, theme="dark")
    shown = browser.run("return document.body.innerText;")
    for text in ("failed", "no store answers at …", "No training step was finished", "There is no curve"):
        assert text in shown
    assert browser.console() == [] and browser.run("return document.documentElement.scrollWidth;") == 390


# The command line, and the real files


@pytest.mark.long
def test_the_command_ends_with_the_file(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=3)
    command = [sys.executable, str(ROOT / "sql_agent" / "report.py"), "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"report: run/{REPORT}" and (folder / REPORT).is_file()
    wrong = subprocess.run([*command[:2], "nowhere"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert wrong.returncode == 2 and "no run folder" in wrong.stderr and wrong.stdout == ""


def policy(request: dict[str, Any]) -> Answer:
    """Asks the database; the model `new` answers well, any other gives up."""
    if request["messages"][-1]["role"] == "user":
        return tool_call_reply(("query_database_by_sql", {"sql": "SELECT med_name FROM drugs_info"}))
    return chat_reply("甲药的适应症：高血压。" if request["model"] == "new" else "不知道。")


@pytest.mark.long
def test_the_files_of_evaluate_py_are_understood(tmp_path: Path) -> None:
    """The made-up evaluation of the other tests has the same keys as the real one."""
    folder = make_run(tmp_path / "run", steps=2)
    row = {"question": "甲药的适应症是什么？", "answer": "甲药的适应症：高血压。", "task_type": "drug_field"}
    questions = [json.dumps({"id": f"q{i}", **row}, ensure_ascii=False) for i in range(3)]
    (tmp_path / "mine.jsonl").write_text("\n".join(questions), encoding="utf-8")
    with openai_server(policy) as server:
        targets = ["--before", f"old@{server.base_url}", "--after", f"new@{server.base_url}", "--samples", "2"]
        plan = ["--split", str(tmp_path / "mine.jsonl"), "--set", f"database.path={make_database(tmp_path)}"]
        command = [sys.executable, str(ROOT / "sql_agent" / "evaluate.py"), *targets, *plan]
        done = subprocess.run(
            [*command, "--out", str(folder / "evaluation")], capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 0, done.stderr
    found = headlines(read_run(folder))
    assert [(h.title, h.verdict, h.after.n) for h in found] == [("mine", "better", 3)] * 2
    assert [task.title for task in found[0].tasks] == ["drug_field"]
    page = write_report(folder).read_text(encoding="utf-8")
    for text in ("甲药的适应症：高血压。", "不知道。", "med_name", "improved"):
        assert text in page
