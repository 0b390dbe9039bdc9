"""Prometheus metrics of a service; one registry a process, made in ``bootstrap``."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)


class Metrics:
    """What every service measures; a service adds its own to ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.commands = Counter(
            "everstep_commands",
            "Commands handled, by what became of them.",
            ["aggregate", "command", "outcome"],
            registry=self.registry,
        )
        self.command_seconds = Histogram(
            "everstep_command_seconds",
            "From a command's arrival at the handler to its commit.",
            ["aggregate", "command"],
            # a commit takes milliseconds; a second is a database in trouble
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
            registry=self.registry,
        )
        self.events = Counter(
            "everstep_events_appended",
            "Events committed.",
            ["aggregate", "type"],
            registry=self.registry,
        )
        self.outbox_lag = Gauge(
            "everstep_outbox_lag_seconds",
            "Age of the oldest committed event that is not published yet.",
            registry=self.registry,
        )
        self.outbox_set_aside = Gauge(
            "everstep_outbox_set_aside_events",
            "Events that could not be published and were passed over, since the start.",
            registry=self.registry,
        )
        self.consumer_lag = Gauge(
            "everstep_consumer_lag_events",
            "Stored messages that the consumer has not been given yet.",
            ["consumer"],
            registry=self.registry,
        )
        self.consumer_failures = Counter(
            "everstep_consumer_failures",
            "Times that handling a stored message failed; it is tried again.",
            ["consumer"],
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Return all of them in Prometheus' text format."""
        return generate_latest(self.registry)
