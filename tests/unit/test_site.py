"""What the site is made of; `make site` builds it, with its links checked."""

from __future__ import annotations

import json

from foundation.modules import import_module
from sql_agent.config import ROOT


def test_the_site_has_every_page_in_the_order_of_the_index_and_what_they_show() -> None:
    site = import_module(str(ROOT / "docs" / "build_site.py"))
    laid_out, named = site.reachable(), json.dumps(site.order())
    pages = [str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md")]
    assert len(pages) > 20 and set(pages) <= laid_out
    assert all(f'"{page}"' in named for page in pages if not page.endswith(("_zh.md", "/README.md")))
    ordered = [named.index(f"docs/{page}") for page in ("00-install.md", "50-extending.md", "10-configuration.md")]
    assert ordered == sorted(ordered)
    assert {"docs/data-flow.svg", "docs/images/demo_reward.png", "recipes/demo_cpu/README.md"} <= laid_out
