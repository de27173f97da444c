# SPDX-License-Identifier: Apache-2.0
"""DTensors, meshes and placements as each generation of PyTorch 2 pickles them: for tests.

No PyTorch that has them is at hand, so this makes classes that have the same modules, names and attributes, and lets Python's own pickle write
them, protocol 2, as torch.save does. What an object consists of follows PyTorch's sources (torch/distributed/device_mesh.py, _mesh_layout.py,
tensor/_dtensor_spec.py, tensor/placement_types.py, csrc/distributed/python_placement.cpp):

    2.4     placements are dataclasses in torch.distributed._tensor; a mesh has its ranks as a tensor `mesh`, a view of the root's in sub-meshes
    2.5     the same in torch.distributed.tensor
    mesh    nightlies of September 2025: `_layout` besides `mesh`; specs have a shard_order from here on
    _mesh   nightlies after that: the tensor is called `_mesh`, and placements are objects of C++, which have a dict as their state, if only an empty one
    2.10    a mesh has `_rank_map`, the root's ranks in a row, and `_layout` with shape and stride there; shape is a tuple (init_device_mesh)
    size    the same, of DeviceMesh(..) or from_group: shape is a torch.Size
    2.13    since April 2026: a layout consists of axes, each with shape and stride; axes of size 1 have neither; specs have use_strided_shard_as_shard_order
"""
import collections
import contextlib
import dataclasses
import io
import pickle
import sys
import types
import typing

import torch_files

GENERATIONS = ["2.4", "2.5", "mesh", "_mesh", "2.10", "size", "2.13"]


def make_modules(generation):
    """The modules with the classes of a generation, by name."""
    is_first, has_layout = generation == "2.4", generation in ("2.10", "size", "2.13")
    of_c = generation in ("_mesh", "2.10", "size", "2.13")
    modules = {}

    def put(where, kind, name=None):
        kind.__module__, kind.__name__, kind.__qualname__ = where, name or kind.__name__, name or kind.__name__
        for end in [i for i, letter in enumerate(where + ".") if letter == "."]:
            modules.setdefault(where[:end], types.ModuleType(where[:end]))
        setattr(modules[where], kind.__name__, kind)
        return kind

    def function(where, name):
        def made(*arguments):
            raise AssertionError(name)
        return put(where, made, name)

    base = "torch.distributed._tensor" if is_first else "torch.distributed.tensor"
    spec_module = base + (".placement_types" if is_first else "._dtensor_spec")

    class Size(tuple):
        def __reduce__(self):
            return (Size, (tuple(self),))

    class dtype:
        def __init__(self, name):
            self.name, self.__module__ = name, "torch"

        def __reduce__(self):
            return self.name

    class device:
        def __init__(self, *arguments):
            self.arguments = arguments

        def __reduce__(self):
            return (device, self.arguments)

    class layout:
        def __reduce__(self):
            return (modules["torch.serialization"]._get_layout, ("torch.strided",))

    for kind in (Size, device, layout):
        put("torch", kind)
    for name, storage, _ in torch_files.DTYPES.values():
        setattr(modules["torch"], name, dtype(name))
        if storage:
            put("torch", type(storage, (), {}))
    put("torch.storage", type("UntypedStorage", (), {}))
    function("torch.serialization", "_get_layout")
    rebuild_tensor, rebuild_typed = function("torch._utils", "_rebuild_tensor_v2"), function("torch._utils", "_rebuild_tensor_v3")
    rebuild_wrapper, rebuild_type = function("torch._utils", "_rebuild_wrapper_subclass"), function("torch._tensor", "_rebuild_from_type_v2")

    def reduce_tensor(view):
        typed = view.storage.kind is not None and view.dtype == view.storage.dtype
        rest = () if typed else (getattr(modules["torch"], torch_files.DTYPES[view.dtype][0]),)
        return (rebuild_tensor if typed else rebuild_typed,
                (view.storage, view.offset, tuple(view.size), tuple(view.strides), False, collections.OrderedDict()) + rest)

    # ---- placements --------------------------------------------------------------------------------------------------

    class Placement:
        """Of C++: the state is always a dict. Of Python: none where there are no attributes."""
        if of_c:
            def __getstate__(self):
                return dict(self.__dict__)

    class Shard(Placement):
        def __init__(self, dim):
            self.__dict__["dim"] = dim

    class _StridedShard(Placement if of_c else Shard):
        def __init__(self, dim, split_factor):
            self.__dict__.update(dim=dim, split_factor=split_factor)

    class Replicate(Placement):
        pass

    class Partial(Placement):
        def __init__(self, reduce_op="sum"):
            self.__dict__["reduce_op"] = reduce_op

    for kind in (Placement, Shard, _StridedShard, Replicate, Partial):
        put(base + ".placement_types", kind)

    # ---- meshes ------------------------------------------------------------------------------------------------------

    class DeviceMesh:
        pass

    put("torch.distributed.device_mesh", DeviceMesh)

    @dataclasses.dataclass(frozen=True)
    class _MeshLayout:
        shape: typing.Any
        stride: typing.Any

    @dataclasses.dataclass(frozen=True)
    class _FlatLayout:
        shape: typing.Any
        stride: typing.Any

    @dataclasses.dataclass(frozen=True)
    class _ListOfFlatLayouts:
        axes: typing.Any

    if generation == "2.13":
        put("torch.distributed._mesh_layout", _FlatLayout)
        put("torch.distributed._mesh_layout", _ListOfFlatLayouts)
        modules["torch.distributed._mesh_layout"]._MeshLayout = _ListOfFlatLayouts
    else:
        put("torch.distributed._mesh_layout", _MeshLayout)

    # ---- specs -------------------------------------------------------------------------------------------------------

    TensorMeta = typing.NamedTuple("TensorMeta", [("shape", typing.Any), ("stride", typing.Any), ("dtype", typing.Any)])
    ShardOrderEntry = typing.NamedTuple("ShardOrderEntry", [("tensor_dim", typing.Any), ("mesh_dims", typing.Any)])

    class DTensorSpec:
        pass

    for kind in (TensorMeta, ShardOrderEntry, DTensorSpec):
        put(spec_module, kind)

    class DTensor:
        __slots__ = ["_local_tensor", "_spec", "__dict__"]

        def __reduce_ex__(self, protocol):
            shape, stride, kind = self._spec.tensor_meta
            arguments = (DTensor, kind, tuple(shape), stride, 0, layout(), device("cuda", 0), False)
            slots = {name: getattr(self, name) for name in ("_local_tensor", "_spec")}
            return (rebuild_type, (rebuild_wrapper, DTensor, arguments, (self.__dict__ or None, slots)))

    put(base + (".api" if is_first else ""), DTensor)

    modules["make"] = types.SimpleNamespace(**{key: value for key, value in locals().items() if isinstance(value, (type, types.FunctionType))},
                                            generation=generation, has_layout=has_layout)
    return modules


class Pickler(pickle.Pickler):
    """As torch.save's: storages are references to what is kept beside the pickle."""
    def __init__(self, stream, made, modules):
        super().__init__(stream, protocol=2)
        self.made, self.modules, self.storages = made, modules, []

    def persistent_id(self, value):
        if not isinstance(value, torch_files.Storage):
            return None
        if value not in self.storages:
            self.storages.append(value)
        typed = value.kind is not None
        kind = getattr(self.modules["torch"], value.kind) if typed else self.modules["torch.storage"].UntypedStorage
        return ("storage", kind, str(self.storages.index(value)), "cpu", len(value.data) // (value.width if typed else 1))

    def reducer_override(self, value):
        if isinstance(value, torch_files.View):
            return self.made.reduce_tensor(value)
        return NotImplemented


class Torch:
    """One generation of PyTorch, as one rank of a job runs it."""
    def __init__(self, generation, rank):
        self.modules = make_modules(generation)
        self.made = self.modules.pop("make")
        self.generation, self.rank = generation, rank

    @contextlib.contextmanager
    def imported(self):
        """Python's pickle looks classes up where they say they are."""
        hidden = {name: sys.modules[name] for name in list(sys.modules) if name.split(".")[0] == "torch"}
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(self.modules)
        try:
            yield
        finally:
            for name in self.modules:
                del sys.modules[name]
            sys.modules.update(hidden)

    def dump(self, value, first=()):
        """The pickle, and the storages that it refers to, the given ones first."""
        stream = io.BytesIO()
        with self.imported():
            pickler = Pickler(stream, self.made, self.modules)
            pickler.storages += first
            pickler.dump(value)
        return stream.getvalue(), pickler.storages

    def write(self, path, value):
        torch_files.write_bytes(path, torch_files.pack_parts(*self.dump(value)))

    # ---- meshes ------------------------------------------------------------------------------------------------------

    def root(self, ranks, shape, names=None, dtype="I32"):
        """A mesh with its ranks in row-major order, from which others can be taken. PyTorch has ranks of 32 bits."""
        made = types.SimpleNamespace(ranks=list(ranks), shape=tuple(shape), strides=torch_files.dense(shape), mesh=None)
        made.storage = torch_files.Storage(dtype, b"".join(rank.to_bytes(torch_files.DTYPES[dtype][2], "little") for rank in ranks))
        made.mesh = self.sub_mesh(made, [[axis] for axis in range(len(shape))], names)
        return made

    def sub_mesh(self, root, axes, names=None):
        """Some axes of a root, as root["dp", "tp"] gives them. axes: for each axis those of the root, several if they were flattened."""
        made = self.made.DeviceMesh()
        index = root.ranks.index(self.rank)
        digits = [index // step % size for step, size in zip(root.strides, root.shape)]
        coordinate = []
        for axis in axes:
            coordinate.append(0)
            for part in axis:
                coordinate[-1] = coordinate[-1] * root.shape[part] + digits[part]
        fill = self.row_state if self.made.has_layout else self.array_state
        made.__dict__.update(fill(root, axes, names, digits, coordinate))
        return made

    def array_state(self, root, axes, names, digits, coordinate):
        """`mesh`: in a sub-mesh, a view of the root's tensor, unless flattening had to copy."""
        ranks, shape, strides, storage = root.ranks, root.shape, root.strides, root.storage
        sizes, steps, is_view = [], [], True
        for axis in axes:
            size = 1
            for part in axis:
                size *= shape[part]
            sizes.append(size)
            steps.append(strides[axis[-1]])
            is_view = is_view and all(strides[a] == strides[b] * shape[b] for a, b in zip(axis, axis[1:]))
        used = [part for axis in axes for part in axis]
        offset = sum(d * s for part, (d, s) in enumerate(zip(digits, strides)) if part not in used)
        flat = [offset]
        for axis in axes:
            for part in axis:
                flat = [at + i * strides[part] for at in flat for i in range(shape[part])]
        members = [ranks[at] for at in flat]
        if not is_view:
            storage = torch_files.Storage("I32", b"".join(rank.to_bytes(4, "little") for rank in members))
            offset, steps = 0, torch_files.dense(sizes)
        tensor = torch_files.View(storage, offset, sizes, steps)
        if self.generation in ("2.4", "2.5"):
            return {"device_type": "cuda", "mesh": tensor, "mesh_dim_names": names, "_flatten_mesh_list": tuple(members), "_thread_id": None,
                    "_dim_group_infos": [("", list(members), "mesh_%d" % i) for i in range(len(axes))], "_coordinate_on_dim": coordinate, "_hash": 12345}
        layout = self.made._MeshLayout(tuple(sizes), tuple(strides[axis[-1]] for axis in axes))
        if self.generation == "mesh":
            return {"device_type": "cuda", "mesh": tensor, "mesh_dim_names": names, "_layout": layout, "_flatten_mesh_list": tuple(members),
                    "_thread_id": None, "_dim_group_names": ["1"] * len(axes), "_coordinate_on_dim": coordinate}
        return {"_device_type": "cuda", "_mesh": tensor, "_mesh_dim_names": names, "_layout": layout, "_root_mesh": root.mesh,
                "_flatten_mesh_list": tuple(members), "_thread_id": None, "_flatten_mapping": {}, "_dim_group_names": ["1"] * len(axes),
                "_coordinate_on_dim": coordinate}

    def row_state(self, root, axes, names, digits, coordinate):
        """`_rank_map` is the root's; `_layout` says where the axes lie in it."""
        ranks, shape, strides = root.ranks, root.shape, root.strides
        parts = [coalesce([(shape[part], strides[part]) for part in axis]) for axis in axes]
        if self.generation == "2.13":
            parts = [[pair for pair in pairs if pair[0] != 1] for pairs in parts]
            layout = self.made._ListOfFlatLayouts(tuple(
                self.made._FlatLayout(tuple(size for size, _ in pairs), tuple(step for _, step in pairs)) for pairs in parts))
        else:
            def nest(pairs, which):
                return pairs[0][which] if len(pairs) == 1 else tuple(pair[which] for pair in pairs)
            sizes, steps = (tuple(nest(pairs, which) for pairs in parts) for which in (0, 1))
            is_plain = all(len(pairs) == 1 for pairs in parts)
            layout = self.made._MeshLayout(self.made.Size(sizes) if self.generation == "size" and is_plain else sizes, steps)
        state = {"_device_type": "cuda", "_layout": layout, "_rank_map": torch_files.View(root.storage, 0, (len(ranks),), (1,)),
                 "_mesh_dim_names": names, "_root_mesh": root.mesh, "_flatten_rank_map": tuple(ranks), "_thread_id": None, "_flatten_mapping": {},
                 "_dim_group_names": ["1"] * len(axes)}
        if self.generation == "2.13":
            state.update(_rank=self.rank, _coordinate_on_dim=tuple(coordinate), _hash=None)
        else:
            state["_coordinate_on_dim"] = coordinate
        return state

    # ---- tensors -----------------------------------------------------------------------------------------------------

    def placement(self, text):
        """"S0", "R", "P", or "S0*2" for _StridedShard of dim 0 with the split factor 2."""
        if text in "RP":
            return self.made.Replicate() if text == "R" else self.made.Partial()
        dim, _, factor = text[1:].partition("*")
        return self.made._StridedShard(int(dim), int(factor)) if factor else self.made.Shard(int(dim))

    def dtensor(self, local, shape, mesh, placements, order="default", strided_is_order=None):
        """order: "default", which is what a spec works out by itself, or [(dim, (axis, ..)), ..]."""
        local = local if isinstance(local, torch_files.View) else torch_files.tensor(local)
        dtype = getattr(self.modules["torch"], torch_files.DTYPES[local.dtype][0])
        spec, made = self.made.DTensorSpec(), self.made.DTensor()
        spec.mesh, spec.placements = mesh, tuple(self.placement(text) for text in placements)
        spec.tensor_meta = self.made.TensorMeta(self.made.Size(shape), torch_files.dense(shape), dtype)
        is_strided = any("*" in text for text in placements)
        if self.generation not in ("2.4", "2.5"):
            if self.generation == "2.13":
                spec.use_strided_shard_as_shard_order = is_strided if strided_is_order is None else strided_is_order
                as_order = spec.use_strided_shard_as_shard_order
            if order == "default":
                cut = sorted({text[1:].partition("*")[0] for text in placements if text[0] == "S"}, key=int)
                order = [(int(dim), tuple(axis for axis, text in enumerate(placements) if text[0] == "S" and text[1:].partition("*")[0] == dim))
                         for dim in cut]
                if self.generation != "2.13" and is_strided:
                    order = []
                if self.generation == "2.13" and as_order:
                    order = None
            spec.shard_order = None if order is None else tuple(self.made.ShardOrderEntry(dim, tuple(axes)) for dim, axes in order)
        spec._hash = None
        made._local_tensor, made._spec = local, spec
        return made


def coalesce(pairs):
    """Joins neighbours that lie in one row, as layouts do with flattened axes; an axis of size 1 alone stays."""
    joined = []
    for size, step in pairs:
        if joined and joined[-1][1] == size * step:
            joined[-1] = (joined[-1][0] * size, step)
        elif size != 1 or len(pairs) == 1:
            joined.append((size, step))
    return joined or [(1, 1)]
