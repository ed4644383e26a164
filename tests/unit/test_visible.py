"""What viewers of the web UI without the token do not see."""

from __future__ import annotations

from pgtrickle.observe.state import BrokerSource, Check, DatabaseState, FleetState, Reader, Replica, Source
from pgtrickle.web.render import to_json
from pgtrickle.web.visible import visible_fleet

NUMBER = 73_918_462
TEXT = f"app: {NUMBER} changes are kept for it"
DATABASE = DatabaseState(
    "shop", "shop", "here", problem=TEXT,
    sources=(Source(1, "public", "orders", 0, 0, 1, 0, pending_rows=NUMBER,
                    alert=f"{NUMBER} changes are pending, more than max_buffer_rows (7): the next refresh is FULL",
                    read_by=(Reader(1, "subscriber", TEXT, NUMBER),)),
             Source(2, "public", "items", 0, 0, 1, 0, alert="1 of 3 capture triggers are missing")),
    checks=(*(Check(name, "WARN", TEXT) for name in ("capture", "readers", "origins", "broker", "subscribers")),
            Check("storage", "ERROR", "public.lost"), Check("readers", "OK", "no reader blocks trimming")),
    broker=(BrokerSource("crm", "public.accounts", NUMBER, 1, 2, 3, 4, 5, 6),),
    replicas=(Replica("public.orders", 1, "failed", NUMBER, NUMBER, 1, NUMBER, None, (), False, TEXT),),
)  # fmt: skip


def test_numbers_and_texts_are_hidden_and_structure_is_not() -> None:
    fleet = FleetState(1.0, databases=(DATABASE,))
    assert visible_fleet(fleet, trusted=True) is fleet
    hidden = to_json(visible_fleet(fleet, trusted=False))
    assert str(NUMBER) not in hidden
    (database,) = visible_fleet(fleet, trusted=False).databases
    assert database.replicas == ()
    assert [source.read_by for source in database.sources] == [(), ()]
    assert (database.broker[0].source, database.broker[0].scans_saved) == ("public.accounts", 3)
    assert database.sources[1].alert == "1 of 3 capture triggers are missing"
    assert [c.detail for c in database.checks if c.name == "storage" or c.severity == "OK"] == [
        "public.lost",
        "no reader blocks trimming",
    ]
    assert [c.severity for c in database.checks] == [c.severity for c in DATABASE.checks]
