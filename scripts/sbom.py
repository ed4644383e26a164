"""`make dist`: what a user gets with pgtrickle, as a bill of materials (CycloneDX) and as licences; tested versions.

Reads the metadata of what is installed in .venv, which constraints.txt pins: run it there.
"""

from __future__ import annotations

import argparse
import json
import re
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LICENCE_FILE = re.compile(r"^(LICEN[CS]E|COPYING|NOTICE)", re.IGNORECASE)
# Of packages whose metadata only says "see the file".
KNOWN = {"BSD License": "BSD-3-Clause", "MIT License": "MIT", "Apache Software License": "Apache-2.0"}


def pinned() -> dict[str, str]:
    """The versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in found}


def needed(name: str = "pgtrickle", extras: frozenset[str] = frozenset()) -> dict[str, Distribution]:
    """A package without development tools, and everything that it needs, by name."""
    found: dict[str, Distribution] = {}
    waiting, done = [(name, extras)], set()
    while waiting:
        here, wanted = waiting.pop()
        if (here, wanted) in done:
            continue
        done.add((here, wanted))
        found[here] = distribution(here)
        for text in found[here].requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return dict(sorted(found.items()))


def licence(package: Distribution) -> str:
    """As the package declares it: an SPDX expression, else its classifiers, else its field."""
    data = package.metadata
    if data.get("License-Expression"):
        return str(data["License-Expression"])
    classified = [c.rpartition(" :: ")[2] for c in data.get_all("Classifier") or () if c.startswith("License :: OSI")]
    if classified:
        return " AND ".join(KNOWN.get(name, name) for name in classified)
    return " ".join(str(data.get("License") or "").split()[:6]) or "not declared"


def licence_texts(package: Distribution) -> list[str]:
    files = [file for file in package.files or () if LICENCE_FILE.match(file.name) and ".dist-info" in str(file)]
    return [file.read_binary().decode("utf-8", "replace") for file in files]


def component(package: Distribution, kind: str = "library") -> dict[str, Any]:
    name = canonicalize_name(package.metadata["Name"])
    link = f"pkg:pypi/{name}@{package.version}"
    return {
        "type": kind,
        "bom-ref": link,
        "name": name,
        "version": package.version,
        "description": package.metadata.get("Summary") or "",
        "purl": link,
        "licenses": [{"license": {"name": licence(package)}}],
    }


def bill_of_materials() -> dict[str, Any]:
    packages = needed()
    own = packages.pop("pgtrickle")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(own, "application")},
        "components": [component(package) for package in packages.values()],
    }


def licences_page() -> str:
    packages = needed()
    packages.pop("pgtrickle")
    parts = ["# Licences of what pgtrickle uses\n\n| package | version | licence |\n|---|---|---|\n"]
    parts += [f"| {name} | {package.version} | {licence(package)} |\n" for name, package in packages.items()]
    for name, package in packages.items():
        for text in licence_texts(package):
            parts.append(f"\n## {name}\n\n```\n{text.strip().replace('```', '')}\n```\n")
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    version = distribution("pgtrickle").version
    wrong = {n: p.version for n, p in needed().items() if n != "pgtrickle" and pinned().get(n) != p.version}
    if wrong:
        raise SystemExit(f"sbom: these installed versions are not those of constraints.txt: {wrong}; run make setup")
    for name, text in (
        (f"pgtrickle-{version}.cdx.json", json.dumps(bill_of_materials(), indent=1) + "\n"),
        (f"pgtrickle-{version}-licences.md", licences_page()),
    ):
        (out / name).write_text(text, encoding="utf-8")
        print(out / name)


if __name__ == "__main__":
    main()
