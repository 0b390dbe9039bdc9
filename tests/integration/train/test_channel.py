"""The rank's side of the agent channel, against a real unix socket."""

import socket

import pytest

from everstep.agent import framing
from everstep.core.errors import Unavailable
from everstep.core.system import SystemClock
from everstep.train.channel import UNSENT_FRAMES_MAX, AgentChannel

HELLO = {"rank": 3}


class Agent:
    """Accepts ranks at a path."""

    def __init__(self, path):
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.listener.settimeout(60)

    def accept(self):
        connection, _ = self.listener.accept()
        connection.settimeout(60)
        return connection

    def die(self, *connections):
        for one in (self.listener, *connections):
            one.close()


@pytest.fixture
def path(tmp_path):
    """Return where the agent listens."""
    return tmp_path / "agent.sock"


@pytest.fixture
def channel(path):
    """Return a channel that is not connected yet."""
    made = AgentChannel(path, HELLO, SystemClock())
    yield made
    made.close()


def test_hello_comes_first_and_reports_follow(path, channel):
    """The agent knows who speaks before it hears anything."""
    agent = Agent(path)
    channel.say("step", step=1)
    connection = agent.accept()
    assert framing.receive(connection) == {"kind": "hello", "rank": 3}
    assert framing.receive(connection) == {"kind": "step", "step": 1}
    agent.die(connection)


def test_answer_that_comes_with_the_connection_is_kept(path, channel):
    """An agent that answers at once must not be overheard."""
    agent = Agent(path)
    channel.connect()
    connection = agent.accept()
    framing.send(connection, {"kind": "request", "what": "save"})
    framing.send(connection, {"kind": "fresh"})
    channel.connect()
    assert channel.wait_for(frozenset({"fresh"}), timeout_s=60) == {"kind": "fresh"}
    assert channel.poll() == [{"kind": "request", "what": "save"}]
    agent.die(connection)


def test_rank_goes_on_without_an_agent_and_tells_the_next_one(path, channel):
    """Reports made while nobody listened come after the new hello, in order."""
    channel.say("step", step=1)
    agent = Agent(path)
    channel.say("step", step=2)
    connection = agent.accept()
    assert [framing.receive(connection)["kind"] for _ in range(3)] == ["hello", "step", "step"]
    agent.die(connection)
    channel.poll()  # notices
    channel.say("step", step=3)
    channel.remember(step=3)
    agent = Agent(path)
    assert channel.poll() == []
    connection = agent.accept()
    assert framing.receive(connection) == {"kind": "hello", "rank": 3, "step": 3}
    assert framing.receive(connection) == {"kind": "step", "step": 3}
    agent.die(connection)


def test_unread_reports_are_bounded_and_the_stream_stays_whole(path, channel):
    """An agent that hangs costs no memory; what it reads later is frames, the oldest missing."""
    agent = Agent(path)
    channel.connect()
    connection = agent.accept()
    padding = "x" * 200
    count = UNSENT_FRAMES_MAX + 3000
    for step in range(count):
        channel.say("step", step=step, padding=padding)
    assert channel.dropped_frames > 0
    assert framing.receive(connection)["kind"] == "hello"
    steps = []
    while not steps or steps[-1] < count - 1:
        channel.poll()
        steps.append(framing.receive(connection)["step"])
    assert steps == sorted(set(steps))
    assert len(steps) == count - channel.dropped_frames
    agent.die(connection)


def test_garbled_agent_is_dropped_and_connected_again(path, channel):
    """Nonsense on the channel ends the connection, not the training."""
    agent = Agent(path)
    channel.connect()
    connection = agent.accept()
    connection.sendall(b"\xff\xff\xff\xff\xff")
    assert channel.poll() == []
    channel.say("step", step=1)
    again = agent.accept()
    assert framing.receive(again)["kind"] == "hello"
    assert framing.receive(again) == {"kind": "step", "step": 1}
    agent.die(connection, again)


def test_last_words_say_whether_they_are_out(path, channel):
    """With an agent they are sent; without one the rank does not wait for ever."""
    assert not channel.last_words("finished", timeout_s=0.05, step=9)
    agent = Agent(path)
    assert channel.last_words("finished", timeout_s=10, step=9)
    connection = agent.accept()
    kinds = [framing.receive(connection)["kind"] for _ in range(3)]
    assert kinds == ["hello", "finished", "finished"]
    agent.die(connection)


def test_missing_answer_is_an_error_that_names_what_was_awaited(channel):
    """Nobody answered: the message says what and where."""
    with pytest.raises(Unavailable, match=r"no fresh or slot_ready from .*agent\.sock"):
        channel.wait_for(frozenset({"fresh", "slot_ready"}), timeout_s=0.05)


def test_bare_channel_swallows_everything():
    """Without an agent nothing is kept and nothing waits."""
    channel = AgentChannel(None, HELLO, SystemClock())
    channel.say("step", step=1)
    assert channel.is_bare
    assert channel.poll() == []
    assert channel.last_words("finished", timeout_s=0)
