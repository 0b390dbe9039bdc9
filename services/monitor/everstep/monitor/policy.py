"""How much silence, how many deaths: the thresholds of the detectors, each with its argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Judged this often: a tenth of the tightest limit that shows itself by absence (detection, 1 s).
TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Thresholds, each in milliseconds."""

    # A host is asked again only after this long, so that a slow verdict does not flood it.
    probe_again_ms: int = 1_000
    # A host that serves no job is asked this often, a second apart: nobody waits for the verdict,
    # and a late answer is likelier than a lost machine.
    idle_probes: int = 2
    # Heartbeats come every second; three missing ones are no jitter. DESIGN allows 5 s in all.
    silence_ms: int = 3_000
    # An unanswered probe may have been late itself, and then many are at once: our own network. A
    # host that is gone also misses its heartbeats, a second apart: two of them, so that one stall
    # of 1.5 s on its connection condemns nobody. With a probe that makes 3.5 s at most.
    unanswered_silence_ms: int = 2_500
    # One program runs on all ranks, so one user error often shows on several of them at once.
    user_error_group_ms: int = 200
    # Ranks of one host that die together are reported one after the other, within milliseconds.
    death_group_ms: int = 30
    # Only echoes and every host answers: a rank's exit report that is still on its way has come by
    # then (exit reports took under 100 ms; chosen ten times that).
    echo_patience_ms: int = 1_000
    # A host says that a rank has ended: its report is sent again every 3 s until it is stored.
    untold_patience_ms: int = 10_000
    # Hosts try their links again after this long, while the last answers name somebody for the
    # first time or do not decide. A try takes up to 0.8 s.
    links_again_ms: int = 1_500
    # As long as neither side of a job is larger, nobody can be named; most such cuts are a switch
    # that restarts, within minutes. Then the run is started again where it is (chosen).
    links_tie_ms_max: int = 600_000
    # Ranks that a heartbeat no longer names, and whose end nobody reported: two heartbeats could be
    # on their way, and an exit report takes under 100 ms.
    missing_ms: int = 3_000
    # Until the first step, a start may not have reached the host yet; it takes a second or two.
    missing_before_first_step_ms: int = 30_000
    # Ranks of an older generation are gone within a second of its fence; these it has not reached.
    stray_ms: int = 2_500
    # Chosen: told again for as long as they are there, but not with every heartbeat.
    stray_again_ms: int = 5_000
    # Chosen: a host on which ranks were killed this often in an hour is not sound.
    deaths_per_hour_max: int = 3
