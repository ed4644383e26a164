import pytest

from pgtrickle.define.widen import is_wider

VARCHAR, CHAR, NUMERIC, INTERVAL, TIMESTAMP = 1043, 1042, 1700, 1186, 1114


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale) + 4


@pytest.mark.parametrize(
    ("typid", "old", "new", "expected"),
    [
        (VARCHAR, 9, 24, True),
        (VARCHAR, 9, -1, True),
        (VARCHAR, 24, 9, False),
        (VARCHAR, -1, 24, False),
        (CHAR, 9, 24, False),  # longer values are padded: other texts
        (NUMERIC, numeric(8, 2), numeric(12, 2), True),
        (NUMERIC, numeric(8, 2), -1, True),
        (NUMERIC, numeric(8, 2), numeric(12, 3), False),  # 1.00 becomes 1.000
        (NUMERIC, numeric(8, 2), numeric(6, 2), False),
        (NUMERIC, -1, numeric(6, 2), False),
        (TIMESTAMP, 0, 6, True),
        (TIMESTAMP, 6, 0, False),
        (INTERVAL, 1, 2, False),
        (23, -1, -1, False),
    ],
)
def test_wider_modifiers(typid: int, old: int, new: int, expected: bool) -> None:
    assert is_wider(typid, old, new) is expected
