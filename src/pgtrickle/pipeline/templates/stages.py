"""The stages of a refresh that the pipeline executes, as values: what reads, what nets, what loads. The worker executes
them, and `explain` prints them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgtrickle.pipeline.delta_layout import DeltaLayout
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.templates.template import FoldTemplate, Template


@dataclass(frozen=True, slots=True)
class ReadStage:
    """PostgreSQL gives the signed rows that changes of the sources bring, by one statement."""

    template: Template

    @property
    def relids(self) -> frozenset[int]:
        """The sources whose changes it reads."""
        return self.template.relids

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        return self.template.delta_statement(changed)


@dataclass(frozen=True, slots=True)
class NetStage:
    """Spark nets the signed rows by key, and gives each key its identity."""

    layout: DeltaLayout
    is_by_group: bool
    is_of_mirror: bool = False  # few rows of a mirror are netted, and all of them identified, by the apply

    def describe(self) -> str:
        if self.is_of_mirror:
            return "large loads, and net changes per row where they are many; identity is by the database"
        if self.is_by_group:
            return "net changes per group by key, exact sums, identity (xxhash64 of the key)"
        return "net changes per row, identity (xxhash64 of the row)"


@dataclass(frozen=True, slots=True)
class LoadStage:
    """PostgreSQL gives the whole content, or the whole state beside it, by one statement."""

    statement: str


@dataclass(frozen=True, slots=True)
class ChangeStages:
    """What a differential refresh does before it writes."""

    read: ReadStage
    net: NetStage


@dataclass(frozen=True, slots=True)
class RefreshStages:
    """`changes` is None for a table that can only be computed anew."""

    load: LoadStage
    changes: ChangeStages | None = None


def refresh_stages(template: Template, *, is_mirror: bool = False) -> RefreshStages:
    net = NetStage(template.slots, isinstance(template, FoldTemplate), is_mirror)
    return RefreshStages(LoadStage(template.load_statement()), ChangeStages(ReadStage(template), net))
