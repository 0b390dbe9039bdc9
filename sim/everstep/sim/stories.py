"""The named stories that have a module for their subject."""

from __future__ import annotations

from typing import Final

from everstep.sim import (
    audit_stories,
    care_stories,
    checkpoint_stories,
    copies_stories,
    corruption_stories,
    counter_stories,
    drain_stories,
    elastic_stories,
    ending_stories,
    interval_stories,
    number_stories,
    partition_stories,
    pause_stories,
    recompute_stories,
    reopening_stories,
    sibling_stories,
    store_stories,
    trust_stories,
)
from everstep.sim.telling import Story

STORIES: Final[tuple[Story, ...]] = (
    *interval_stories.STORIES,
    *trust_stories.STORIES,
    *number_stories.STORIES,
    *drain_stories.STORIES,
    *corruption_stories.STORIES,
    *recompute_stories.STORIES,
    *audit_stories.STORIES,
    *elastic_stories.STORIES,
    *reopening_stories.STORIES,
    *ending_stories.STORIES,
    *partition_stories.STORIES,
    *counter_stories.STORIES,
    *care_stories.STORIES,
    *checkpoint_stories.STORIES,
    *copies_stories.STORIES,
    *pause_stories.STORIES,
    *store_stories.STORIES,
    *sibling_stories.STORIES,
)
