"""Stacks of real ranks, as their agents told them: torch 2.13 on gloo, Python 3.11.

The first six are of tests/integration/agent/hanging.py. The last four are of one moment of the
reference model in pp 2 x dp_shard 2 x tp 2, whose rank 3 was stopped: ranks 0 and 1 waited in the
first stage's schedule, 2 in a tensor-parallel layer, 4 and 5 for sharded parameters, 6 and 7 in the
last stage's schedule. User files are under another path.
"""

IN_ALL_REDUCE = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/hanging.py:main:60",
    "/home/me/hanging.py:average:81",
    "site-packages/torch/distributed/c10d_logger.py:wrapper:83",
    "site-packages/torch/distributed/distributed_c10d.py:all_reduce:3252",
    "everstep/train/own_time.py:timed:204",
)

SPINNING = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/hanging.py:main:56",
    "/home/me/hanging.py:spin:74",
)

IN_LOADER = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/hanging.py:main:51",
    "everstep/train/run.py:batches:186",
    "everstep/train/batches.py:batch:104",
    "everstep/train/batches.py:_collated:119",
    "everstep/train/batches.py:<listcomp>:119",
    "/home/me/hanging.py:__getitem__:33",
)

IN_PIPE = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/hanging.py:main:51",
    "everstep/train/run.py:batches:186",
    "everstep/train/batches.py:batch:104",
    "everstep/train/batches.py:_collated:119",
    "everstep/train/batches.py:<listcomp>:119",
    "/home/me/hanging.py:__getitem__:35",
    "python/pathlib.py:open:1044",
)

IN_STEP_COLLECTIVE = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/hanging.py:main:61",
    "everstep/train/run.py:step:225",
    "everstep/train/run.py:_agree:313",
    "everstep/train/control.py:agree:189",
    "site-packages/torch/distributed/c10d_logger.py:wrapper:83",
    "site-packages/torch/distributed/distributed_c10d.py:all_reduce:3252",
    "everstep/train/own_time.py:timed:204",
)

IN_RECEIVE = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/hanging.py:main:58",
    "/home/me/hanging.py:wait_for_the_next:86",
    "site-packages/torch/distributed/c10d_logger.py:wrapper:83",
    "site-packages/torch/distributed/distributed_c10d.py:recv:2799",
    "everstep/train/own_time.py:timed:204",
)

IN_FIRST_STAGE = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/models/pretrain.py:main:58",
    "/home/me/models/parallel.py:forward_backward:192",
    "site-packages/torch/distributed/pipelining/schedules.py:step:785",
    "site-packages/torch/distributed/pipelining/schedules.py:_step_microbatches:1105",
    "site-packages/torch/distributed/pipelining/schedules.py:_wait_batch_p2p:683",
    "everstep/train/own_time.py:timed:204",
)

IN_TENSOR_PARALLEL = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/models/pretrain.py:main:58",
    "/home/me/models/parallel.py:forward_backward:192",
    "site-packages/torch/distributed/pipelining/schedules.py:step:785",
    "site-packages/torch/distributed/pipelining/schedules.py:_step_microbatches:1070",
    "site-packages/torch/distributed/pipelining/stage.py:forward_one_chunk:892",
    "site-packages/torch/distributed/pipelining/stage.py:forward_maybe_with_nosync:762",
    "site-packages/torch/nn/modules/module.py:_wrapped_call_impl:1778",
    "site-packages/torch/nn/modules/module.py:_call_impl:1884",
    "site-packages/torch/nn/modules/module.py:inner:1832",
    "/home/me/models/llama.py:forward:168",
    "site-packages/torch/nn/modules/module.py:_wrapped_call_impl:1778",
    "site-packages/torch/nn/modules/module.py:_call_impl:1884",
    "site-packages/torch/nn/modules/module.py:inner:1832",
    "/home/me/models/llama.py:forward:125",
    "site-packages/torch/distributed/_functional_collectives.py:__torch_dispatch__:1155",
    "site-packages/torch/utils/_pytree.py:tree_map_only:1754",
    "site-packages/torch/utils/_pytree.py:tree_map:1578",
    "site-packages/torch/utils/_pytree.py:unflatten:1313",
    "site-packages/torch/utils/_pytree.py:wrapped:1689",
    "site-packages/torch/distributed/_functional_collectives.py:unwrap:1143",
    "site-packages/torch/distributed/_functional_collectives.py:trigger_wait:1115",
    "everstep/train/own_time.py:timed:204",
    "site-packages/torch/distributed/_functional_collectives.py:wait_tensor:142",
    "site-packages/torch/_ops.py:__call__:1279",
)

IN_SHARDED_PARAMETERS = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/models/pretrain.py:main:58",
    "/home/me/models/parallel.py:forward_backward:190",
    "site-packages/torch/distributed/pipelining/schedules.py:step:785",
    "site-packages/torch/distributed/pipelining/schedules.py:_step_microbatches:1070",
    "site-packages/torch/distributed/pipelining/stage.py:forward_one_chunk:892",
    "site-packages/torch/distributed/pipelining/stage.py:forward_maybe_with_nosync:762",
    "site-packages/torch/nn/modules/module.py:_wrapped_call_impl:1778",
    "site-packages/torch/nn/modules/module.py:_call_impl:1884",
    "site-packages/torch/nn/modules/module.py:inner:1811",
    "site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_common.py:wrapper:30",
    "site-packages/torch/_dynamo/eval_frame.py:_fn:1446",
    "site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_state.py:_pre_forward:314",
    "site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py:pre_forward:551",
    "site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_common.py:wrapper:43",
    "site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py:unshard:407",
    "site-packages/torch/utils/_contextlib.py:decorate_context:124",
    "site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:foreach_all_gather:364",
    "site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:__call__:119",
    "site-packages/torch/distributed/c10d_logger.py:wrapper:83",
    "site-packages/torch/distributed/distributed_c10d.py:all_gather_single:4394",
    "everstep/train/own_time.py:timed:204",
)

IN_LAST_STAGE = (
    "everstep/train/rank_main.py:run_rank:34",
    "everstep/train/rank_main.py:_run_entry:53",
    "/home/me/models/pretrain.py:main:58",
    "/home/me/models/parallel.py:forward_backward:190",
    "site-packages/torch/distributed/pipelining/schedules.py:step:785",
    "site-packages/torch/distributed/pipelining/schedules.py:_step_microbatches:1067",
    "site-packages/torch/distributed/pipelining/schedules.py:_wait_batch_p2p:683",
    "everstep/train/own_time.py:timed:204",
)
