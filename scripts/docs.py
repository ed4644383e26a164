"""`make docs`: writes the reference pages that are made from the code, so that they cannot disagree with it."""

from __future__ import annotations

from pathlib import Path

from pgtrickle import errors
from pgtrickle.settings import describe

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def cell(value: object) -> str:
    if value is True or value is False:
        return "on" if value else "off"
    return "" if value in ("", {}) else f"`{value}`"


def settings_page() -> str:
    rows = [
        f"| `{row['name']}` | {cell(dict(row['default']) if hasattr(row['default'], 'items') else row['default'])} "
        f"| {row['range']} | {row['doc']} |"
        for row in describe()
    ]
    head = (
        "# Settings\n\nA flag (`--set name=value`) wins over the environment (`PGTRICKLE_NAME`), that over the "
        "TOML file (`--config`), that over the database's own setting (`ALTER DATABASE ... SET pg_trickle.name`), "
        "that over the default. `pgtrickle config` shows each value and where it comes from.\n\n"
        "PostgreSQL lets only a superuser store a `pg_trickle.` setting in a database or role; from version 15 on it "
        'can be granted: `GRANT SET ON PARAMETER "pg_trickle.name" TO role`.\n\n'
    )
    return head + "| setting | default | range | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def errors_page() -> str:
    kinds = [errors.PgtrickleError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    rows = [f"| {kind.code} | {kind.__name__} | {(kind.__doc__ or '').splitlines()[0]} |" for kind in kinds]
    return "# Errors\n\n| code | name | who acts |\n|---|---|---|\n" + "\n".join(sorted(rows)) + "\n"


def main() -> None:
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in {"settings.md": settings_page(), "errors.md": errors_page()}.items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        print(f"docs/reference/{name}")


if __name__ == "__main__":
    main()
