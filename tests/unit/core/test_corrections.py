"""What the learning rate is multiplied by."""

from __future__ import annotations

from everstep.core.corrections import NO_CORRECTIONS, Corrections, RateSpan


def test_rate_is_scaled_within_its_span_alone():
    """The first step of a span is the one after ``after_step``, and the last is ``until_step``."""
    corrections = Corrections(rates=(RateSpan(after_step=10, until_step=12, factor=0.5),))
    assert [corrections.rate_at(step) for step in range(10, 14)] == [1.0, 0.5, 0.5, 1.0]


def test_spans_that_overlap_multiply():
    """The run went back twice."""
    spans = (
        RateSpan(after_step=0, until_step=9, factor=0.5),
        RateSpan(after_step=5, until_step=9, factor=0.5),
    )
    assert Corrections(rates=spans).rate_at(7) == 0.25


def test_run_that_was_never_corrected_has_its_own_rate():
    """At every step."""
    assert NO_CORRECTIONS.rate_at(1) == 1.0
