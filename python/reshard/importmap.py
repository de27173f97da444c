# SPDX-License-Identifier: Apache-2.0
"""`python -m reshard.importmap MODEL_TYPE CHECKPOINT` prints a map (docs/maps.md) from the names in a checkpoint's files to those that transformers
gives the model in memory, by asking the transformers that is installed: its registry of renamings and conversions is run over the names of the
checkpoint, and what the operations would do to tensors is followed on axes instead of numbers. No weight is read.

A checkpoint's names are grouped by the tensor they end up in. Each group becomes an equation; equations that differ only in numbers become one line
with captures. What is not renamed at all is left to `* = *`.
"""
import argparse
import re
import sys
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

LETTERS = "abcdfghijklqrstuvwxyz"  # for axes; e stacks, and the others are captures
CAPTURES = "nmop"


class ImportFailure(Exception):
    """What cannot be said as a map."""


class Axis:
    """A part of a dimension. `parts` are what it is made of once an operation has taken it apart: a product, or blocks of a sum."""

    def __init__(self, size: int, name: Optional[str] = None):
        self.size, self.name = size, name
        self.parts: Optional[List["Axis"]] = None
        self.blocks: Optional[List["Axis"]] = None
        self.same: "Axis" = self  # the axis whose name it shares, unless one of the two is taken apart

    def leaves(self) -> List["Axis"]:
        inner = self.parts if self.parts is not None else self.blocks
        return [self] if inner is None else [leaf for part in inner for leaf in part.leaves()]


Dims = List[List[Axis]]


class Value:
    """A tensor on its way through operations; `stack` is the axis of a list of tensors that are not stacked yet."""

    def __init__(self, dims: Dims, stack: Optional[Axis] = None):
        self.dims, self.stack = dims, stack


# ---- operations ---------------------------------------------------------------------------------------------------------

def sum_of(blocks: List[Axis]) -> Axis:
    made = Axis(sum(block.size for block in blocks))
    made.blocks = blocks
    return made


def product_of(axes: List[Axis]) -> Axis:
    if len(axes) == 1:
        return axes[0]
    made = Axis(1)
    for axis in axes:
        made.size *= axis.size
    made.parts = list(axes)
    return made


def place(dims: Dims, dim: int, what: str) -> int:
    at = dim + len(dims) if dim < 0 else dim
    if not 0 <= at < len(dims):
        raise ImportFailure(f"{what}(dim={dim}) of a tensor of {len(dims)} dims")
    return at


def only_axis(dims: Dims, at: int, what: str) -> Axis:
    if len(dims[at]) != 1 or dims[at][0].blocks is not None:
        raise ImportFailure(f"{what} of a dim that other operations have made")
    return dims[at][0]


def merge(values: Dict[str, Value], op: Any, converter: "Converter") -> Dict[str, Value]:
    made = {}
    for key, value in values.items():
        if value.stack is None:
            raise ImportFailure(f"MergeModulelist of {key!r}, which is not a list of tensors")
        dims = list(value.dims)
        dims.insert(op.dim if op.dim >= 0 else len(dims) + 1 + op.dim, [value.stack])
        made[key if len(values) > 1 else converter.targets[0]] = Value(dims)
    return made


def concatenate(values: Dict[str, Value], op: Any, converter: "Converter") -> Dict[str, Value]:
    ordered = [values[key] for key in converter.sources if key in values]
    if len(converter.targets) != 1 or not ordered:
        raise ImportFailure("Concatenate into several tensors")
    at = place(ordered[0].dims, op.dim, "Concatenate")
    blocks = []
    for value in ordered:
        if len(value.dims) != len(ordered[0].dims) or any(
                d != at and [axis.same for axis in dim] != [axis.same for axis in ordered[0].dims[d]] for d, dim in enumerate(value.dims)):
            raise ImportFailure("Concatenate of tensors whose other dims differ")
        blocks.append(product_of(([value.stack] if value.stack else []) + value.dims[at]))
    dims = list(ordered[0].dims)
    dims[at] = [blocks[0]] if len(blocks) == 1 else [sum_of(blocks)]
    return {converter.targets[0]: Value(dims)}


def chunk(values: Dict[str, Value], op: Any, converter: "Converter") -> Dict[str, Value]:
    (value,) = values.values()
    count = len(converter.targets)
    at = place(value.dims, op.dim, "Chunk")
    first = value.dims[at][0] if value.dims[at] else None
    if first is not None and first.name == "2" and len(value.dims[at]) > 1 and count == 2:
        # Halves of what was interleaved: one tensor of each two elements, stacked by the names.
        first.name = None
        converter.pair = first
        dims = list(value.dims)
        dims[at] = value.dims[at][1:]
        return {target: Value(dims) for target in converter.targets}
    whole = only_axis(value.dims, at, "Chunk")
    if count == 1 or whole.size % count != 0:
        raise ImportFailure(f"Chunk of {whole.size} elements into {count}")
    blocks = [Axis(whole.size // count) for _ in range(count)]
    for block in blocks:
        block.same = blocks[0]
    whole.blocks = blocks
    made = {}
    for target, block in zip(converter.targets, blocks):
        dims = list(value.dims)
        dims[at] = [block]
        made[target] = Value(dims)
    return made


def split(values: Dict[str, Value], op: Any, converter: "Converter") -> Dict[str, Value]:
    made = {}
    for key, value in values.items():
        at = place(value.dims, op.dim, "SplitModulelist")
        axis = only_axis(value.dims, at, "SplitModulelist")
        if converter.stack is not None and converter.stack is not axis and converter.stack.size != axis.size:
            raise ImportFailure("SplitModulelist of tensors of different numbers of parts")
        converter.stack = axis
        axis.name = "e"
        made[key if len(values) > 1 else converter.targets[0]] = Value(value.dims[:at] + value.dims[at + 1:])
    return made


def transpose(values: Dict[str, Value], op: Any, converter: "Converter") -> Dict[str, Value]:
    (value,) = values.values()
    dims = list(value.dims)
    if getattr(op, "check_dims", False) and converter.transposed is None:
        raise ImportFailure("Transpose(check_dims=True) transposes if the model's shapes say so: give --transposed yes or no")
    if not getattr(op, "check_dims", False) or converter.transposed:
        a, b = place(dims, op.dim0, "Transpose"), place(dims, op.dim1, "Transpose")
        dims[a], dims[b] = dims[b], dims[a]
    return {converter.targets[0] if len(converter.targets) == 1 else converter.sources[0]: Value(dims)}


def halve(dims: Dims, at: int, what: str, lead: List[Axis], inverse: bool) -> None:
    """Exchanges the last two of (lead, half, 2) or (lead, 2, half) along a dim."""
    axis = only_axis(dims, at, what)
    count = 2
    for one in lead:
        count *= one.size
    if axis.size % count != 0 or axis.parts is not None:
        raise ImportFailure(f"{what} of {axis.size} elements in {count} parts")
    half, two = Axis(axis.size // count), Axis(2, "2")
    axis.parts = lead + ([two, half] if inverse else [half, two])
    dims[at] = lead + ([half, two] if inverse else [two, half])


def interleave(values: Dict[str, Value], op: Any, converter: "Converter") -> Dict[str, Value]:
    (value,) = values.values()
    dims = list(value.dims)
    halve(dims, place(dims, op.dim, "Interleave"), "Interleave", [], getattr(op, "inverse", False))
    return {converter.targets[0]: Value(dims)}


def permute_for_rope(values: Dict[str, Value], op: Any, converter: "Converter") -> Dict[str, Value]:
    made = {}
    names = getattr(op, "permute_layer_names", None)
    for key, value in values.items():
        dims = list(value.dims)
        if names is None or any(name in key for name in names):
            heads = converter.find_heads(getattr(op, "subconfig_key", None))
            halve(dims, 0, "PermuteForRope", [Axis(heads, f"heads{heads}")], getattr(op, "inverse", False))
        made[key] = Value(dims)
    return made


OPERATIONS = {"MergeModulelist": merge, "Concatenate": concatenate, "Chunk": chunk, "SplitModulelist": split, "Transpose": transpose,
              "Interleave": interleave, "PermuteForRope": permute_for_rope}


# ---- names --------------------------------------------------------------------------------------------------------------

def natural(name: str) -> List[Any]:
    """As transformers sorts names: by numbers between dots, and by text."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split(".")]


def numbers(name: str) -> List[Tuple[int, str]]:
    """(place, digits) of each part between dots that is a number of a map."""
    return [(i, part) for i, part in enumerate(name.split(".")) if re.fullmatch(r"0|[1-9][0-9]{0,17}", part)]


def escape(text: str) -> str:
    return re.sub(r"[ \t\r\n\[\],=|){}*?\\#]", lambda found: "\\" + found[0], text)


def write_name(name: str, captures: Dict[int, str]) -> str:
    text = ".".join("{" + captures[i] + "}" if i in captures else escape(part) for i, part in enumerate(name.split(".")))
    return "\\" + text if text in ("map", "for", "let", "use") else text


class Converter:
    """One transform of the registry that has operations, for the names of one group."""

    def __init__(self, transform: Any, transposed: Optional[bool], config: Dict[str, Any]):
        self.operations = transform.operations
        self.sources = list(transform.source_patterns)
        self.targets = list(transform.target_patterns)
        self.transposed, self.config = transposed, config
        self.stack: Optional[Axis] = None  # of the targets
        self.pair: Optional[Axis] = None   # two targets that alternate

    def find_heads(self, subconfig: Optional[str]) -> int:
        config = self.config.get(subconfig, self.config) if subconfig else self.config
        return int(config.get("num_attention_heads", 1))


class Group:
    """The tensors that go into one tensor, or into those that one converter makes together."""

    def __init__(self, key: str, transform: Any = None):
        self.key, self.transform = key, transform
        self.members: Dict[str, List[str]] = {}  # by pattern of the converter


# ---- equations ----------------------------------------------------------------------------------------------------------

class Equation:
    """The line for one group, with captures for numbers or with the numbers themselves."""

    def __init__(self, group: Group, shapes: Dict[str, Tuple[int, ...]], config: Dict[str, Any], transposed: Optional[bool]):
        self.group, self.shapes = group, shapes
        self.lets: Dict[str, int] = {}
        self.left: List[Tuple[str, Optional[int], Optional[Dims]]] = []  # a name, where e is in it, dims
        self.right: List[Tuple[str, Optional[int], Optional[Dims]]] = []
        self.pair: Optional[Axis] = None
        if group.transform is None:
            ((source,),) = group.members.values()
            self.left, self.right = [(source, None, None)], [(group.key, None, None)]
            return
        converter = Converter(group.transform, transposed, config)
        values = self.start(converter)
        for op in converter.operations:
            name = type(op).__name__
            if name not in OPERATIONS:
                raise ImportFailure(f"an operation that is not known here: {name}")
            values = OPERATIONS[name](values, op, converter)
        self.end(converter, values)

    def start(self, converter: Converter) -> Dict[str, Value]:
        """A value for each pattern, with an axis for each dim. Dims of equal length share their axis."""
        values: Dict[str, Value] = {}
        first: Optional[List[Axis]] = None
        stack: Optional[Axis] = None  # the lists of all patterns are of one length, and e counts through them together
        for pattern in converter.sources:
            names = self.group.members.get(pattern)
            if not names:
                raise ImportFailure(f"{self.group.key}: no tensor matches {pattern!r}")
            shape = self.shapes[names[0]]
            if any(self.shapes[name] != shape for name in names):
                raise ImportFailure(f"{names[0]} and others that are joined with it differ in shape")
            axes = [Axis(size) for size in shape]
            for d, axis in enumerate(axes):
                if first is not None and d < len(first) and first[d].size == axis.size:
                    axis.same = first[d]
            first = axes if first is None else first
            at = self.find_stack(pattern, names)
            if at is not None and stack is not None and stack.size != len(names):
                raise ImportFailure(f"{self.group.key}: lists of {stack.size} and of {len(names)} tensors")
            stack = stack or (Axis(len(names), "e") if at is not None else None)
            values[pattern] = Value([[axis] for axis in axes], stack if at is not None else None)
            self.left.append((names[0], at, [[axis] for axis in axes]))
        return values

    @staticmethod
    def find_stack(pattern: str, names: List[str]) -> Optional[int]:
        """Which part of the names counts through the list that a pattern with * stands for."""
        if "*" not in pattern:
            if len(names) > 1:
                raise ImportFailure(f"several tensors match {pattern!r}: {names[0]}, {names[1]}")
            return None
        parts = [name.split(".") for name in names]
        able = [at for at, _ in numbers(names[0]) if all(len(one) == len(parts[0]) for one in parts)]
        varied = [at for at in able if len({one[at] for one in parts}) > 1]
        # With a single tensor in the list, it is the number that the pattern's own texts surround.
        around = pattern.split("*")
        after = around[1].replace("\\", "").strip(".").split(".")[0]
        chosen = varied or [at for at in able if at + 1 < len(parts[0]) and parts[0][at + 1] == after]
        if len(chosen) != 1 or sorted(int(one[chosen[0]]) for one in parts) != list(range(len(names))):
            raise ImportFailure(f"the tensors that match {pattern!r} are not numbered from 0: {names[0]} and {len(names) - 1} more")
        return chosen[0]

    def end(self, converter: Converter, values: Dict[str, Value]) -> None:
        targets = converter.targets
        self.pair = converter.pair
        for target in targets:
            value = values.get(target)
            if value is None and len(targets) == 1 and len(values) == 1:
                (value,) = values.values()
            if value is None or value.stack is not None:
                raise ImportFailure(f"{self.group.key}: the operations do not make {target!r}")
            key = self.group.key.replace(targets[0], target, 1) if target != targets[0] else self.group.key
            at = None
            if converter.stack is not None:
                if key.split(".").count("*") != 1:
                    raise ImportFailure(f"{key}: the name has no place for the numbers of a list")
                at = key.split(".").index("*")
                key = key.replace("*", "0")
            self.right.append((key, at, value.dims))

    # ---- as text

    def families(self) -> Optional[List[Dict[int, str]]]:
        """For each name, which of its parts are which captures: the same numbers in the same order everywhere. None: they are not."""
        found, wanted = [], None
        for name, at, _ in self.left + self.right:
            own = [(i, digits) for i, digits in numbers(name) if i != at]
            values = [digits for _, digits in own]
            wanted = values if wanted is None else wanted
            if values != wanted or len(values) > len(CAPTURES):
                return None
            found.append({i: CAPTURES[k] for k, (i, _) in enumerate(own)})
        return found

    def name_axes(self) -> None:
        """Letters for axes of single dims; names with their size, for `let`, where sizes cannot follow from shapes."""
        letters = iter(LETTERS)
        seen: List[Axis] = []
        for _, _, dims in self.left + self.right:
            for axis in [axis for dim in dims or [] for axis in dim]:
                self.name_sums(axis)
                for leaf in axis.leaves():
                    if leaf not in seen:
                        seen.append(leaf)
        for axis in seen:
            if axis.name is None and axis.same.name is None:
                axis.same.name = next(letters)
            axis.name = axis.name or axis.same.name
        for axis in seen:
            if re.fullmatch(r"(d|heads)[0-9]+", axis.name or ""):
                self.lets[str(axis.name)] = axis.size

    def name_sums(self, axis: Axis) -> None:
        """Blocks that are not all the same axis need sizes of their own."""
        for inner in axis.parts or axis.blocks or []:
            self.name_sums(inner)
        if axis.blocks is None or (all(block.leaves() == [block] for block in axis.blocks) and
                                   len({id(block.same) for block in axis.blocks}) == 1):
            return
        for leaf in axis.leaves():
            if leaf.name is None:
                leaf.name = f"d{leaf.size}"

    @staticmethod
    def axis_text(axis: Axis) -> str:
        if axis.blocks is not None:
            return "(" + " + ".join(" ".join(Equation.axis_text(part) for part in (block.parts or [block])) for block in axis.blocks) + ")"
        if axis.parts is not None:
            return "(" + " ".join(Equation.axis_text(part) for part in axis.parts) + ")"
        return str(axis.name)

    @staticmethod
    def dims_text(dims: Optional[Dims]) -> str:
        if dims is None:
            return ""
        texts = []
        for dim in dims:
            flat = dim[0].parts if len(dim) == 1 and dim[0].parts is not None else dim
            words = [Equation.axis_text(axis) for axis in flat]
            texts.append(words[0] if len(words) == 1 else "(" + " ".join(words) + ")" if words else "1")
        return f" [{' '.join(texts)}]"

    def sides(self, families: List[Dict[int, str]]) -> Tuple[str, str]:
        texts = []
        for (name, at, dims), captures in zip(self.left + self.right, families):
            texts.append(write_name(name, {**captures, **({at: "e"} if at is not None else {})}) + self.dims_text(dims))
        left, right = texts[:len(self.left)], texts[len(self.left):]
        if self.pair is not None:
            right = [self.pair_text(families)]
        return ", ".join(left), ", ".join(right)

    def pair_text(self, families: List[Dict[int, str]]) -> str:
        """Two tensors that alternate, as one with a list in its name."""
        (a, at, dims), (b, _, _) = self.right
        one, two = a.split("."), b.split(".")
        differ = [i for i, (x, y) in enumerate(zip(one, two)) if x != y]
        if len(one) != len(two) or len(differ) != 1 or re.search(r"[,{}]", one[differ[0]] + two[differ[0]]):
            raise ImportFailure(f"{a} and {b} alternate, but their names differ in more than one word")
        marked = dict(families[len(self.left)])
        if at is not None:
            marked[at] = "e"
        marked[differ[0]] = f"{self.pair.name}:{one[differ[0]]},{two[differ[0]]}"  # type: ignore[union-attr]
        return write_name(a, marked) + self.dims_text(dims)

    def lines(self) -> Iterator[Tuple[str, str]]:
        """The line with captures, and then the line as it is."""
        self.name_axes()
        general = self.families()
        if general is not None:
            yield self.sides(general)
        yield self.sides([{} for _ in self.left + self.right])

    def is_same(self) -> bool:
        return self.group.transform is None and self.left[0][0] == self.right[0][0]


# ---- the whole ----------------------------------------------------------------------------------------------------------

def group_names(names: Sequence[str], transforms: Sequence[Any]) -> List[Group]:
    """As loading does it: all renamings one after the other, then the first converter that matches."""
    renamings = [one for one in transforms if not getattr(one, "operations", None)]
    converters = [one for one in transforms if getattr(one, "operations", None)]
    groups: Dict[Tuple[str, int], Group] = {}
    for name in sorted(names, key=natural):
        key, matched, index = name, None, -1
        for renaming in renamings:
            key, _ = renaming.rename_source_key(key)
        for i, converter in enumerate(converters):
            key, matched = converter.rename_source_key(key)
            if matched is not None:
                index = i
                break
        group = groups.setdefault((key, index), Group(key, converters[index] if index >= 0 else None))
        if matched is None and group.members:
            raise ImportFailure(f"{next(iter(group.members.values()))[0]} and {name} both become {key}")
        group.members.setdefault(name if matched is None else matched, []).append(name)
    return list(groups.values())


def make_map(model_type: str, shapes: Dict[str, Tuple[int, ...]], transforms: Sequence[Any], config: Dict[str, Any],
             transposed: Optional[bool] = None, release: str = "") -> str:
    """The text of a map, from the names and shapes in files to what transforms make of them."""
    equations = [Equation(group, shapes, config, transposed) for group in group_names(list(shapes), transforms)]
    choices = [list(equation.lines()) for equation in equations]
    claimed: Dict[str, str] = {}  # what is on the left, and the right that goes with it; "" if groups differ
    for lines in choices:
        for left in lines[0][0].split(", "):
            claimed[left.split(" [")[0]] = lines[0][1] if claimed.get(left.split(" [")[0], lines[0][1]) == lines[0][1] else ""
    written: Dict[str, bool] = {}
    lets: Dict[str, int] = {}
    for equation, lines in zip(equations, choices):
        is_common = all(claimed[left.split(" [")[0]] for left in lines[0][0].split(", "))
        left, right = lines[0] if is_common else lines[-1]
        if equation.is_same() and is_common:
            continue
        written[f"{left} = {right}"] = True
        lets.update(equation.lets)
    head = [f"# From the names in files to those of transformers{' ' + release if release else ''}, for {len(shapes)} tensors of a {model_type}\n",
            f"map files transformers types {model_type}\n"]
    return "".join(head + [f"let {name} = {size}\n" for name, size in sorted(lets.items())] + [line + "\n" for line in written] + ["* = *\n"])


def find_transforms(model_type: str) -> Tuple[List[Any], str]:
    """The conversions that the installed transformers registers for a type, and its release."""
    try:
        import transformers  # type: ignore[import]
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping  # type: ignore[import]
    except ImportError as error:
        raise ImportFailure(f"install transformers 5 or later; its conversions are what is printed ({error})") from error
    found = get_checkpoint_conversion_mapping(model_type)
    if found is None:
        raise ImportFailure(f"transformers {getattr(transformers, '__version__', '')} has no conversions for model_type {model_type!r}: "
                            "its names are those in the files")
    return list(found) + list(get_checkpoint_conversion_mapping("legacy") or []), str(getattr(transformers, "__version__", ""))


def read_checkpoint(path: str) -> Tuple[Dict[str, Tuple[int, ...]], Dict[str, Any]]:
    """Names and shapes, and config.json if there is one."""
    import json
    import os

    import reshard
    config: Dict[str, Any] = {}
    with reshard.open(path) as checkpoint:
        shapes = {name: tuple(checkpoint[name].shape) for name in checkpoint}
    try:
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        pass
    return shapes, config


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m reshard.importmap", description="Prints a map from the names in a checkpoint to those that the "
                                     "installed transformers gives the model in memory. No weight is read.")
    parser.add_argument("model_type", help="as config.json names it")
    parser.add_argument("checkpoint", help="a folder or file that reshard reads")
    parser.add_argument("--transposed", choices=["yes", "no"], help="for types that transpose only if the model's shapes differ from the files'")
    given = parser.parse_args(arguments)
    import reshard
    try:
        transforms, release = find_transforms(given.model_type)
        shapes, config = read_checkpoint(given.checkpoint)
        sys.stdout.write(make_map(given.model_type, shapes, transforms, config, {"yes": True, "no": False}.get(given.transposed), release))
    except (ImportFailure, reshard.Error, OSError, ValueError) as error:
        print(f"reshard.importmap: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
