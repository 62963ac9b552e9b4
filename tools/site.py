"""What the documentation site needs beyond docs/: pages and files of the repository that docs/ links to.

A hook of mkdocs (mkdocs.yml names it). Owns which files outside of docs/ are published, and where. Must stay true: a
link works both in the repository, as a path of a file, and on the site; nobody writes a link twice. A page that nav
does not name is listed at its end, so that a new page is never lost. What a page says is left to the page.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
_ORIGINS = {site: origin for origin, site in PAGES.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for origin, site in PAGES.items():
        files.append(File.generated(config, site, content=(ROOT / origin).read_text(encoding="utf-8")))
    for path in sorted(set(_linked(files))):
        files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    unlisted = sorted({each.src_uri for each in files.documentation_pages()} - set(_listed(config.nav)))
    if unlisted and config.nav is not None:
        config.nav.append({"More": unlisted})
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    site = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        path = _repository_path(site, link["path"])
        target = _site_path(path) if path is not None else None
        if target is None:
            return link[0]
        return posixpath.relpath(target, posixpath.dirname(site) or ".") + (link["anchor"] or "")

    return _LINK.sub(moved, markdown)


def _linked(files: Files) -> Iterator[str]:
    """Files of the repository, outside of docs/, that pages link to."""
    for each in files.documentation_pages():
        for link in _LINK.finditer(each.content_string):
            path = _repository_path(each.src_uri, link["path"])
            target = _site_path(path) if path is not None else None
            if path is not None and target == f"files/{path}":
                yield path


def _repository_path(site: str, link: str) -> str | None:
    """Where a link of a page leads to, as a path of the repository; None: out of it, or nowhere."""
    origin = _ORIGINS.get(site, f"docs/{site}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    return path if not path.startswith("..") and (ROOT / path).is_file() else None


def _site_path(path: str) -> str:
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"


def _listed(nav: Any) -> Iterator[str]:
    """Every page that nav names, at any depth."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _listed(part)
