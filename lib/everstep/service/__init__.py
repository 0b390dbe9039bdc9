"""The generic shell of a service: handler, bootstrap, health, logging, telemetry."""
