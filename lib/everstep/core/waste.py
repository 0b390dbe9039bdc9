"""The arithmetic of checkpoints: what failures cost, and how often to save.

Symbols of the literature and the names here: M ``mtbf_s`` (mean time between failures of the whole
job), T ``interval_s`` (useful work between two saves), C ``stall_s`` (training stands still while
it saves), R ``restart_s`` (restart; detection is added to it where it is not an argument of its
own), L ``durable_after_s`` (from the start of a save until a restart may use it). All in seconds,
as floats; a waste is the share of wall time that is not useful work, 0 to 1.

First-order models (Young) are what people compare with; the exact ones assume failures as a Poisson
process that also strikes stalls and restarts, and never leave 0 to 1. The Monte Carlo check of the
models draws random numbers, which core does not: it is ``everstep.planner.monte_carlo``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

HALLEY_STEPS_MAX: Final = 50  # converges cubically: 4 to 6 steps are usual, 20 next to -1/e
HALLEY_TOLERANCE: Final = 1e-15  # a few units in the last place of W


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level of saves: host memory, or the object store.

    ``failures_per_s`` counts the failures that restart from this tier, ``interval_s`` is useful
    work between two of its saves.
    """

    failures_per_s: float
    stall_s: float
    durable_after_s: float
    restart_s: float
    interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Where wall time goes, as shares of 1; they sum to 1."""

    useful: float
    stall: float
    lost_work: float
    detection: float
    restart: float

    @property
    def waste(self) -> float:
        """Everything that is not useful."""
        return self.stall + self.lost_work + self.detection + self.restart


def job_mtbf_hours(chips: int, chip_mtbf_hours: float) -> float:
    """Return the job's mean time between failures: any chip stops the whole synchronous job.

    Args:
        chips: of the job; they fail independently of one another.
        chip_mtbf_hours: of one chip with its share of host, network and memory [h].

    Returns:
        ``chip_mtbf_hours / chips`` [h]. Source: rates of independent Poisson processes add.
    """
    return chip_mtbf_hours / chips


def optimal_interval(stall_s: float, mtbf_s: float) -> float:
    """Return Young's interval ``sqrt(2 C M)`` [s], which minimises ``expected_waste``.

    Source: J. W. Young, CACM 17(9), 1974, 10.1145/361147.361115.
    """
    return math.sqrt(2 * stall_s * mtbf_s)


def expected_waste(interval_s: float, stall_s: float, mtbf_s: float, restart_s: float) -> float:
    """Return the first-order waste ``C/T + (T/2 + R)/M``; above 1 where failures are too frequent.

    Checkpoint stalls, half an interval of lost work a failure, and restarts.
    Source: Young 1974; slightly pessimistic where the waste is large.
    """
    return stall_s / interval_s + (interval_s / 2 + restart_s) / mtbf_s


def daly_interval(stall_s: float, mtbf_s: float) -> float:
    """Return Daly's higher-order interval [s]; ``M`` where a save takes longer than ``2 M``.

    ``sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C``.
    Source: J. T. Daly, FGCS 22(3), 2006, 10.1016/j.future.2004.11.016.
    """
    if stall_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = stall_s / (2 * mtbf_s)
    return optimal_interval(stall_s, mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_s


def lambert_w0(x: float) -> float:
    """Return the principal solution w >= -1 of ``w e^w = x``, for ``x >= -1/e``.

    Halley's iteration, from the series at the branch point below 0 and a logarithm above.
    Source: Corless et al., Advances in Computational Mathematics 5, 1996.
    """
    branch = 1 + math.e * x
    if branch < -1e-12:  # rounding of -1/e itself is forgiven, more is a mistake
        raise ValueError(f"the Lambert W function is real from -1/e on, got {x}")
    if branch <= 0:
        return -1.0
    root = math.sqrt(2 * branch)
    w = -1 + root - root * root / 3 + 11 / 72 * root**3 if x < 0 else math.log1p(x)
    for _ in range(HALLEY_STEPS_MAX):
        e_w = math.exp(w)
        error = w * e_w - x
        if w <= -1 or error == 0:
            break
        step = error / (e_w * (w + 1) - (w + 2) * error / (2 * w + 2))
        w -= step
        if abs(step) <= HALLEY_TOLERANCE * (1 + abs(w)):
            break
    return max(w, -1.0)


def exact_interval(stall_s: float, mtbf_s: float) -> float:
    """Return the interval [s] that minimises ``exact_waste``: ``M (1 + W0(-e^(-1 - C/M)))``.

    It depends neither on the restart nor on when a save becomes durable.
    Source: the derivative of Daly's complete model (2006) set to zero, solved with Lambert W.
    """
    return mtbf_s * (1 + lambert_w0(-math.exp(-1 - stall_s / mtbf_s)))


def exact_shares(
    *,
    interval_s: float,
    stall_s: float,
    mtbf_s: float,
    restart_s: float,
    detection_s: float = 0.0,
    durable_after_s: float | None = None,
    found_together: bool = False,
) -> Shares:
    """Return where wall time goes when failures are Poisson and strike at any moment.

    An interval and its stall need ``M (e^((T+C)/M) - 1)`` of training time, ``T + C`` of it kept;
    each of the ``e^((T+C)/M) - 1`` failures needs ``M (e^(Q/M) - 1)`` until training goes on, with
    Q = D + R + L - C: while a save is not durable yet, a failure loses that much work more.
    ``found_together`` takes D out of Q, where a second failure would begin it all again, and adds
    it once: each failure needs ``(D + M (1 - e^(-Q/M))) / e^(-Q/M)``.

    Args:
        interval_s: useful work between two saves.
        stall_s: C. For an asynchronous save that slows training, take ``effective_stall``.
        mtbf_s: M.
        restart_s: R, without detection.
        detection_s: D, from the failure to the decision to restart.
        durable_after_s: L; a save is durable when its stall is over if None.
        found_together: who looks for one failure finds all that have come meanwhile, as a monitor
            does that asks every host before it judges. It matters where D is a part of M: ten
            minutes of three hours cost 2 % less of their waste.

    Returns:
        Shares that sum to 1; all time is lost where ``T + C`` is hundreds of M.
        Source: Daly 2006, complete model; N. H. Vaidya, IEEE Transactions on Computers 46(8), 1997,
        10.1109/12.609281, for L > C.
    """
    undurable_s = 0.0 if durable_after_s is None else max(durable_after_s - stall_s, 0.0)
    again_s = restart_s + undurable_s + (0 if found_together else detection_s)
    segment_s = interval_s + stall_s
    # Shares of the wall time of one interval, M e^(Q/M) (e^((T+C)/M) - 1), written without
    # overflow: e^(-Q/M) of it is training, the rest is away.
    training = math.exp(-again_s / mtbf_s)
    detection = 0.0
    if found_together:
        training *= mtbf_s / (mtbf_s + detection_s)
        detection = detection_s / (mtbf_s + detection_s)
    kept = training * math.exp(-segment_s / mtbf_s) / -math.expm1(-segment_s / mtbf_s)
    # A share for each second of Q.
    away = 0.0 if again_s == 0 else (1 - training - detection) / again_s
    useful = kept * interval_s / mtbf_s
    stall = kept * stall_s / mtbf_s
    return Shares(
        useful=useful,
        stall=stall,
        lost_work=training - useful - stall + away * undurable_s,
        detection=detection if found_together else away * detection_s,
        restart=away * restart_s,
    )


def exact_waste(interval_s: float, stall_s: float, mtbf_s: float, restart_s: float) -> float:
    """Return ``1 - T / (M e^(R/M) (e^((T+C)/M) - 1))``. Source: Daly 2006."""
    return asynchronous_waste(interval_s, stall_s, mtbf_s, restart_s, durable_after_s=stall_s)


def asynchronous_waste(
    interval_s: float, stall_s: float, mtbf_s: float, restart_s: float, *, durable_after_s: float
) -> float:
    """Return ``1 - T / (M e^((R+L-C)/M) (e^((T+C)/M) - 1))``: training goes on during uploads.

    A failure loses ``T/2 + L`` on average; the best interval does not depend on L.
    Source: Vaidya 1997, 10.1109/12.609281.
    """
    shares = exact_shares(
        interval_s=interval_s,
        stall_s=stall_s,
        mtbf_s=mtbf_s,
        restart_s=restart_s,
        durable_after_s=durable_after_s,
    )
    return 1 - shares.useful


def effective_stall(stall_s: float, upload_s: float, slowdown: float) -> float:
    """Return ``C + s U`` [s]: an upload of U seconds that slows training by the share s.

    Source: Vaidya 1997, latency against overhead.
    """
    return stall_s + slowdown * upload_s


def shortest_interval(upload_s: float, uploads_at_once: int) -> float:
    """Return ``U / k`` [s]: saves more frequent than this pile up.

    Source: k uploads of U seconds at once end k / U times a second.
    """
    return upload_s / uploads_at_once


def tier_interval(failures_per_s: float, stall_s: float) -> float:
    """Return a tier's best interval ``sqrt(2 C_l / lambda_l)`` [s].

    Source: A. Benoit et al., "Towards Optimal Multi-Level Checkpointing", IEEE Transactions on
    Computers 66(7), 2017, to first order.
    """
    return math.sqrt(2 * stall_s / failures_per_s)


def best_tier_interval(failures_per_s: float, stall_s: float) -> float:
    """Return a tier's best interval [s]; ``math.inf`` when no failure restarts from it.

    Each tier by itself is a single-level problem with M = 1 / lambda_l, so Daly's higher-order
    estimate serves. It is ``tier_interval`` to first order, and never above M, which the first
    order is where a save costs about as much as a failure.
    Source: Daly 2006; Benoit et al. 2017 for taking the tiers one by one.
    """
    mtbf_s = 1 / failures_per_s if failures_per_s else math.inf
    return daly_interval(stall_s, mtbf_s) if mtbf_s < math.inf else math.inf


def cadence_waste(interval_s: float, stall_s: float, failures_per_s: float) -> float:
    """Return the part of a tier's waste that its interval decides: ``C/T + lambda T/2``.

    ``math.inf`` as an interval stands for no saves at all. Source: Young 1974.
    """
    if interval_s == math.inf:
        return math.inf if failures_per_s else 0.0
    return stall_s / interval_s + failures_per_s * interval_s / 2


def costs_less(stall_s: float, work_s: float, share: float) -> bool:
    """Say whether a save after every ``work_s`` of useful work costs less than ``share`` of it.

    A memory tier that is that cheap is taken every step, whatever the failure rate: it bounds what
    a failure loses to one step, also when failures are more frequent than anybody believed.
    """
    return stall_s < share * work_s


def posterior_mtbf(prior_s: float, prior_count: float, failures: int, exposure_s: float) -> float:
    """Return the mean time between failures [s], believed after ``failures`` in ``exposure_s``.

    The rate has a Gamma prior of shape a = ``prior_count`` and rate a x ``prior_s``, and failures
    are Poisson, so the posterior is Gamma(a + n, a x prior + exposure); the answer is one over its
    mean. ``prior_count`` is how many failures of one's own the prior weighs as much as.
    Source: A. Gelman et al., Bayesian Data Analysis, 3rd edition, section 2.6.
    """
    return (prior_count * prior_s + exposure_s) / (prior_count + failures)


def posterior_share(prior: float, prior_count: float, hits: int, trials: int) -> float:
    """Return the mean of a share that has a Beta prior, after ``hits`` of ``trials``.

    The prior is Beta(c m, c (1 - m)) with mean m = ``prior`` and c = ``prior_count``, the number of
    trials that it weighs as much as.
    Source: A. Gelman et al., Bayesian Data Analysis, 3rd edition, section 2.4.
    """
    return (prior_count * prior + hits) / (prior_count + trials)


def tier_shares(tier: Tier, detection_s: float) -> Shares:
    """Return one tier's part of the first-order waste; ``useful`` is what it leaves of 1.

    ``C_l/T_l + lambda_l (T_l/2 + L_l - C_l + R_l + D)``. Source: Benoit et al. 2017.
    """
    stall = tier.stall_s / tier.interval_s
    lost_s = tier.interval_s / 2 + max(tier.durable_after_s - tier.stall_s, 0.0)
    lost = tier.failures_per_s * lost_s
    detection = tier.failures_per_s * detection_s
    restart = tier.failures_per_s * tier.restart_s
    return Shares(
        useful=1 - (stall + lost + detection + restart),
        stall=stall,
        lost_work=lost,
        detection=detection,
        restart=restart,
    )


def tiered_waste(tiers: Sequence[Tier], detection_s: float = 0.0) -> float:
    """Return the first-order waste of several levels of saves: the sum over them.

    Which failures a tier serves decides most: with p the share that host memory does not survive,
    ``failures_per_s`` is (1 - p)/M for the memory tier and p/M for the object store.
    Source: Benoit et al. 2017.
    """
    return sum(tier_shares(tier, detection_s).waste for tier in tiers)


def pair_loss_probability(hosts: int, lost: int) -> float:
    """Return the probability that some pair of hosts is lost whole, when ``lost`` hosts are.

    Each host's snapshots are on one peer and the other way round (an even number of hosts), and
    every set of lost hosts is equally likely: ``1 - C(N/2, k) 2^k / C(N, k)``.
    Source: Z. Wang et al., Gemini, SOSP 2023.
    """
    return 1 - math.prod(max(hosts - 2 * i, 0) / (hosts - i) for i in range(lost))


def verified_interval(
    stall_s: float, verification_s: float, silent_mtbf_s: float, mtbf_s: float
) -> float:
    """Return ``sqrt((C + V) / (lambda_s + lambda_f / 2))`` [s]: each save is verified first.

    A silent error is found by the verification at the end of the interval and loses all of it, a
    failure loses half. ``math.inf`` as a mean time stands for errors that never happen.
    Source: A. Benoit, Y. Robert, S. Raina, arXiv:1310.8486.
    """
    return math.sqrt((stall_s + verification_s) / (1 / silent_mtbf_s + 1 / (2 * mtbf_s)))


def verified_waste(
    *,
    interval_s: float,
    stall_s: float,
    verification_s: float,
    silent_mtbf_s: float,
    mtbf_s: float,
    restart_s: float,
) -> float:
    """Return the first-order waste ``(C+V)/T + lambda_s (T + R) + lambda_f (T/2 + R)``.

    Source: arXiv:1310.8486, first order.
    """
    return (
        (stall_s + verification_s) / interval_s
        + (interval_s + restart_s) / silent_mtbf_s
        + (interval_s / 2 + restart_s) / mtbf_s
    )


def fleet_goodput(
    *,
    hosts: int,
    spares: int,
    effective_time: float,
    slow: float = 0.0,
    replayed: float = 0.0,
    rolled_back: float = 0.0,
) -> float:
    """Return useful work over what all hosts, the idle spares too, could have done.

    Args:
        hosts: that train (N).
        spares: that stand by (S); 0 gives the job's own goodput.
        effective_time: 1 - waste.
        slow: share that stragglers cost.
        replayed: share of steps run twice to find silent corruption.
        rolled_back: share lost to roll-backs after bad numerics.

    Returns:
        ``N/(N+S) x effective_time x (1 - slow) x (1 - replayed - rolled_back)``.
        Source: the product of independent losses, as ByteRobust (arXiv:2509.16293) reports them.
    """
    return hosts / (hosts + spares) * effective_time * (1 - slow) * (1 - replayed - rolled_back)
