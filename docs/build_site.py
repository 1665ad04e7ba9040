"""Build the pages as a site that is read with or without a server: `make site`.

The pages link to each other and to files across the project, and Zensical reads one folder. So all that README.md leads
to is laid out in a temporary folder as it lies here; docs/README.md has the order. Guarantees: a link or an anchor that
leads nowhere is an error (--strict); nothing is asked of the network. Not covered: links to other sites.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)")  # a file's, with or without an anchor
LAST = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md")


def links(page: str) -> list[str]:
    """The files that a page of the project links to, in its order, each once."""
    folder = (ROOT / page).parent
    linked = [(folder / link).resolve() for link in LINK.findall((ROOT / page).read_text(encoding="utf-8"))]
    return list(dict.fromkeys(str(path.relative_to(ROOT)) for path in linked if path.is_file()))


def reachable() -> set[str]:
    """All files that the links of README.md lead to, and theirs."""
    pages, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name not in pages:
            pages.add(name)
            waiting += links(name) if name.endswith(".md") else []
    return pages


def order() -> list[object]:
    recipes = [name for name in links("recipes/README.md") if name.startswith("recipes/") and name.endswith(".md")]
    pages: list[object] = [name for name in links("docs/README.md") if name.endswith(".md")]
    at = pages.index("recipes/README.md")
    pages[at] = {"Recipes": ["recipes/README.md", *recipes]}
    return ["README.md", {"中文": "README_zh.md"}, "docs/README.md", *pages, {"The project": [*LAST]}]


def main() -> None:
    """`build_site.py FOLDER`: the site, in the place of what FOLDER held. Exit status 1: a link is broken."""
    out = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        for name in reachable():
            place = Path(folder, "pages", name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place)
        settings = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
        config = Path(folder, "mkdocs.yml")
        config.write_text(f"{settings}site_dir: site\nnav: {json.dumps(order())}\n", encoding="utf-8")
        done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "-f", str(config)], check=False)
        if done.returncode:
            sys.exit(1)
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(Path(folder, "site"), out)
    print(f"site: {out / 'index.html'}")


if __name__ == "__main__":
    main()
