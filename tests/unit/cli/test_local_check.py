"""What is found before a launch of what the ranks would read."""

import numpy as np
import pytest

from everstep.cli.local_check import check_paths
from everstep.core.errors import InvalidInput
from everstep.core.spec import JobSpec


def spec(cwd, **data) -> JobSpec:
    """Return a job of the reference model."""
    return JobSpec.model_validate({
        "name": "x",
        "entry": "everstep.models.pretrain:main",
        "layout": {},
        "steps": 1,
        "cwd": str(cwd),
        "data": {"path": "train.bin", "sequence_tokens": 64, "global_batch": 1, **data},
    })  # fmt: skip


def test_tokens_are_looked_at_with_the_dtype_of_the_spec(tmp_path):
    """Otherwise ranks would find it, or nobody would."""
    np.arange(5, 1005, dtype=np.uint32).tofile(tmp_path / "train.bin")
    check_paths(spec(tmp_path, dtype="uint32"))
    with pytest.raises(InvalidInput, match=r"^data\.path: .*data\.dtype: uint32"):
        check_paths(spec(tmp_path))
    with pytest.raises(InvalidInput, match="has 1000 tokens, but one sample needs 1501"):
        check_paths(spec(tmp_path, dtype="uint32", sequence_tokens=1500))
