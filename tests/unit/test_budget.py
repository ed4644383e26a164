"""The worker budget: it adds up, follows the settings, and says when connections do not suffice."""

from __future__ import annotations

import pytest

from pgtrickle.dispatch.quota import WORKER_CONNECTIONS
from pgtrickle.maintain.budget import (
    BROKER_CONNECTIONS,
    LAUNCHER_CONNECTIONS,
    LOAD_CONNECTIONS,
    LOOK_CONNECTIONS,
    ORIGIN_CONNECTIONS,
    SCHEDULER_CONNECTIONS,
    SCHEDULER_MIB,
    WORKER_MIB,
    Budget,
    ConnectionRoom,
    Cost,
    budget,
    shortage,
)
from pgtrickle.settings import Settings


def names(found: Budget) -> list[str]:
    return [part.name for part in found.parts]


def fleet(count: int, settings: Settings | None = None, own: Settings | None = None) -> Budget:
    return budget(settings or Settings(), {f"d{n}": own or Settings() for n in range(count)}, load_parts=8)


def test_the_parts_add_up_to_the_total() -> None:
    found = fleet(3)
    assert names(found)[:6] == ["launcher", "fork server", "pipeline", "spark", "schedulers", "workers"]
    assert names(found)[6:] == ["workers waiting for Spark", "bulk load"]
    assert found.total == sum((part.cost for part in found.parts), Cost())
    assert (
        found.total.connections
        == LAUNCHER_CONNECTIONS + 3 * (SCHEDULER_CONNECTIONS + 4 * WORKER_CONNECTIONS) + 8 * LOAD_CONNECTIONS
    )


def test_another_database_costs_one_small_process() -> None:
    more, less = fleet(11).total, fleet(10).total
    assert (more.processes - less.processes, more.mib - less.mib) == (1, SCHEDULER_MIB)
    assert more.connections - less.connections == SCHEDULER_CONNECTIONS


def test_the_broker_is_counted_when_it_is_on() -> None:
    found = fleet(5, Settings(enable_refresh_broker=True))
    assert "broker" in names(found)
    assert found.total.connections - fleet(5).total.connections == 5 * BROKER_CONNECTIONS


def test_sessions_at_databases_that_are_mirrored_are_counted() -> None:
    databases = {f"d{n}": Settings() for n in range(3)}
    found = budget(Settings(), databases, load_parts=8, mirrored=[{"a", "b"}, {"a"}, set()])
    more = found.total.connections - fleet(3).total.connections
    assert more == 3 * LOOK_CONNECTIONS + 2 * ORIGIN_CONNECTIONS
    assert found.total.processes == fleet(3).total.processes


def test_a_spark_elsewhere_costs_nothing_here() -> None:
    found = fleet(1, Settings(spark_remote="sc://there"))
    assert "spark" not in names(found)
    assert found.total.mib < fleet(1).total.mib - 2048
    assert found.total.connections == fleet(1).total.connections  # its executors connect all the same


def test_the_heap_of_spark_is_part_of_it() -> None:
    assert fleet(1, Settings(spark_driver_memory_mb=4096)).total.mib - fleet(1).total.mib == 2048


@pytest.mark.parametrize(("count", "expected", "schedulers"), [(0, 0, 1), (2, 0, 2), (2, 10, 10), (12, 10, 12)])
def test_room_is_made_for_the_databases_that_are_expected(count: int, expected: int, schedulers: int) -> None:
    found = fleet(count, Settings(max_databases=expected))
    assert {part.name: part.count for part in found.parts}["schedulers"] == schedulers
    assert len(found.shares) == count


@pytest.mark.parametrize(
    ("own", "workers"),
    [
        (Settings(), 4),
        (Settings(max_concurrent_refreshes=2), 2),
        (Settings(max_concurrent_refreshes=32), 16),
        (Settings(per_database_worker_quota=1), 2),
        (Settings(per_database_worker_quota=8), 12),
        (Settings(per_database_worker_quota=64), 16),
        (Settings(parallel_refresh_mode="off"), 1),
    ],
)
def test_a_database_has_as_many_workers_as_quota_and_fleet_allow(own: Settings, workers: int) -> None:
    (share,) = fleet(1, Settings(max_dynamic_refresh_workers=16), own).shares
    assert share.workers == workers
    assert share.cost == Cost(
        1, SCHEDULER_CONNECTIONS + workers * WORKER_CONNECTIONS, SCHEDULER_MIB + workers * WORKER_MIB
    )


def test_shortage_says_how_many_connections_are_missing() -> None:
    room = ConnectionRoom(max_connections=100, reserved=3, others=57)
    assert room.ours == 40
    assert shortage(Cost(connections=40), room) is None
    assert "raise max_connections by 2" in str(shortage(Cost(connections=42), room))
    assert ConnectionRoom(max_connections=10, reserved=3, others=20).ours == 0
