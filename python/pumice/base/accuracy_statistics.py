"""Statistics of accuracies: confidence intervals, and a test of whether two of them differ."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

from .errors import InputError

_MAX_EXACT_PAIRS = (
    25  # with fewer discordant pairs McNemar's test is exact, otherwise it uses the chi-square approximation
)


class Interval(NamedTuple):
    """The bounds of a confidence interval, between 0 and 1."""

    low: float
    high: float


def wilson(right: int, count: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a proportion.

    With p = right / count and z the normal quantile of (1 + confidence) / 2, the bounds are
        (p + z^2 / (2 n) -+ z sqrt(p (1 - p) / n + z^2 / (4 n^2))) / (1 + z^2 / n),  n = count
    E. B. Wilson, Probable inference, the law of succession, and statistical inference, J. Am. Stat. Assoc. 22 (1927) 209-212. Unlike p -+
    z sqrt(p (1 - p) / n), it is meaningful for p = 0, p = 1 and small counts. Raise InputError unless 0 <= right <= count, count >= 1 and 0
    < confidence < 1.
    """
    if not 0 <= right <= count or count < 1:
        raise InputError(
            f"wilson: expected from 0 to `count` right answers and a count of at least 1, given {right} of {count}"
        )
    if not 0 < confidence < 1:
        raise InputError(f"wilson: confidence: expected a number between 0 and 1, given {confidence!r}")
    proportion, z = right / count, NormalDist().inv_cdf((1 + confidence) / 2)
    center = proportion + z * z / (2 * count)
    half_width = z * math.sqrt(proportion * (1 - proportion) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    low = 0.0 if right == 0 else (center - half_width) / scale
    high = 1.0 if right == count else (center + half_width) / scale
    return Interval(low, high)


class McNemar(NamedTuple):
    """The result of McNemar's test of two classifiers on the same samples.

    first_only, second_only: number of samples that only the first or only the second classifies correctly. exact: whether the p-value comes
    from the binomial distribution rather than the chi-square approximation.
    """

    first_only: int
    second_only: int
    p_value: float
    exact: bool

    def __str__(self) -> str:
        test = "exact" if self.exact else "chi-square"
        return f"right alone: {self.first_only} against {self.second_only}, p = {self.p_value:.3g} (McNemar, {test})"


def mcnemar(first_only: int, second_only: int) -> McNemar:
    """Test whether two classifiers are equally accurate, from the samples that only one classifies correctly (discordant pairs).

    Under the null hypothesis, each of the n = b + c pairs favours either with probability 1/2. Below 25 pairs the p-value is exact and
    two-sided, min(1, 2 sum of C(n, k) / 2^n over k from 0 to min(b, c)); else it is that of (|b - c| - 1)^2 / (b + c) in the chi-square
    distribution with one degree of freedom, erfc(sqrt(x / 2)).

    Q. McNemar, Note on the sampling error of the difference between correlated proportions or percentages, Psychometrika 12 (1947)
    153-157; continuity correction: A. L. Edwards, Psychometrika 13 (1948) 185-187. Raise InputError for negative counts.
    """
    if first_only < 0 or second_only < 0:
        raise InputError(f"mcnemar: expected non-negative counts, given {first_only} and {second_only}")
    pairs, fewer = first_only + second_only, min(first_only, second_only)
    if pairs < _MAX_EXACT_PAIRS:
        tail = sum(math.comb(pairs, k) for k in range(fewer + 1)) / 2**pairs
        return McNemar(first_only, second_only, min(1.0, 2 * tail), True)
    statistic = max(abs(first_only - second_only) - 1, 0) ** 2 / pairs
    return McNemar(first_only, second_only, math.erfc(math.sqrt(statistic / 2)), False)
