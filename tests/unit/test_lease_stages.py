"""What a worker does for the units of a lease."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgtrickle.dispatch.lease import failure_text
from pgtrickle.dispatch.lease_stages import (
    ChainStage,
    CycleStage,
    WaveStage,
    cycle_relations,
    lease_stages,
    refresh_stages,
    units_apart,
)
from pgtrickle.errors import DefinitionError
from pgtrickle.model.catalog import Mirror, RemoteSource, Source, StreamTable
from pgtrickle.model.work import CHAIN, CYCLIC, SINGLETON, Unit
from tests.unit.test_decide import stream_table

MIRROR = Mirror("7/1", "", "crm", "public", "t", 5, (1,), None)
EMPTY = replace(MIRROR, is_stored=False)
REMOTES = (RemoteSource(50, 8, EMPTY),)


def tables(*numbers: int, **changes: Any) -> list[StreamTable]:
    return [stream_table(number, **changes) for number in numbers]


def test_each_table_is_in_one_stage() -> None:
    units = [Unit(SINGLETON, ((1,),)), Unit(CHAIN, ((2, 3), (4,))), Unit(SINGLETON, ((5,),)), Unit(SINGLETON, ((6,),))]
    found = [
        *tables(1, lost_privilege="SELECT on x"),
        *tables(2, mirror=MIRROR),
        *tables(3, 4),
        *tables(5, keeps_no_session=True),
        *tables(6, status="SUSPENDED"),
    ]
    apart = units_apart(units, found)
    assert apart == (units[2],)
    stages = lease_stages(units, found, apart)
    assert stages.apart == (units[2],)
    assert [t.pgt_id for t in stages.stopped] == [1]
    assert [t.pgt_id for t in stages.mirrors] == [2]
    assert [t.pgt_id for t in stages.own] == [3, 4]
    assert [u.levels for u in stages.units] == [((1,),), ((3,), (4,)), ((6,),)]


def test_tables_that_stand_alone_move_in_one_wave_before_the_other_units() -> None:
    units = [Unit(CYCLIC, ((4, 5),)), Unit(CHAIN, ((2,), (3,))), Unit(SINGLETON, ((1,),)), Unit(SINGLETON, ((6,),))]
    ready = {t.pgt_id: t for t in tables(1, 3, 4, 5, 6)}
    assert refresh_stages(units, ready) == (WaveStage((1, 6)), CycleStage((ready[4], ready[5])), ChainStage(((3,),)))


def test_no_table_of_a_cycle_moves_without_the_others() -> None:
    unit = Unit(CYCLIC, ((1, 2),))
    assert refresh_stages([unit], {t.pgt_id: t for t in tables(1)}) == ()
    assert cycle_relations([unit], tables(1, 2)) == {1: frozenset({101, 102}), 2: frozenset({101, 102})}


def test_a_chain_of_which_nothing_is_ready_is_no_stage() -> None:
    assert refresh_stages([Unit(CHAIN, ((1,), (2,)))], {}) == ()


def test_tables_over_replicas_of_other_databases_are_refreshed_apart() -> None:
    units = [
        Unit(CHAIN, ((1,), (2,), (3,))),
        Unit(SINGLETON, ((4,),)),
        Unit(CYCLIC, ((5, 6),)),
        Unit(SINGLETON, ((8,),)),
    ]
    found = [
        *tables(1),
        *tables(2, remotes=REMOTES, sources=(Source(101, "STREAM_TABLE", frozenset({1})),)),
        *tables(3),
        *tables(4, remotes=REMOTES, sources=(Source(50, "STREAM_TABLE", frozenset({1})),)),
        *tables(5, remotes=REMOTES),
        *tables(6),
        *tables(8, mirror=EMPTY),
    ]
    stages = lease_stages(units, found, ())
    assert stages.mirrors == ()
    assert [t.pgt_id for t in stages.own] == [1, 3, 6]
    assert [u.levels for u in stages.units] == [((1,), (3,)), (), ()]  # not the cycle, which is incomplete
    assert refresh_stages(stages.units, {t.pgt_id: t for t in stages.own}) == (ChainStage(((1,), (3,))),)
    assert [t.pgt_id for t in stages.remote_last()] == [2]
    assert {t.pgt_id for t in stages.remote_first()} == {4, 5}


def test_why_a_unit_failed_quotes_no_value() -> None:
    quoting = DefinitionError('invalid input syntax for type integer: "secret" [22P02]', sqlstate="22P02")
    assert failure_text(quoting) == "PGT200: invalid text representation [22P02]"
    hinted = DefinitionError("a column is missing", hint="add it", sqlstate="42703")
    assert failure_text(hinted) == "PGT200: a column is missing (hint: add it)"
    assert failure_text(ValueError("odd")) == "ValueError: odd"
