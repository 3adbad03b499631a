from __future__ import annotations

import pytest

from bench.percentiles import median, percentile


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(1, 1), (5, 1), (10, 1), (11, 2), (50, 5), (90, 9), (91, 10), (99, 10), (100, 10)],
)
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([7, 1, 10, 4, 9, 2, 8, 3, 6, 5], percent) == expected


def test_p99_of_300_is_the_fourth_highest() -> None:
    assert percentile(range(1, 301), 99) == 297


def test_the_median_of_an_even_sample_is_one_of_its_values() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.0


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_what_has_no_percentile(values: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match=r"percent"):
        percentile(values, percent)
