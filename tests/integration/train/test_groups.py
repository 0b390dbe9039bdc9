"""How ranks find each other."""

from __future__ import annotations

import socket
import threading

from everstep.train.groups import wait_for_store

JOIN_S = 60.0


def test_rank_that_is_early_goes_on_as_soon_as_the_store_listens():
    """It neither fails nor waits for a retry of its own."""
    with socket.socket() as store:
        store.bind(("127.0.0.1", 0))  # bound but deaf: connections are refused
        early = threading.Thread(target=wait_for_store, args=store.getsockname(), daemon=True)
        early.start()
        store.listen()
        store.settimeout(JOIN_S)
        store.accept()[0].close()
        early.join(JOIN_S)
        assert not early.is_alive()


def test_store_that_never_listens_is_left_to_torch():
    """The wait is bounded: torch then says what is wrong."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        early = threading.Thread(target=wait_for_store, args=deaf.getsockname(), daemon=True)
        early.start()
        early.join(JOIN_S)
        assert not early.is_alive()
