"""`make docs`: writes the reference pages that are made from the code, so that they cannot disagree with it."""

from __future__ import annotations

from pathlib import Path

from pgtrickle import errors
from pgtrickle.settings import ALIASES, PROFILES, describe

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def cell(value: object) -> str:
    if value is True or value is False:
        return "on" if value else "off"
    return "" if value in ("", {}) else f"`{value}`"


def settings_page() -> str:
    rows = [
        f"| `{row['name']}` | {cell(dict(row['default']) if hasattr(row['default'], 'items') else row['default'])} "
        f"| {row['range']} | {row['scope']} | {row['doc']} |"
        for row in describe()
    ]
    head = (
        "# Settings\n\nA flag (`--set name=value`) wins over the profile (`--profile`), that over the environment "
        "(`PGTRICKLE_NAME`), that over the TOML file (`--config`), that over what the database says "
        "(`ALTER DATABASE ... SET pg_trickle.name`, `pgtrickle.set_option()`), that over the default. "
        "`pgtrickle config` shows each value and where it comes from; [how to](../howto/settings.md).\n\n"
        "Of: *database*, each for itself, at any time; *fleet*, read when `pgtrickle run` starts, from the database "
        "that `--server` names; *host*, the same, and not by `set_option()`.\n\n"
        f"Other names: {', '.join(f'`{alias}` for `{name}`' for alias, name in ALIASES.items())}.\n\n"
    )
    table = "| setting | default | range | of | meaning |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    return head + table + "\n## Profiles\n\n" + profiles_table()


def profiles_table() -> str:
    names = [row["name"] for row in describe() if any(row["name"] in values for values in PROFILES.values())]
    lines = [f"| setting | {' | '.join(PROFILES)} |", "|---" * (1 + len(PROFILES)) + "|"]
    lines += [f"| `{name}` | {' | '.join(values.get(name, '') for values in PROFILES.values())} |" for name in names]
    return "\n".join(lines) + "\n"


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
