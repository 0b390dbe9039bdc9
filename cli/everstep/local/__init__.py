"""The one-machine stack: bundled servers, services and agents under one supervisor."""
