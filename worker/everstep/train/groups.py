"""Sets up the process groups and the run's mesh.

The mesh always has all four dimensions, so that user code names them whatever the layout is. Ranks
count along tp first: a tensor-parallel group is contiguous and stays on one host.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import Final

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from everstep.core.elastic import full_layout
from everstep.core.errors import InvalidInput
from everstep.core.spec import JobSpec
from everstep.train.environment import RankEnvironment

MESH_NAMES: Final = ("pp", "dp_replicate", "dp_shard", "tp")

_STORE_POLL_S: Final = 0.005
_STORE_POLLS_MAX: Final = 400  # 2 s; a rank 0 that takes longer is left to torch's own retries


def choose_device(local_rank: int) -> torch.device:
    """Return this rank's accelerator, or the CPU where there is none."""
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device
    # More threads than one a rank only fight each other when every rank has a core or less, and
    # a fixed number keeps sums in the same order on every machine.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    return torch.device("cpu")


def join_world(environment: RankEnvironment, spec: JobSpec, device: torch.device) -> None:
    """Join the process group of all ranks, unless the user's script has done so already."""
    if dist.is_initialized():
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    timeout = _timeout(spec)
    if environment.rendezvous:
        if environment.rank > 0:
            wait_for_store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        dist.init_process_group(backend, timeout=timeout)
    elif environment.world_size == 1:
        alone = HashStore()
        dist.init_process_group(backend, store=alone, rank=0, world_size=1, timeout=timeout)
    else:
        raise InvalidInput(
            f"WORLD_SIZE is {environment.world_size} but MASTER_ADDR or MASTER_PORT is not set: "
            "start the script with torchrun or everstep run"
        )


def wait_for_store(address: str, port: int) -> None:
    """Return when the rendezvous store listens, or when it is better left to torch to say why not.

    A rank that asks before rank 0 listens is made to wait 0.6 s by torch's first retry (seen), and
    all others with it: at every other recovery one of them is early. Rank 0 opens the store itself
    and must not call this.
    """
    for _ in range(_STORE_POLLS_MAX):
        try:
            with socket.create_connection((address, port), timeout=1.0) as asking:
                # A connection within one host may, by chance of its own port, be to itself.
                if asking.getsockname() != asking.getpeername():
                    return
        except ConnectionRefusedError:
            pass
        except OSError:
            return
        time.sleep(_STORE_POLL_S)


def control_group(spec: JobSpec, device: torch.device) -> dist.ProcessGroup:
    """Return a group of all ranks that takes CPU tensors."""
    world = dist.group.WORLD
    assert world is not None, "join_world comes first"
    if device.type == "cpu" or "gloo" in dist.get_backend_config(world):
        return world
    group = dist.new_group(backend="gloo", timeout=_timeout(spec))
    assert isinstance(group, dist.ProcessGroup), "every rank is in the group of all ranks"
    return group


def build_mesh(spec: JobSpec, device: torch.device) -> DeviceMesh:
    """Return the mesh of all ranks, its groups with the job's timeout.

    Raises:
        InvalidInput: the layout does not multiply out to the world size.
    """
    layout, world_size = full_layout(spec), dist.get_world_size()
    if layout.world_size != world_size:
        raise InvalidInput(
            f"layout pp {layout.pp} x dp_replicate {layout.dp_replicate} x dp_shard "
            f"{layout.dp_shard} x tp {layout.tp} is {layout.world_size} ranks, "
            f"but {world_size} were started"
        )
    sizes = (layout.pp, layout.dp_replicate, layout.dp_shard, layout.tp)
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=MESH_NAMES)
    for group in mesh.get_all_groups():
        # They are made with the backend's own timeout, half an hour with gloo, and a mesh takes
        # no other.
        distributed_c10d._set_pg_timeout(_timeout(spec), group)  # noqa: SLF001 - there is no public one
    return mesh


def _timeout(spec: JobSpec) -> timedelta:
    return timedelta(seconds=spec.recovery.collective_timeout_s)
