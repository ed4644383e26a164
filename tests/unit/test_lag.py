"""Who is behind is named when it begins, and again only after a while."""

from __future__ import annotations

from pgtrickle.publish.lag import REPEAT_SECONDS, Laggard, LagWatch

ONE = Laggard("pull", "public.s", "one", 10)
SLOT = Laggard("slot", None, "one", 20)


def test_each_is_named_once_and_then_now_and_then() -> None:
    watch = LagWatch()
    assert watch.due_reports([ONE], 0.0) == [ONE]
    assert watch.due_reports([ONE, SLOT], 1.0) == [SLOT]
    assert watch.due_reports([ONE, SLOT], REPEAT_SECONDS - 1) == []
    assert watch.due_reports([ONE, SLOT], REPEAT_SECONDS) == [ONE]


def test_who_has_caught_up_is_named_when_it_falls_behind_again() -> None:
    watch = LagWatch()
    assert watch.due_reports([ONE], 0.0) == [ONE]
    assert watch.due_reports([], 1.0) == []
    assert watch.due_reports([ONE], 2.0) == [ONE]


def test_a_slot_is_called_one() -> None:
    assert (ONE.title, SLOT.title) == ("subscriber one", "replication slot one")
