"""A real Chromium for tests, without a network: what a page asks for, prints and shows is what a reader's browser does.

Needs Debian's packages chromium and chromium-driver; `missing()` says so where they are not installed.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

BROWSERS, DRIVER = ("chromium", "chromium-browser", "google-chrome"), "chromedriver"
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps"),
    *("--disable-features=OptimizationHints,MediaRouter", "--hide-scrollbars"),
]
SETTLE_S = 0.4
FOUND = "return [...document.querySelectorAll('{}')].map(one => one.innerText);"
Theme = Literal["light", "dark"]


def browser_path() -> str:
    """The browser's program; empty without one."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), "")


def missing() -> str:
    """What a browser test lacks on this machine, and the remedy; empty for nothing."""
    if browser_path() and shutil.which(DRIVER):
        return ""
    return "no browser: apt-get install chromium chromium-driver"


@dataclass
class Browser:
    """One browser window."""

    driver: Any

    def show(
        self, page: Path | str, *, width: int, height: int = 900, theme: Theme = "light", media: str = "screen"
    ) -> None:
        """Load a file or an address in a window of that many CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        # What an earlier page remembered is not this page's: file:// is one origin.
        self.driver.execute_script("try { localStorage.clear(); } catch (error) { }")
        self.driver.get("about:blank")  # a page that asks again and again stops
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page if isinstance(page, str) else page.resolve().as_uri())

    def run(self, script: str) -> Any:
        """The value of a script's `return`, after what is pending has had its time."""
        wait = f"const done = arguments[0]; setTimeout(() => done((() => {{ {script} }})()), {SETTLE_S * 1000:.0f});"
        return self.driver.execute_async_script(wait)

    def console(self) -> list[str]:
        """What the page printed or the browser complained of since `show`."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What was asked for since `show`. data: asks nobody; chrome: is the browser's first tab, closed to pages."""
        found: dict[str, str] = {}
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            event = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                found[event["requestId"]] = event["request"]["url"]
            elif message["method"] == "Network.loadingFailed" and event.get("blockedReason") == "csp":
                del found[event["requestId"]]  # never left the browser; the console has a line on it
        return [url for url in found.values() if not url.startswith(("data:", "chrome://"))]

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.run("return [document.documentElement.scrollWidth, document.documentElement.scrollHeight];")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        shot = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        path.write_bytes(base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]))


@dataclass
class Reader:
    """Who reads a page and types into it. Waits, for 30 s, until what is named is there."""

    browser: Browser

    def types(self, where: str, text: str) -> None:
        self.sees(where, "")
        self.browser.driver.find_element("css selector", where).send_keys(text + "\ue007")

    def clicks(self, what: str) -> None:
        self.browser.driver.find_element("css selector", what).click()

    def sees(self, what: str, text: str) -> None:
        """Wait for it."""
        self.until(
            lambda driver: any(text in one for one in driver.execute_script(FOUND.format(what))), f"{what}: no {text!r}"
        )

    def until(self, seen: Callable[[Any], bool], else_: str) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.browser.driver, 30).until(seen, else_)


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser with a profile folder of its own, and end it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = browser_path()
    for flag in [*FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which(DRIVER)))
    driver.set_script_timeout(60)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
