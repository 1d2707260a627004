"""Proportions of correct answers: known confidence intervals and p-values, and rejected arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pumice.base.errors import InputError
from pumice.testing import accuracy, mcnemar, wilson


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_intervals_are_those_of_the_literature(right: int, count: int, low: float, high: float) -> None:
    assert wilson(right, count) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.97])
@pytest.mark.parametrize("count", [10, 50])
def test_an_interval_holds_the_share_about_as_often_as_it_says(share: float, count: int) -> None:
    chance = sum(
        math.comb(count, k) * share**k * (1 - share) ** (count - k)
        for k in range(count + 1)
        if wilson(k, count, 0.9).low <= share <= wilson(k, count, 0.9).high
    )
    assert 0.85 < chance < 0.985


def test_few_pairs_are_compared_exactly() -> None:
    assert mcnemar(1, 8) == (1, 8, pytest.approx(2 * 10 / 512), True)
    assert mcnemar(3, 3).p_value == 1
    assert mcnemar(0, 0).p_value == 1
    assert mcnemar(24, 0).exact
    assert not mcnemar(25, 0).exact


def test_many_pairs_are_compared_by_chi_square() -> None:
    assert mcnemar(60, 40).p_value == pytest.approx(0.05743, abs=1e-4)  # (19^2) / 100 = 3.61
    exact = 2 * sum(math.comb(100, k) for k in range(41)) / 2**100
    assert mcnemar(60, 40).p_value == pytest.approx(exact, rel=0.02)
    assert mcnemar(1000, 1001).p_value == 1


def test_scores_without_a_largest_one_are_no_answer() -> None:
    labels = [0] * 50
    found = accuracy(np.full((50, 3), np.nan), labels)
    assert (found.right, found.unanswered, found.value) == (0, 50, 0)
    assert "50 have NaN among their scores" in str(found)
    scores = np.float32([[9, 0], [np.nan, 0], [0, np.nan], [0, 9]])
    found = accuracy(scores, [0, 0, 1, 0], reference=np.float16(scores))
    assert (found.right, found.unanswered) == (1, 2)
    assert found.comparison == mcnemar(0, 0)
    with pytest.raises(InputError, match="labels: expected a class in each row, given NaN in row 1"):
        accuracy(scores, scores)


def test_answers_may_be_classes_or_scores() -> None:
    labels = np.array([0, 1, 2, 1])
    scores = np.float32([[9, 0, 0], [0, 9, 0], [9, 0, 8], [0, 9, 0]])
    found = accuracy(scores, labels, reference=[0, 0, 2, 1])
    assert (found.right, found.total, found.value) == (3, 4, 0.75)
    assert found.interval == wilson(3, 4)
    assert found.comparison == mcnemar(1, 1)
    assert str(found) == (
        "75.00% of 4 (95% interval 30.06% to 95.44%); right alone: 1 against 1, p = 1 (McNemar, exact)"
    )
    assert accuracy(labels, labels).comparison is None


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (([0.5], [1]), {}, "answers: expected integers"),
        (([0, 1], [1]), {}, "answers: expected 1 answers, given 2"),
        (([], []), {}, "labels: expected integers"),
        ((np.zeros(0, int), np.zeros(0, int)), {}, "labels: expected some answers, given 0"),
        (([1], [1]), {"reference": [1, 2]}, "reference: expected 1 answers"),
        (([1], [1]), {"confidence": 1.0}, "confidence: expected a number between 0 and 1"),
    ],
)
def test_what_is_no_answer_is_rejected(given: tuple[object, object], options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        accuracy(*given, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="from 0 to `count`"):
        wilson(2, 1)
    with pytest.raises(InputError, match="non-negative counts"):
        mcnemar(-1, 1)
