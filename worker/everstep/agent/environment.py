"""The environment of a rank: torchrun's variables, and ours.

A script made for torchrun finds everything that torchrun would have set, so that it runs unchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from everstep.agent.runs import Start
from everstep.core.corrections import NO_CORRECTIONS
from everstep.core.spec import JobSpec

# torchrun's own default for several processes a host: their thread pools would fight. It also fixes
# the order of sums on every host, which exact resume on another host needs.
OMP_NUM_THREADS: Final = "1"

# With a fixed workspace cuBLAS sums in the same order each time (its documentation, "Results
# reproducibility"). It is read when the library is first used, so it is set before the fork.
CUBLAS_WORKSPACE_CONFIG: Final = ":4096:8"


def rank_environment(
    *,
    start: Start,
    spec: JobSpec,
    host_id: str,
    rank: int,
    agent_socket: Path,
    memory_dir: Path,
    interface: str,
    emulated: bool,
    seek_position: int,
) -> dict[str, str]:
    """Return what is added to the fork server's environment for one rank.

    Args:
        start: of the generation.
        spec: decoded from ``start``.
        host_id: this host.
        rank: one of its ranks.
        agent_socket: where the rank finds its agent.
        memory_dir: where its snapshots lie.
        interface: for gloo and NCCL; "" to let them choose.
        emulated: whether this host shares its machine, and so its accelerators, with others.
        seek_position: the data position to begin at, -1 for the restored one.
    """
    world = str(start.world_size)
    environment = {
        "OMP_NUM_THREADS": OMP_NUM_THREADS,
        **spec.env,
        "RANK": str(rank),
        "WORLD_SIZE": world,
        "LOCAL_RANK": str(start.ranks.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(start.ranks)),
        "GROUP_RANK": str(start.host_index),
        "GROUP_WORLD_SIZE": str(start.host_count),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": start.rendezvous_address,
        "MASTER_PORT": str(start.rendezvous_port),
        "TORCHELASTIC_RUN_ID": start.job_id,
        "TORCHELASTIC_RESTART_COUNT": str(start.generation),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.recovery.restarts_per_hour_max),
        "EVERSTEP_JOB_ID": start.job_id,
        "EVERSTEP_GENERATION": str(start.generation),
        "EVERSTEP_SPEC": start.spec_json,
        "EVERSTEP_HOST_ID": host_id,
        "EVERSTEP_AGENT_SOCKET": str(agent_socket),
        "EVERSTEP_MEMORY_DIR": str(memory_dir),
        "EVERSTEP_HOST_RANKS": ",".join(map(str, start.ranks)),
        "EVERSTEP_REPLICA_COUNT": str(len(start.replicas)),
    }
    if interface:
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
        environment.setdefault("NCCL_SOCKET_IFNAME", interface)
    if spec.deterministic:
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE_CONFIG)
    if emulated:
        # NCCL refuses two ranks of one host on one device; as hosts of their own they may share it.
        environment.setdefault("NCCL_HOSTID", f"{host_id}-{rank}")
    if start.schedule is not None:
        environment["EVERSTEP_SCHEDULE"] = msgspec.json.encode(start.schedule).decode()
    if start.corrections != NO_CORRECTIONS:
        environment["EVERSTEP_CORRECTIONS"] = msgspec.json.encode(start.corrections).decode()
    if seek_position >= 0:
        environment["EVERSTEP_SEEK_POSITION"] = str(seek_position)
    return environment
