"""Hooks of MkDocs: pages at the root of the repository become pages of the site, and decisions get a list."""

import os
import posixpath
import re

from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\]\((?!\w+:)([^)#]*)(#[^)]*)?\)")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def target(link, folder):
    """`folder`: of the page, seen from the root of the repository. The same link, seen from the root of the site."""
    path = posixpath.normpath(posixpath.join(folder, link)) if link else ""
    if path == "docs/adr":
        path = "docs/adr/index.md"
    here = folder.removeprefix("docs").strip("/")
    return posixpath.relpath(path.removeprefix("docs/"), here or ".") if path else ""


def relink(text, folder):
    return LINK.sub(lambda found: "](" + target(found[1], folder) + (found[2] or "") + ")", text)


def on_files(files, config):
    for name in PAGES:
        files.append(File.generated(config, name, content=relink(read(name), "")))
    names = sorted(name for name in os.listdir(os.path.join(ROOT, "docs", "adr")) if re.match(r"\d{4}-", name))
    titles = [read("docs", "adr", name).splitlines()[0].removeprefix("# ") for name in names]
    lines = ["# Decisions", "", *("* [{}]({})".format(title, name) for title, name in zip(titles, names, strict=True))]
    files.append(File.generated(config, "adr/index.md", content="\n".join(lines) + "\n"))
    return files


def on_page_markdown(markdown, page, **_):
    if page.file.generated_by:
        return markdown
    return relink(markdown, posixpath.join("docs", posixpath.dirname(page.file.src_uri)))
