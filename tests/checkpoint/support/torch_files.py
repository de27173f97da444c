# SPDX-License-Identifier: Apache-2.0
"""Files as torch.save of PyTorch 1.13 and 2.x writes them, made byte by byte without PyTorch: for tests.
Nothing here shares code with the library.

A tensor is (dtype, shape, bytes) as in files.py, or a View of a storage; what PyTorch 2 has and no PyTorch on this machine can make
(DTensor, meshes, placements) is built from calls and objects. dump() gives protocol 2.
"""
import io
import os
import pickle
import struct
import zipfile

# safetensors' name: PyTorch's, the class of its storage, bytes of an element
DTYPES = {"F32": ("float32", "FloatStorage", 4), "F64": ("float64", "DoubleStorage", 8), "F16": ("float16", "HalfStorage", 2),
          "BF16": ("bfloat16", "BFloat16Storage", 2), "I64": ("int64", "LongStorage", 8), "I32": ("int32", "IntStorage", 4),
          "I16": ("int16", "ShortStorage", 2), "I8": ("int8", "CharStorage", 1), "U8": ("uint8", "ByteStorage", 1),
          "BOOL": ("bool", "BoolStorage", 1), "C64": ("complex64", "ComplexFloatStorage", 8),
          "C128": ("complex128", "ComplexDoubleStorage", 16), "F8_E4M3": ("float8_e4m3fn", None, 1),
          "F8_E5M2": ("float8_e5m2", None, 1), "F8_E8M0": ("float8_e8m0fnu", None, 1), "U16": ("uint16", None, 2),
          "U32": ("uint32", None, 4), "U64": ("uint64", None, 8), "F4": ("float4_e2m1fn_x2", None, 1)}


class Global:
    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    """function(*arguments), or with new=True an object made by __new__; then its state, items and pairs."""
    def __init__(self, function, arguments=(), state=None, new=False, pairs=None, items=None):
        self.function, self.arguments, self.state, self.new, self.pairs, self.items = function, arguments, state, new, pairs, items


class Persistent:
    def __init__(self, value):
        self.value = value


class Storage:
    """Bytes under a key; the key is given when it is first written."""
    def __init__(self, dtype, data):
        self.dtype, self.data = dtype, bytes(data)
        self.name, self.kind, self.width = DTYPES[dtype]


class View:
    """A tensor in a storage: offset and strides in elements."""
    def __init__(self, storage, offset, size, strides, dtype=None, metadata=None):
        self.storage, self.offset, self.size, self.strides = storage, offset, tuple(size), tuple(strides)
        self.dtype, self.metadata = dtype or storage.dtype, metadata


def dense(shape):
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * max(shape[d + 1], 1)
    return tuple(strides)


def tensor(array):
    """A dense tensor of its own storage, from (dtype, shape, bytes)."""
    dtype, shape, data = array
    return View(Storage(dtype, data), 0, shape, dense(shape))


def integers(numbers, shape=None):
    return tensor(("I64", (len(numbers),) if shape is None else shape, struct.pack("<%dq" % len(numbers), *numbers)))


class Pickler:
    """Protocol 2. A shared list, dict, View, Call or Storage is written once and then fetched from the memo."""
    def __init__(self):
        self.out, self.memo, self.kept, self.storages, self.view_field = bytearray(b"\x80\x02"), {}, [], [], False

    def put(self, value):
        self.memo[id(value)] = len(self.memo)
        self.kept.append(value)
        self.out += b"r" + struct.pack("<I", self.memo[id(value)])

    def text(self, value):
        data = value.encode("utf-8", "surrogatepass")
        self.out += b"X" + struct.pack("<I", len(data)) + data

    def integer(self, value):
        if -2**31 <= value < 2**31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.out += b"\x8a" + bytes([len(data)]) + data

    def marked(self, values, code):
        self.out += b"("
        for value in values:
            self.save(value)
        self.out += code

    def save_view(self, view):
        typed = view.storage.kind is not None and view.dtype == view.storage.dtype
        arguments = [view.storage, view.offset, view.size, view.strides, False, Call(Global("collections", "OrderedDict"))]
        if not typed:
            arguments.append(Global("torch", DTYPES[view.dtype][0]))
        if view.metadata is not None:
            arguments.append(view.metadata)
        self.save(Call(Global("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3"), tuple(arguments)))

    def save_storage(self, storage):
        if storage not in self.storages:
            self.storages.append(storage)
        key = str(self.storages.index(storage))
        typed = storage.kind is not None
        kind = Global("torch", storage.kind) if typed else Global("torch.storage", "UntypedStorage")
        count = len(storage.data) // (storage.width if typed else 1)
        self.save(Persistent(("storage", kind, key, "cpu", count) + ((None,) if self.view_field else ())))

    def save_call(self, call):
        self.save(call.function)
        self.save(tuple(call.arguments))
        self.out += b"\x81" if call.new else b"R"
        self.put(call)
        if call.pairs is not None:
            self.marked([part for pair in call.pairs.items() for part in pair], b"u")
        if call.items is not None:
            self.marked(call.items, b"e")
        if call.state is not None:
            self.save(call.state)
            self.out += b"b"

    def save(self, value):
        if id(value) in self.memo and not isinstance(value, (int, str, float)):
            self.out += b"j" + struct.pack("<I", self.memo[id(value)])
        elif value is None:
            self.out += b"N"
        elif value is True or value is False:
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, tuple):
            self.marked(value, b"t")
        elif isinstance(value, list):
            self.out += b"]"
            self.put(value)
            self.marked(value, b"e")
        elif isinstance(value, dict):
            self.out += b"}"
            self.put(value)
            self.marked([part for pair in value.items() for part in pair], b"u")
        elif isinstance(value, Global):
            self.out += b"c%s\n%s\n" % (value.module.encode(), value.name.encode())
        elif isinstance(value, Persistent):
            self.save(value.value)
            self.out += b"Q"
        elif isinstance(value, Storage):
            self.save_storage(value)
        elif isinstance(value, View):
            self.save_view(value)
            self.put(value)
        elif isinstance(value, Call):
            self.save_call(value)
        else:
            raise TypeError(type(value))

    def dump(self, value):
        self.save(value)
        return bytes(self.out + b".")


def pack(value, **how):
    """The bytes of a zip file."""
    pickler = Pickler()
    data = pickler.dump(value)
    return pack_parts(data, pickler.storages, **how)


def pack_parts(data, storages, folder="archive", byteorder="little", compress=False):
    """A pickle and the storages that it refers to."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as file:
        file.writestr(folder + "/data.pkl", data)
        if byteorder:
            file.writestr(folder + "/byteorder", byteorder)
        for i, storage in enumerate(storages):
            file.writestr("%s/data/%d" % (folder, i), storage.data)
        file.writestr(folder + "/version", "3\n")
    return stream.getvalue()


def pack_legacy(value):
    """The bytes as they were before PyTorch 1.6."""
    pickler, front = Pickler(), b""
    pickler.view_field = True
    for part in (0x1950a86a20f9469cfc6c, 1001, {"little_endian": True, "protocol_version": 1001, "type_sizes": {"int": 4}}):
        front += Pickler().dump(part)
    front += pickler.dump(value)
    keys = [str(i) for i in range(len(pickler.storages))][::-1]
    front += Pickler().dump(keys)
    for key in keys:
        storage = pickler.storages[int(key)]
        front += struct.pack("<Q", len(storage.data) // (storage.width if storage.kind else 1)) + storage.data
    return front


def write_bytes(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def write(path, value, **how):
    legacy = how.pop("legacy", False)
    write_bytes(path, pack_legacy(value) if legacy else pack(value, **how))


# ---- what PyTorch 2 has --------------------------------------------------------------------------------------------

def ordered(pairs):
    return Call(Global("collections", "OrderedDict"), pairs=pairs)


def size(numbers):
    return Call(Global("torch", "Size"), (tuple(numbers),))


def mesh(ranks, shape=None, names=None):
    """As PyTorch 2.0 had it: an array of ranks. What later ones have is in torch_objects.py."""
    return Call(Global("torch.distributed.device_mesh", "DeviceMesh"), new=True,
                state={"device_type": "cuda", "mesh": integers(ranks, shape), "mesh_dim_names": names})


def placement(text, module="torch.distributed.tensor.placement_types"):
    """"S0", "R", "P", or "S0*2" for _StridedShard of dim 0 with the split factor 2."""
    if text == "R":
        return Call(Global(module, "Replicate"), new=True)
    if text == "P":
        return Call(Global(module, "Partial"), new=True, state={"reduce_op": "sum"})
    dim, _, factor = text[1:].partition("*")
    if factor:
        return Call(Global(module, "_StridedShard"), new=True, state={"dim": int(dim), "split_factor": int(factor)})
    return Call(Global(module, "Shard"), new=True, state={"dim": int(dim)})


def dtensor(local, shape, the_mesh, placements, module="torch.distributed.tensor"):
    kind = Global(module, "DTensor")
    local = local if isinstance(local, View) else tensor(local)
    state = {"mesh": the_mesh, "placements": tuple(placement(text) for text in placements),
             "tensor_meta": Call(Global("torch.distributed.tensor._dtensor_spec", "TensorMeta"),
                                 (size(shape), dense(shape), Global("torch", DTYPES[local.dtype][0])), new=True)}
    spec = Call(Global("torch.distributed.tensor._dtensor_spec", "DTensorSpec"), new=True, state=state)
    arguments = (kind, Global("torch", DTYPES[local.dtype][0]), tuple(shape), dense(shape), 0,
                 Call(Global("torch.serialization", "_get_layout"), ("torch.strided",)), Call(Global("torch", "device"), ("cuda", 0)), False)
    return Call(Global("torch._tensor", "_rebuild_from_type_v2"),
                (Global("torch._utils", "_rebuild_wrapper_subclass"), kind, arguments,
                 (None, {"_local_tensor": local, "_spec": spec})))


def sharded(shards, shape, dtype, rank, world, new=False):
    """A ShardedTensor; shards: [(offsets, (dtype, shape, bytes))]. new: as an object, else by the rebuilding function."""
    base = "torch.distributed._shard."
    def describe(offsets, sizes):
        return Call(Global(base + "metadata", "ShardMetadata"), new=True,
                    state=(None, {"shard_offsets": list(offsets), "shard_sizes": list(sizes), "placement": None}))
    kind = Global(base + "sharded_tensor.api", "ShardedTensor")
    local = [Call(Global(base + "sharded_tensor.shard", "Shard"), new=True,
                  state={"tensor": tensor(array), "metadata": describe(offsets, array[1])}) for offsets, array in shards]
    properties = Call(Global(base + "sharded_tensor.metadata", "TensorProperties"), new=True,
                      state=(Global("torch", DTYPES[dtype][0]), None, False, 0, False))
    metadata = Call(Global(base + "sharded_tensor.metadata", "ShardedTensorMetadata"), new=True,
                    state={"shards_metadata": [], "size": size(shape), "tensor_properties": properties})
    group = Call(Call(Global("__builtin__", "getattr"), (kind, "ProcessGroupState")), new=True,
                 state={"local_rank": rank, "global_rank": rank, "local_world_size": world, "global_world_size": world})
    state = (local, metadata, group, None, False)
    if new:
        return Call(kind, new=True, state=state)
    return Call(Global("torch._tensor", "_rebuild_from_type_v2"),
                (Global("torch._utils", "_rebuild_wrapper_subclass"), kind, (kind,), state))


def chunk(n, k, i):
    """PyTorch's chunk i of k: where it begins and ends."""
    step = -(-n // k)
    return min(i * step, n), min((i + 1) * step, n)


# ---- reading, by Python's own unpickler ------------------------------------------------------------------------------

class Loaded:
    """A tensor of a file: dtype, shape, bytes, and the key of its storage."""
    def __init__(self, dtype, shape, data, key):
        self.dtype, self.shape, self.data, self.key = dtype, tuple(shape), data, key

    def whole(self):
        return (self.dtype, self.shape, self.data)


class Unpickler(pickle.Unpickler):
    """Knows a few names, those that torch.load(weights_only=True) takes, and refuses all others."""
    def __init__(self, data, read):
        super().__init__(io.BytesIO(data))
        self.read = read

    def persistent_load(self, saved_id):
        return saved_id

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, *rest: self.rebuild(storage, storage[1], *rest)
        if (module, name) == ("torch._utils", "_rebuild_tensor_v3"):
            return lambda storage, offset, size, strides, grad, hooks, dtype: self.rebuild(storage, dtype, offset, size, strides, grad, hooks)
        if (module, name) == ("torch", "Size"):
            return tuple
        if module in ("torch", "torch.storage"):
            return name
        raise pickle.UnpicklingError(f"{module}.{name}")

    def rebuild(self, storage, kind, offset, size, strides, grad, hooks):
        dtype = next(key for key, row in DTYPES.items() if kind in row[:2])
        width = DTYPES[dtype][2]
        assert storage[0] == "storage" and storage[3] == "cpu" and grad is False and hooks == {}, storage
        data = self.read(storage[2])
        assert len(data) == storage[4] * (1 if storage[1] == "UntypedStorage" else width), (storage, len(data))
        assert offset == 0 and tuple(strides) == dense(size), (size, strides)
        return Loaded(dtype, size, data, storage[2])


def load(path):
    """What a file of ours holds; its zip file is checked as Python does, CRCs included."""
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None, path
        assert all(info.CRC != 0 or info.file_size == 0 for info in file.infolist()), path
        assert file.read("archive/version") == b"3\n" and file.read("archive/byteorder") == b"little"
        for info in file.infolist():
            with open(path, "rb") as whole:
                whole.seek(info.header_offset + 26)
                name, extra = struct.unpack("<HH", whole.read(4))
            assert (info.header_offset + 30 + name + extra) % 64 == 0, (path, info.filename)
        return Unpickler(file.read("archive/data.pkl"), lambda key: file.read("archive/data/" + key)).load()


def load_value(data):
    """A value without tensors, from the bytes of a torch.save."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.testzip() is None
        return Unpickler(file.read("archive/data.pkl"), None).load()


class DTensorUnpickler(Unpickler):
    """Knows DTensors too, by the class names of PyTorch 2.5 and later, and returns (local tensor, full shape, mesh, placements)."""
    CLASSES = {"torch.distributed.device_mesh": ["DeviceMesh"], "torch.distributed.tensor": ["DTensor"],
               "torch.distributed.tensor._dtensor_spec": ["DTensorSpec", "TensorMeta"],
               "torch.distributed.tensor.placement_types": ["Shard", "Replicate", "_StridedShard"]}

    def find_class(self, module, name):
        if name in self.CLASSES.get(module, []):
            return self.make_class(name)
        known = {("torch._tensor", "_rebuild_from_type_v2"): self.rebuild_dtensor, ("torch._utils", "_rebuild_wrapper_subclass"): "wrapper",
                 ("torch.serialization", "_get_layout"): lambda text: text, ("torch", "device"): lambda text: text}
        return known[module, name] if (module, name) in known else super().find_class(module, name)

    @staticmethod
    def make_class(name):
        def new(kind, *arguments):
            made = object.__new__(kind)
            made.name, made.arguments, made.state = name, arguments, None
            return made
        return type(name, (), {"__new__": new, "__setstate__": lambda made, state: setattr(made, "state", state)})

    def rebuild_dtensor(self, function, kind, arguments, state):
        inner_kind, dtype, size, strides, offset, layout, device, grad = arguments
        assert function == "wrapper" and kind.__name__ == inner_kind.__name__ == "DTensor" and state[0] is None, arguments
        assert (offset, layout, device, grad) == (0, "torch.strided", "cpu", False) and tuple(strides) == dense(size)
        local, spec = state[1]["_local_tensor"], state[1]["_spec"].state
        assert DTYPES[local.dtype][0] == dtype, (local.dtype, dtype)
        meta_size, meta_strides, meta_dtype = spec["tensor_meta"].arguments
        assert (tuple(meta_size), tuple(meta_strides), meta_dtype) == (tuple(size), tuple(strides), dtype)
        texts = []
        for made in spec["placements"]:
            state_of = made.state or {}
            texts.append({"Replicate": "R", "Shard": "S%s" % state_of.get("dim"), "_StridedShard": "S%s*%s" % (state_of.get("dim"), state_of.get("split_factor"))}[made.name])
        return local, tuple(size), spec["mesh"].state, texts


def load_dtensors(path):
    """A file of one rank with DTensors: {name: (local tensor, full shape, state of the mesh, placements), or a plain tensor or value}."""
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None and all(info.CRC != 0 or info.file_size == 0 for info in file.infolist()), path
        return DTensorUnpickler(file.read("archive/data.pkl"), lambda key: file.read("archive/data/" + key)).load()
