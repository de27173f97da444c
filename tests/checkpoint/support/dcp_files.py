# SPDX-License-Identifier: Apache-2.0
"""PyTorch's distributed checkpoints made and read without PyTorch, for tests: nothing here shares code with the library.

The classes of `.metadata` are stand-ins with PyTorch's names in modules of PyTorch's names, so that Python's own pickler writes what
PyTorch would, and its unpickler reads what we write. A model is {name: (dtype, shape, bytes)}, a value {name: object}.
"""
import enum
import io
import os
import pickle
import struct
import sys
import types
import zipfile

import files
import torch_files

DTYPES = {ours: entry[0] for ours, entry in torch_files.DTYPES.items()}


# ---- classes ---------------------------------------------------------------------------------------------------------

class Torch:
    """Modules of one release: "1.13", "2.0" or "2.6"."""
    def __init__(self, release="2.6"):
        base = "torch.distributed._shard.checkpoint" if release == "1.13" else "torch.distributed.checkpoint"
        shard = "torch.distributed._shard.sharded_tensor.metadata"
        self.modules = {}
        for name in ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "MetadataIndex", "StorageMeta"):
            setattr(self, name, self.make_class(base + ".metadata", name))
        self.MetadataIndex.__hash__ = lambda index: hash((index.fqn, getattr(index, "offset", None)))
        self.MetadataIndex.__eq__ = lambda a, b: (a.fqn, getattr(a, "offset", None)) == (b.fqn, getattr(b, "offset", None))
        self._StorageInfo = self.make_class(base + ".filesystem", "_StorageInfo")
        self.other = self.make_class("torch.distributed.checkpoint.rdma", "_RdmaObjectInfo")
        properties = base + ".metadata" if release == "2.6" else shard
        self.TensorProperties = self.make_class(properties, "TensorProperties")
        self.TensorProperties.__getstate__ = lambda this: this.state
        self.TensorProperties.__setstate__ = lambda this, state: setattr(this, "state", state)
        # What we write is read in all releases, by the oldest home of these two.
        for module in {properties, shard}:
            name = "_MEM_FORMAT_ENCODING" if module == base + ".metadata" else "MEM_FORMAT_ENCODING"
            made = enum.Enum(name, {"TORCH_CONTIGUOUS_FORMAT": 0}, module=module)
            setattr(self.module(module), name, made)
            if module == properties:
                self.memory_format = made
        if properties != shard:
            self.module(shard).TensorProperties = self.TensorProperties
        self.module("torch").Size = self.Size = type("Size", (tuple,), {"__module__": "torch", "__reduce__": lambda this: (this.__class__, (tuple(this),))})
        self.layout = self.make_function("torch.serialization", "_get_layout", lambda text: Layout(self.layout, text))
        for name in DTYPES.values():
            setattr(self.module("torch"), name, Named("torch", name))

    def module(self, name):
        for i in range(1, name.count(".") + 2):
            part = ".".join(name.split(".")[:i])
            self.modules.setdefault(part, types.ModuleType(part))
        return self.modules[name]

    def make_class(self, module, name):
        made = type(name, (), {"__module__": module, "__init__": lambda this, **fields: this.__dict__.update(fields)})
        setattr(self.module(module), name, made)
        return made

    def make_function(self, module, name, function):
        function.__module__, function.__qualname__, function.__name__ = module, name, name
        setattr(self.module(module), name, function)
        return function

    def __enter__(self):
        self.saved = {name: sys.modules.get(name) for name in self.modules}
        sys.modules.update(self.modules)
        return self

    def __exit__(self, *_):
        for name, module in self.saved.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


class Layout:
    def __init__(self, function, text):
        self.function, self.text = function, text

    def __reduce__(self):
        return self.function, (self.text,)


class Named:
    """A global that pickles by its name."""
    def __init__(self, module, name):
        self.module, self.name = module, name

    def __reduce__(self):
        return self.name  # looked up in the module of the class below

    @property
    def __module__(self):
        return "torch"


# ---- boxes -----------------------------------------------------------------------------------------------------------

def runs(shape, offset, size):
    """Where the rows of a box begin in the whole, in elements, and how long each is."""
    places = [0]
    for extent, begin, count in list(zip(shape, offset, size))[:-1]:
        places = [place * extent + begin + i for place in places for i in range(count)]
    if shape:
        places = [place * shape[-1] + offset[-1] for place in places]
    return places, size[-1] if shape else 1


def take(array, offset, size):
    """The bytes of a box of (dtype, shape, bytes), row-major."""
    dtype, shape, data = array
    width = files.BITS[dtype] // 8
    places, row = runs(shape, offset, size)
    return b"".join(data[place * width:(place + row) * width] for place in places)


def chunks(shape, world):
    """Dim 0 in chunks, as FSDP2 cuts it: also the empty ones."""
    if not shape:
        return [((), ())]
    step = -(-shape[0] // world) if shape[0] else 0
    result = []
    for rank in range(world):
        begin = min(rank * step, shape[0])
        result.append(((begin,) + (0,) * (len(shape) - 1), (min(step, shape[0] - begin),) + tuple(shape[1:])))
    return result


# ---- writing ---------------------------------------------------------------------------------------------------------

class Writer:
    """A checkpoint in the making. add() puts entries into files, close() writes all of it."""
    def __init__(self, torch, folder, protocol=4):
        self.torch, self.folder, self.protocol = torch, folder, protocol
        self.files, self.tensors, self.stored, self.paths = {}, {}, {}, {}

    def put(self, file, data):
        held = self.files.setdefault(file, bytearray())
        held += data
        return len(held) - len(data)

    def describe(self, name, dtype, shape):
        torch = self.torch
        properties = torch.TensorProperties()
        with torch:
            properties.state = (getattr(torch.modules["torch"], DTYPES[dtype]), torch.layout("torch.strided"), False,
                                torch.memory_format.TORCH_CONTIGUOUS_FORMAT, False)
        self.tensors.setdefault(name, torch.TensorStorageMetadata(properties=properties, size=torch.Size(shape), chunks=[]))

    def store(self, name, offset, size, file, data, length=None, at=None, transforms=None):
        """One entry of a tensor."""
        torch, chunk = self.torch, self.torch.Size(offset)
        held = self.tensors[name].chunks
        held.append(torch.ChunkStorageMetadata(offsets=chunk, sizes=torch.Size(size)))
        fields = {} if transforms is None else {"transform_descriptors": transforms}
        at = self.put(file, data) if at is None else at
        self.stored[torch.MetadataIndex(fqn=name, offset=chunk, index=len(held) - 1)] = torch._StorageInfo(
            relative_path=file, offset=at, length=len(data) if length is None else length, **fields)

    def add(self, name, array, world, view=None, transform=None):
        """A tensor cut by dim 0 over files __R_0.distcp. view: how a chunk's torch.save looks; transform: (descriptors, function)."""
        self.describe(name, array[0], array[1])
        self.paths.setdefault(name, (name,))
        for rank, (offset, size) in enumerate(chunks(array[1], world)):
            if 0 in size and 0 not in array[1]:
                self.tensors[name].chunks.append(self.torch.ChunkStorageMetadata(offsets=self.torch.Size(offset), sizes=self.torch.Size(size)))
                self.files.setdefault(f"__{rank}_0.distcp", bytearray())
                continue
            local = (array[0], size, take(array, offset, size))
            data = torch_files.pack(torch_files.tensor(local) if view is None else view(local))
            descriptors = None
            if transform is not None:
                descriptors, data = transform[0], transform[1](data)
            self.store(name, offset, size, f"__{rank}_0.distcp", data, transforms=descriptors)

    def add_bytes(self, name, value, file="__0_0.distcp"):
        """An object that is no tensor."""
        data = torch_files.pack(value)
        self.tensors[name] = self.torch.BytesStorageMetadata()
        self.paths.setdefault(name, (name,))
        self.stored[self.torch.MetadataIndex(fqn=name)] = self.torch._StorageInfo(relative_path=file, offset=self.put(file, data), length=len(data))
        return data

    def metadata(self, **more):
        torch = self.torch
        return torch.Metadata(state_dict_metadata=self.tensors, planner_data=self.paths, storage_data=self.stored,
                              storage_meta=torch.StorageMeta(checkpoint_id=None, save_id="s", load_id=None, modules=[]), **more)

    def close(self, name=".metadata", **more):
        os.makedirs(self.folder, exist_ok=True)
        for file, data in self.files.items():
            with open(os.path.join(self.folder, file), "wb") as stream:
                stream.write(data)
        with self.torch, open(os.path.join(self.folder, name), "wb") as stream:
            stream.write(pickle.dumps(self.metadata(**more), protocol=self.protocol))


def write(folder, model, world, release="2.6", protocol=4):
    writer = Writer(Torch(release), folder, protocol)
    for name, array in model.items():
        writer.add(name, array, world)
    writer.close(**({"version": "1.0.0"} if release == "2.6" else {}))


# ---- reading ---------------------------------------------------------------------------------------------------------

class EntryReader(pickle.Unpickler):
    """One torch.save: its tensor as (dtype name, shape, strides, offset, storage key)."""
    def persistent_load(self, pid):
        return pid

    def find_class(self, module, name):
        if name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return lambda *arguments: arguments
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        return module, name


def read_entry(data):
    """(dtype, shape, bytes) of an entry; CRCs are checked by zipfile."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "archive/data.pkl" and archive.read("archive/version") == b"3\n"
        for info in archive.infolist():
            content = archive.read(info)
            assert info.CRC == __import__("zlib").crc32(content), info.filename
        found = EntryReader(io.BytesIO(archive.read("archive/data.pkl"))).load()
        storage, offset, size, strides = found[:4]
        assert offset == 0 and tuple(strides) == torch_files.dense(size), found
        kind = storage[1][1]
        name = found[6][1] if len(found) > 6 else next(entry[0] for entry in torch_files.DTYPES.values() if entry[1] == kind)
        dtype = next(ours for ours, entry in torch_files.DTYPES.items() if entry[0] == name)
        values = archive.read("archive/data/" + storage[2])
        assert len(values) == files.size_of(dtype, size)
        return dtype, tuple(size), values


def read(folder, release="2.6"):
    """({name: (dtype, shape, bytes)}, {name: bytes}, {name: path}) of what reshard wrote, with every claim of .metadata checked."""
    model, values = {}, {}
    with Torch(release), open(os.path.join(folder, ".metadata"), "rb") as stream:
        metadata = pickle.load(stream)
    stored = {(index.fqn, index.offset): info for index, info in metadata.storage_data.items()}
    used = {}
    for name, entry in metadata.state_dict_metadata.items():
        if type(entry).__name__ == "BytesStorageMetadata":
            info = stored.pop((name, None))
            with open(os.path.join(folder, info.relative_path), "rb") as stream:
                stream.seek(info.offset)
                values[name] = stream.read(info.length)
            continue
        shape = tuple(entry.size)
        dtype = next(ours for ours, theirs in DTYPES.items() if theirs == entry.properties.state[0].name)
        width, whole, seen = files.BITS[dtype] // 8, bytearray(files.size_of(dtype, shape)), 0
        for chunk in entry.chunks:
            info = stored.pop((name, chunk.offsets))
            used.setdefault(info.relative_path, []).append((info.offset, info.offset + info.length))
            with open(os.path.join(folder, info.relative_path), "rb") as stream:
                stream.seek(info.offset)
                found = read_entry(stream.read(info.length))
            assert found[:2] == (dtype, tuple(chunk.sizes)), (name, found[:2], chunk.sizes)
            places, row = runs(shape, chunk.offsets, chunk.sizes)
            for i, place in enumerate(places):
                whole[place * width:(place + row) * width] = found[2][i * row * width:(i + 1) * row * width]
            seen += len(places) * row
        assert seen == files.volume(shape), (name, seen)
        model[name] = (dtype, shape, bytes(whole))
    assert not stored, stored
    for ranges in used.values():
        ranges.sort()
        assert all(a[1] <= b[0] for a, b in zip(ranges, ranges[1:]))
    return model, values, metadata.planner_data
