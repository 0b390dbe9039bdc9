"""Which exception means what. The collective messages were copied from real failures."""

import pytest
import torch.distributed as dist

from everstep.agent.exits import ExitClass
from everstep.train.endings import (
    BadEntryPointError,
    HostTooSmallError,
    RestoreFailedError,
    RunStoppedError,
    StateMismatchError,
    classify,
)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Return the exception with a traceback, as it is after being caught."""
    with pytest.raises(type(error)) as caught:
        throw(error, cause)
    return caught.value


def throw(error: BaseException, cause: BaseException | None) -> None:
    """Raise from a frame of its own."""
    raise error from cause


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), ExitClass.USER_ERROR),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ExitClass.USER_ERROR),
        (KeyboardInterrupt(), ExitClass.USER_ERROR),
        (SystemExit(3), ExitClass.USER_ERROR),
        (SystemExit("no"), ExitClass.USER_ERROR),
        (SystemExit(0), ExitClass.FINISHED),
        (SystemExit(None), ExitClass.FINISHED),
        (RunStoppedError(), ExitClass.STOPPED),
        (RestoreFailedError("x"), ExitClass.RESTORE_FAILED),
        (StateMismatchError("w was kept as float32[2]"), ExitClass.USER_ERROR),
        (BadEntryPointError("x"), ExitClass.BAD_ENTRY_POINT),
        (HostTooSmallError("x"), ExitClass.HOST_TOO_SMALL),
        (dist.DistBackendError("NCCL communicator was aborted"), ExitClass.COLLECTIVE),
        (dist.DistNetworkError("The client socket has timed out"), ExitClass.COLLECTIVE),
        (dist.DistStoreError("wait timeout after 100ms"), ExitClass.COLLECTIVE),
    ],
)
def test_exception_is_classified_by_type(error, expected):
    """Each class of ending has its own exceptions."""
    assert classify(raised(error)).exit_class is expected


@pytest.mark.parametrize(
    "message",
    [
        "pair.cc:538] Connection closed by peer [127.0.0.1]:36873",
        "pair.cc:547] Read error [127.0.0.1]:47231: Connection reset by peer",
        "unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete",
        "unbound_buffer.cc:115] Some text that is new in the next version of gloo",
        "Application timeout caused pair closure",
    ],
)
def test_runtime_error_of_gloo_is_a_collective_error(message):
    """Gloo has no exception type of its own."""
    where = "[/pytorch/third_party/gloo/gloo/transport/tcp/" if ".cc:" in message else ""
    assert classify(raised(RuntimeError(where + message))).exit_class is ExitClass.COLLECTIVE


def test_wrapped_collective_error_is_still_an_echo():
    """User code that wraps or re-raises does not turn an echo into a root cause."""
    echo = RuntimeError("gloo/transport/tcp/pair.cc:1 Connection closed by peer")
    assert classify(raised(ValueError("step failed"), echo)).exit_class is ExitClass.COLLECTIVE
    handled = ValueError("while handling")
    handled.__context__ = echo
    assert classify(handled).exit_class is ExitClass.COLLECTIVE


def echo() -> RuntimeError:
    """What gloo raises when a peer has left."""
    return RuntimeError("gloo/transport/tcp/pair.cc:1 Connection closed by peer")


def failing_clean_up(error: BaseException) -> BaseException:
    """Return what comes of user code that raises and whose clean-up needs its peers."""

    def user_code() -> None:
        try:
            raise error
        finally:
            raise echo()

    with pytest.raises(RuntimeError) as caught:
        user_code()
    return caught.value


def test_user_error_before_a_failed_clean_up_is_the_users():
    """``finally: dist.barrier()`` fails because this rank left its peers, not the other way."""
    ending = classify(failing_clean_up(ValueError("bad sample")))
    assert (ending.exit_class, ending.error) == (ExitClass.USER_ERROR, "ValueError: bad sample")
    assert "bad sample" in ending.traceback
    assert "Connection closed by peer" in ending.traceback


def test_clean_up_of_a_clean_up_still_names_the_first_error():
    """Two collectives fail one after the other."""
    again = raised(dist.DistBackendError("aborted"), failing_clean_up(ValueError("bad sample")))
    assert classify(again).error == "ValueError: bad sample"


def test_failed_clean_up_after_an_agreed_stop_is_a_stop():
    """All ranks leave at the same step; who is last finds nobody to talk to."""
    assert classify(failing_clean_up(RunStoppedError())).exit_class is ExitClass.STOPPED


def test_failed_clean_up_after_a_failed_restore_is_a_failed_restore():
    """The restore failed first, whatever happened then."""
    ending = classify(failing_clean_up(RestoreFailedError("checksum")))
    assert (ending.exit_class, ending.error) == (
        ExitClass.RESTORE_FAILED,
        "RestoreFailedError: checksum",
    )


def test_clean_up_after_an_echo_is_still_an_echo():
    """A peer was lost first; that the clean-up fails too is no news."""
    assert classify(failing_clean_up(echo())).exit_class is ExitClass.COLLECTIVE


def test_exception_that_a_library_caught_on_its_way_is_no_user_error():
    """A look-up that missed, handled by calling the collective that then failed."""
    missed = KeyError("group")
    namespace = {"__name__": "torch.distributed.new", "missed": missed, "failed": echo()}
    code = (
        "def look_up():\n    raise missed\ntry:\n    look_up()\nexcept KeyError:\n    raise failed"
    )
    with pytest.raises(RuntimeError) as caught:
        exec(code, namespace)  # frames of a module with that name
    assert caught.value.__context__ is missed
    assert classify(caught.value).exit_class is ExitClass.COLLECTIVE


def test_user_error_keeps_one_line_and_the_whole_traceback():
    """The line goes into tables, the traceback to the person."""
    ending = classify(raised(ValueError("first\nsecond " + "x" * 1000)))
    assert ending.error.startswith("ValueError: first second xxx")
    assert len(ending.error) == 500
    assert "test_endings.py" in ending.traceback
    assert ending.exit_code not in {0, 1, 2}


def test_exit_codes_are_distinct():
    """The code alone tells the class, when the last words are lost."""
    codes = [
        classify(raised(error)).exit_code
        for error in (
            SystemExit(0),
            RunStoppedError(),
            ValueError(),
            dist.DistError(""),
            BadEntryPointError(),
            RestoreFailedError(),
        )
    ]
    assert len(set(codes)) == 6
    assert codes[0] == 0


def test_kernel_without_fixed_bits_is_named_with_what_can_be_done():
    """PyTorch's own advice is about its switches, which a job does not hold."""
    torchs = "cumsum_cuda_kernel does not have a deterministic implementation, but you set 'x'."
    error = classify(raised(RuntimeError(torchs))).error
    assert "cumsum_cuda_kernel does not have a deterministic implementation; `determ" in error
    assert "but you set" not in error
