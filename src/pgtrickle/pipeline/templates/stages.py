"""The stages of a refresh that the pipeline executes, as values: read, net, load. The worker executes them, and
`explain` prints them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgtrickle.pipeline.delta_layout import NETTED_HERE_ROWS, DeltaLayout
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.templates.load_query import LoadQuery
from pgtrickle.pipeline.templates.template import FoldTemplate, Template


@dataclass(frozen=True, slots=True)
class ReadStage:
    """One statement of PostgreSQL returns the signed rows of the delta."""

    template: Template

    def delta_statement(self, changed: Mapping[int, ChangedSource]) -> str:
        return self.template.delta_statement(changed)


@dataclass(frozen=True, slots=True)
class NetStage:
    """The signed rows are netted by key: few by the worker, many by Spark."""

    layout: DeltaLayout
    is_by_group: bool
    is_of_mirror: bool = False  # the apply statement nets few rows of a mirror

    def describe(self) -> str:
        if self.is_of_mirror:
            return "large loads, and net changes per row where they are many"
        what = "net changes per group by key, exact sums" if self.is_by_group else "net changes per row"
        return f"{what}, for more than {NETTED_HERE_ROWS:,} delta rows (the worker nets fewer)"


@dataclass(frozen=True, slots=True)
class LoadStage:
    """One statement of PostgreSQL returns the whole content or state.

    `statement` returns rows as texts, for sessions that send them: of an author, or at a mirror's origin. `query`
    returns typed columns, for the server itself and for other engines; None: only texts are possible.
    """

    statement: str
    query: LoadQuery | None = None


@dataclass(frozen=True, slots=True)
class ChangeStages:
    """The stages of a differential refresh before it writes."""

    read: ReadStage
    net: NetStage


@dataclass(frozen=True, slots=True)
class RefreshStages:
    """`changes` is None for a table in mode FULL."""

    load: LoadStage
    changes: ChangeStages | None = None


def refresh_stages(template: Template, *, is_mirror: bool = False) -> RefreshStages:
    net = NetStage(template.slots, isinstance(template, FoldTemplate), is_mirror)
    return RefreshStages(
        LoadStage(template.load_statement(), template.load_query()), ChangeStages(ReadStage(template), net)
    )
