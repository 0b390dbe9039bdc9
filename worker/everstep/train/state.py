"""The tracked state of a rank as named tensors and small objects, and back.

Names are what a snapshot's header lists: ``model.layers.0.attention.wq.weight``,
``optimizer.state.layers.0.attention.wq.weight.exp_avg``. Tensors are the rank's local parts;
nothing here communicates. A restore copies into the tensors that exist and creates optimizer state
that does not exist yet, empty and in the parameter's own layout, so that a resumed optimizer
continues exactly where the other one stood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from operator import is_, methodcaller
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from everstep.memory.parts import PLACES_NAME, encoded_places
from everstep.train import randomness, tree
from everstep.train.endings import StateMismatchError
from everstep.train.forecast import Forecast, stand_in
from everstep.train.gradients import local_part, offsets_of
from everstep.train.module_tensors import module_tensors, require_own, with_extra_state
from everstep.train.moments import LIKE_PARAMETER, PLAIN, make_state
from everstep.train.optimizer_states import require_flat, require_keepable
from everstep.train.parameter_groups import ParameterGroups, group_sizes
from everstep.train.places import NamedTensors, Places
from everstep.train.tree import UnsupportedStateError

_NOTES: Final = "run.notes"
_values: Final = methodcaller("values")


class TrackedState:
    """Everything that a resume must put back.

    Args:
        device: of the rank.
        tracked: by name: modules (or lists of them), optimizers, tensors, and objects with
            ``state_dict`` and ``load_state_dict``.

    Raises:
        UnsupportedStateError: something is none of these.
    """

    def __init__(self, device: torch.device, tracked: Mapping[str, Any]) -> None:
        self.device = device
        self._modules: dict[str, nn.Module] = {}
        self._tensors: dict[str, Tensor] = {}
        self.objects: dict[str, Any] = {}
        self.optimizers: dict[str, Optimizer] = {}
        for name, value in tracked.items():
            self._add(name, value)
        self._model_tensors: NamedTensors = []
        trained = {id(p) for one in self.optimizers.values() for p in _parameters(one)}
        for name, module in self._modules.items():
            kept = module_tensors(name, module)
            require_own(name, module, kept, trained)
            self._model_tensors += kept
        names = {id(tensor): name for name, tensor in self._model_tensors}
        self._groups = ParameterGroups(self.optimizers)
        self._parameter_names = {
            name: _parameter_names(optimizer, names) for name, optimizer in self.optimizers.items()
        }
        self._extra_states = [
            (f"{name}.{path}.extra_state", part)
            for name, module in self._modules.items()
            for path, part in with_extra_state(module)
        ]
        self._places = Places(self._modules, self._model_tensors)
        self._layouts: dict[str, tuple[int, bytes]] = {}
        self._parts: tuple[int, bytes] | None = None
        self._states: dict[str, tuple[list[int], list[dict[str, Any]]]] = {}
        self._state_values: dict[str, tuple[list[Any], list[Tensor]]] = {}
        self.notes: dict[str, Any] = {}  # what else the run wants to know after a restore

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The tracked modules by the names they were given."""
        return self._modules

    def signature(self) -> int:
        """Return a number that changes when tensors come into being (optimizer state)."""
        return sum(_signature(optimizer) for optimizer in self.optimizers.values())

    def tensors(self, *, foreseen: bool = False) -> NamedTensors:
        """Return every tensor that keeps its place between snapshots: parameters, moments.

        Args:
            foreseen: also what optimizers will make in their first step, without any memory.
        """
        found: NamedTensors = [*self._model_tensors, *self._tensors.items()]
        for index, buffer in self._places.buffers():
            found[index] = found[index][0], buffer
        for name, optimizer in self.optimizers.items():
            moments = _moments(optimizer, self._parameter_names[name], foreseen=foreseen)
            found += [(f"{name}.state.{owner}.{key}", tensor) for owner, key, tensor in moments]
        return found

    def paths(self, *, foreseen: bool = False) -> dict[str, tuple[str, ...]]:
        """Return, for each name of ``tensors``, where PyTorch's own nested state dict has it."""
        found: dict[str, tuple[str, ...]] = {name: (name,) for name in self._tensors}
        for name, module in self._modules.items():
            keys = (key.removeprefix(f"{name}.") for key, _ in module_tensors(name, module))
            found |= {f"{name}.{key}": (name, key) for key in keys}
        for name, optimizer in self.optimizers.items():
            moments = _moments(optimizer, self._parameter_names[name], foreseen=foreseen)
            for owner, key, _ in moments:
                path = (name, "state", owner, key)
                found[".".join(path)] = path
        return found

    def still(self, *, foreseen: bool = False) -> frozenset[str]:
        """Name the tensors that only optimizer steps change: optimized parameters, moments."""
        optimized = {id(one) for pairs in self._parameter_names.values() for one, _ in pairs}
        parameters = [name for name, one in self._model_tensors if id(one) in optimized]
        fixed = len(self._model_tensors) + len(self._tensors)
        moments = self.tensors(foreseen=foreseen)[fixed:]
        return frozenset([*parameters, *(name for name, _ in moments)])

    def shared(self, *, foreseen: bool = False) -> dict[str, Tensor]:
        """Return what other ranks may hold alike, each with the parameter that it lies as."""
        found: dict[str, Tensor] = {
            name: one for name, one in self._model_tensors if isinstance(one, nn.Parameter)
        }
        for name, optimizer in self.optimizers.items():
            owners = {key: parameter for parameter, key in self._parameter_names[name]}
            moments = _moments(optimizer, self._parameter_names[name], foreseen=foreseen)
            found |= {f"{name}.state.{owner}.{key}": owners[owner] for owner, key, _ in moments}
        return found

    def values(self) -> list[Tensor]:
        """Return what ``tensors`` lists, in its order, as it is now: an optimizer may replace it.

        Done at every snapshot: a hash of a tensor costs more than a small one's copy.
        """
        found = [tensor for _, tensor in self._model_tensors]
        self._places.require_same()
        self._groups.require_same()
        for index, buffer in self._places.buffers():
            found[index] = buffer
        found += self._tensors.values()
        for name, optimizer in self.optimizers.items():
            found += self._state_tensors(name, optimizer)
        return found

    def moving(self) -> tuple[NamedTensors, dict[str, bytes]]:
        """Return what is a new value at each snapshot: random states, schedulers, options."""
        tensors = randomness.tensor_states(self.device)
        objects = {
            name: tree.encode(value, name, tensors)
            for name, value in randomness.object_states().items()
        }
        signatures = 0
        for name, optimizer in self.optimizers.items():
            require_keepable(name, optimizer, self.optimizers.values())
            signature = _signature(optimizer)
            signatures += signature
            objects[name] = tree.encode(_options(optimizer), name, tensors)
            objects[f"{name}.layout"] = self._layout(name, optimizer, signature)
        objects[_NOTES] = tree.encode(self.notes, _NOTES, tensors)
        objects[PLACES_NAME] = self._part_places(signatures)
        for name, thing in self.objects.items():
            objects[name] = tree.encode(thing.state_dict(), name, tensors)
        for name, part in self._extra_states:
            objects[name] = tree.encode(part.get_extra_state(), name, tensors)
        return tensors, objects

    def restore(self, source: StateSource) -> None:
        """Fill everything but the random states, which come last (``restore_randomness``).

        Raises:
            StateMismatchError: the snapshot lacks something or describes another optimizer.
        """
        for name, tensor in [*self._model_tensors, *self._tensors.items()]:
            source.fill(name, tensor)
        self.notes = source.tree(_NOTES)
        for name, optimizer in self.optimizers.items():
            self._restore_optimizer(name, optimizer, source)
        for name, thing in self.objects.items():
            thing.load_state_dict(source.tree(name))
        for name, part in self._extra_states:
            part.set_extra_state(source.tree(name))

    def restore_randomness(self, source: StateSource) -> None:
        """Put the random states back; the last thing before training goes on."""
        objects = {name: source.tree(name) for name in randomness.object_states()}
        randomness.restore(self.device, source.make, objects)

    def _add(self, name: str, value: Any) -> None:
        match value:
            case nn.Module():
                self._modules[name] = value
            case Optimizer():
                self.optimizers[name] = value
            case Tensor():
                self._tensors[name] = value
            case list() | tuple():
                for index, item in enumerate(value):
                    self._add(f"{name}.{index}", item)
            case _ if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
                self.objects[name] = value
            case _:
                raise UnsupportedStateError(
                    f"cannot track {name}: a {type(value).__name__} is no module, optimizer or "
                    "tensor and has no state_dict and load_state_dict"
                )

    def _states_of(self, name: str, optimizer: Optimizer) -> list[dict[str, Any]]:
        """Return the parameters' states in the order of their names."""
        now = list(map(id, optimizer.state.values()))
        kept = self._states.get(name)
        if kept is None or kept[0] != now:  # the kept ones are alive: no identity is used again
            owners = (one for one, _ in self._parameter_names[name] if one in optimizer.state)
            kept = now, [optimizer.state[one] for one in owners]
            self._states[name] = kept
        return kept[1]

    def _state_tensors(self, name: str, optimizer: Optimizer) -> list[Tensor]:
        """Return the tensors of the parameters' states, looked for anew only among new values."""
        values = list(chain.from_iterable(map(_values, self._states_of(name, optimizer))))
        kept = self._state_values.get(name)
        if kept is None or len(kept[0]) != len(values) or not all(map(is_, kept[0], values)):
            kept = values, [value for value in values if isinstance(value, Tensor)]
            self._state_values[name] = kept
        return kept[1]

    def _layout(self, name: str, optimizer: Optimizer, signature: int) -> bytes:
        """Return the names of the parameters and what state each has, encoded.

        It is the same at every snapshot, and encoded again only when states come into being or
        hold plain numbers, which may change.
        """
        kept = self._layouts.get(name)
        if kept is not None and kept[0] == signature:
            return kept[1]
        names = self._parameter_names[name]
        for parameter, parameter_name in names:
            if parameter in optimizer.state:
                require_flat(f"{name}.state.{parameter_name}", optimizer.state[parameter])
        states = {
            parameter_name: {
                key: _described(item, parameter) for key, item in optimizer.state[parameter].items()
            }
            for parameter, parameter_name in names
            if parameter in optimizer.state
        }
        layout = {
            "parameters": [parameter_name for _, parameter_name in names],
            "group_sizes": group_sizes(optimizer),
            "states": states,
        }
        encoded = tree.encode(layout, name, [])
        if all(_is_description(item) for state in states.values() for item in state.values()):
            self._layouts[name] = (signature, encoded)
        return encoded

    def _part_places(self, signature: int) -> bytes:
        """Return where this rank's parts lie in their wholes, encoded again only for new tensors.

        Their shapes and layouts stay as long as they do.
        """
        if self._parts is None or self._parts[0] != signature:
            places = {
                name: (tuple(tensor.shape), offsets_of(tensor))
                for name, tensor in self.tensors()
                if tensor.shape != local_part(tensor).shape
            }
            self._parts = signature, encoded_places(places)
        return self._parts[1]

    def _restore_optimizer(self, name: str, optimizer: Optimizer, source: StateSource) -> None:
        layout = source.tree(f"{name}.layout")
        names = self._parameter_names[name]
        mine = [parameter_name for _, parameter_name in names]
        sizes = group_sizes(optimizer)
        if (mine, sizes) != (layout["parameters"], layout["group_sizes"]):
            raise StateMismatchError(
                f"{name}: the snapshot was taken with {len(layout['parameters'])} parameters in "
                f"groups of {layout['group_sizes']}, this one has {len(mine)} in groups of "
                f"{sizes}, or their names or order differ"
            )
        for group, options in zip(optimizer.param_groups, source.tree(name), strict=True):
            group.update(options)
        states: list[tuple[Tensor, dict[str, Any]]] = []
        described: list[tuple[dict[str, Any], Tensor]] = []
        to_fill: list[tuple[str, dict[str, Any], str]] = []
        for parameter, parameter_name in names:
            state = dict(layout["states"].get(parameter_name, {}))
            states.append((parameter, state))
            for key, item in state.items():
                if _is_description(item):
                    described.append((item, parameter))
                    to_fill.append((f"{name}.state.{parameter_name}.{key}", state, key))
        for (path, state, key), tensor in zip(to_fill, make_state(described), strict=True):
            source.fill(path, tensor)
            state[key] = tensor
        for parameter, state in states:
            if state:
                optimizer.state[parameter] = state


class StateSource(Protocol):
    """Where a restore takes tensors and objects from."""

    def fill(self, name: str, tensor: Tensor) -> None:
        """Copy what was kept of that name into ``tensor``, into this rank's part of a DTensor.

        It may be there, and damage told of, only when the source has been finished.

        Raises:
            RestoreFailedError: it is not there, does not fit or is damaged.
        """
        ...

    def make(self, name: str) -> Tensor:
        """Return the kept tensor of that name as a new one. Raises RestoreFailedError."""
        ...

    def tree(self, name: str) -> Any:
        """Return the kept object of that name. Raises RestoreFailedError."""
        ...


def _moments(
    optimizer: Optimizer, names: list[tuple[Tensor, str]], *, foreseen: bool
) -> list[tuple[str, str, Tensor]]:
    """Return an optimizer's state tensors: (parameter's name, key, tensor)."""
    found: list[tuple[str, str, Tensor]] = []
    forecast = Forecast(optimizer) if foreseen else None
    for parameter, name in names:
        state = optimizer.state.get(parameter, {})
        for key, value in state.items():
            if isinstance(value, Tensor):
                found.append((name, key, value))
        if forecast is not None and not state:
            found += [(name, one.key, stand_in(one, parameter)) for one in forecast.of(parameter)]
    return found


def _parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _parameter_names(optimizer: Optimizer, names: Mapping[int, str]) -> list[tuple[Tensor, str]]:
    """Name an optimizer's parameters as their modules do, or by their place.

    Only where two modules' names are the same, each is named with its module.
    """
    parameters = list(_parameters(optimizer))
    whole = [names.get(id(one), f"parameter.{place}") for place, one in enumerate(parameters)]
    inner = [name.partition(".")[2] for name in whole]
    is_unique = len(set(inner)) == len(inner)
    return list(zip(parameters, inner if is_unique else whole, strict=True))


def _signature(optimizer: Optimizer) -> int:
    return sum(map(len, optimizer.state.values()))


def _options(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the groups without their parameters: rates, decays."""
    return [
        {key: item for key, item in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]


def _is_description(item: Any) -> bool:
    return isinstance(item, dict) and "kind" in item


def _described(item: Any, parameter: Tensor) -> Any:
    """Say how to create a state tensor again; other values are kept as they are."""
    if not isinstance(item, Tensor):
        return item
    like = isinstance(item, DTensor) == isinstance(parameter, DTensor) and (
        item.shape == parameter.shape
    )
    if isinstance(item, DTensor) and not like:
        raise UnsupportedStateError(
            f"optimizer state of shape {tuple(item.shape)} is a DTensor unlike its parameter"
        )
    return {
        "kind": LIKE_PARAMETER if like else PLAIN,
        "dtype": str(item.dtype).removeprefix("torch."),
        "shape": list(item.shape),
        "on_cpu": item.device.type == "cpu",
    }
