# SPDX-License-Identifier: Apache-2.0
"""Random maps with the two sides that they relate, made by an oracle that never reads the text of a map.

The oracle keeps each line as axes and tensors of axes, and gives each element of each tensor its coordinates along all axes. Elements of the two
sides are the same if their coordinates are. The text is printed from the same lists, for the library alone to read.
"""
import itertools

import files

SUM = "+"  # stands among the items of a tensor for the dimension, or the part of one, in which blocks follow each other


class Axis:
    def __init__(self, name, size):
        self.name, self.size = name, size
        self.is_number = False  # written as its size
        self.texts = None       # the texts of a list that stacks it


class Term:
    """One tensor of a line, or one for each value of the captures in its name."""

    def __init__(self, name, dims, block, rest_first):
        self.name, self.dims, self.block, self.rest_first = name, dims, block, rest_first
        self.padded = None  # the axis along which a tensor that is read may be longer


class Line:
    """An equation: axes that all tensors have, blocks of a sum, `..`, captures that both sides have, and those that stack."""

    def __init__(self, rnd, number, dtype):
        self.rnd, self.number, self.dtype = rnd, number, dtype
        self.axes, self.stacked = [], ([], [])
        for _ in range(rnd.randint(1, 3)):
            axis = self.add_axis()
            if rnd.random() < 0.25:
                if rnd.random() < 0.4:
                    axis.texts = [f"t{3 * k}" for k in range(axis.size)]
                self.stacked[rnd.randrange(2)].append(axis)
        self.outside = list(self.axes)
        self.blocks = self.draw_blocks() if rnd.random() < 0.6 else []
        self.rest = [rnd.randint(1, 3) for _ in range(rnd.randint(0, 2))] if rnd.random() < 0.4 else None
        self.family = rnd.choice([None, None, "number", "shifted", "list", "any"])
        self.values = {None: [""], "number": range(rnd.randint(1, 2)), "shifted": range(rnd.randint(1, 2)), "list": ["weight", "bias"],
                       "any": ["x_y", "z-1"]}[self.family]
        for axis in self.axes:
            alone = sum(other.size == axis.size for other in self.axes) == 1
            axis.is_number = alone and axis.size > 1 and axis not in self.stacked[0] + self.stacked[1] and rnd.random() < 0.3
        single = rnd.randrange(2)
        self.terms = [[], []]
        self.terms[single] = [self.draw_term(single, 0, None)]
        self.terms[1 - single] = [self.draw_term(1 - single, b, b) for b in range(len(self.blocks))] or [self.draw_term(1 - single, 0, None)]
        named = [axis for axis in self.axes if not axis.is_number and axis.texts is None]
        free = [axis for axis in named if axis not in self.stacked[0] + self.stacked[1]]
        self.open = rnd.choice(free) if free and rnd.random() < 0.6 else None  # its size follows from shapes
        self.let = [axis for axis in named if axis is not self.open]
        self.draw_padding()

    def add_axis(self):
        self.axes.append(Axis(f"{'abcdefghijk'[len(self.axes)]}{self.number}", self.rnd.randint(1, 4)))
        return self.axes[-1]

    def draw_blocks(self):
        rnd = self.rnd
        shared = self.add_axis() if rnd.random() < 0.6 else None
        blocks = []
        for _ in range(rnd.randint(2, 3)):
            block = [] if shared is None else [shared]
            if shared is None or rnd.random() < 0.4:
                block.append(self.add_axis())
            rnd.shuffle(block)
            blocks.append(block)
        return blocks

    def draw_term(self, side, index, block):
        """Axes in any order, some in one dimension, some of these in parentheses; dimensions of one element between them."""
        rnd = self.rnd
        items = [axis for axis in self.outside if axis not in self.stacked[side]]
        items += [SUM] if self.blocks and block is None else self.blocks[block] if block is not None else []
        rnd.shuffle(items)
        dims = []
        for item in items:
            if not dims or rnd.random() < 0.55:
                dims.append([])
            dims[-1].append(item)
        if rnd.random() < 0.15:
            dims.insert(rnd.randint(0, len(dims)), [])
        return Term(f"{'lr'[side]}{self.number}.{'pqr'[index]}", dims, block, rnd.random() < 0.3)

    def draw_padding(self):
        for term in self.terms[1]:
            able = [dim[0] for dim in term.dims if len(dim) == 1 and dim[0] in self.let]
            if able and self.rnd.random() < 0.3:
                term.padded = self.rnd.choice(able)

    # ---- as text

    def item_text(self, item):
        if item is SUM:
            return "(" + " + ".join(" ".join(map(self.item_text, block)) for block in self.blocks) + ")"
        return str(item.size) if item.is_number else item.name

    def dim_text(self, dim, nested):
        if len(dim) == 1:
            return self.item_text(dim[0])
        words = list(map(self.item_text, dim))
        if nested and len(words) > 2:
            words[1:] = ["(" + " ".join(words[1:]) + ")"]
        return "(" + " ".join(words) + ")" if dim else "1"

    def term_text(self, side, term, said):
        text = term.name
        if self.family is not None:
            capture = f"n{self.number}"
            if self.family == "shifted" and side == 1:
                capture += "+2"
            elif self.family in ("list", "any") and capture not in said:
                said.add(capture)
                capture += ":weight,bias" if self.family == "list" else ":*"
            text += ".{" + capture + "}"
        for axis in self.stacked[side]:
            texts = ":" + ",".join(axis.texts) if axis.texts and axis.name not in said else ""
            said.add(axis.name)
            text += ".{" + axis.name + texts + "}"
        dims = [self.dim_text(dim, term.rest_first) for dim in term.dims]
        if self.rest is not None:
            dims.insert(0 if term.rest_first else len(dims), "..")
        return f"{text} [{' '.join(dims)}]" + (f" pad({term.padded.name})" if term.padded else "")

    def text(self):
        said = set()
        sides = [", ".join(self.term_text(side, term, said) for term in self.terms[side]) for side in range(2)]
        lines = [f"let {axis.name} = {axis.size}\n" for axis in self.let]
        if self.family in ("number", "shifted") and self.rnd.random() < 0.5:
            lines.append(f"for n{self.number} < {len(self.values)}\n")
        return "".join(lines) + f"{sides[0]} = {sides[1]}\n"

    # ---- the oracle

    def places(self, items):
        """(block, {axis: coordinate}) of each index along some items, in order."""
        found = [(None, {})]
        for item in items:
            if item is SUM:
                inner = [(b, at) for b, block in enumerate(self.blocks) for _, at in self.places(block)]
            else:
                inner = [(None, {item: k}) for k in range(item.size)]
            found = [(b if c is None else c, {**at, **more}) for b, at in found for c, more in inner]
        return found

    def names(self, side, term):
        """(name, value of the captures, {stacked axis: coordinate})"""
        for value in self.values:
            for chosen in itertools.product(*(range(axis.size) for axis in self.stacked[side])):
                name = term.name
                if self.family is not None:
                    name += f".{value + 2 if self.family == 'shifted' and side == 1 else value}"
                for axis, k in zip(self.stacked[side], chosen):
                    name += f".{axis.texts[k] if axis.texts else k}"
                yield name, value, dict(zip(self.stacked[side], chosen))

    def tensors(self, side, padding=None):
        """(name, shape, [what each element is, None for padding]) of all tensors of a side."""
        for term in self.terms[side]:
            dims = [self.places(dim) for dim in term.dims]
            if padding and term.padded:
                at = next(d for d, dim in enumerate(term.dims) if dim == [term.padded])
                dims[at] = dims[at] + [(None, None)] * padding
            rest = [[(None, {f"..{d}": k}) for k in range(size)] for d, size in enumerate(self.rest or [])]
            dims = rest + dims if term.rest_first else dims + rest
            for name, value, stacked in self.names(side, term):
                keys = []
                for index in itertools.product(*dims):
                    block, at = term.block, dict(stacked)
                    if any(more is None for _, more in index):
                        keys.append(None)
                        continue
                    for b, more in index:
                        block = b if b is not None else block
                        at.update(more)
                    where = frozenset((axis if isinstance(axis, str) else axis.name, k) for axis, k in at.items())
                    keys.append((self.number, value, block, where))
                yield name, tuple(len(dim) for dim in dims), keys


class Case:
    """A map's text; `left`, what it makes of it, `right`, and what that becomes again, `back`. `padded` is right with padding."""

    def __init__(self, rnd, dtypes):
        self.rnd, self.dtypes, self.statements = rnd, dtypes, []
        self.left, self.right, self.back = {}, {}, {}
        self.surplus = {}
        for number in range(rnd.randint(1, 3)):
            self.add_line(number)
        for add in rnd.sample([self.add_rename, self.add_drop, self.add_fills, self.add_copy, self.add_optional, self.add_alternative],
                              rnd.randint(0, 4)):
            add()
        rnd.shuffle(self.statements)
        if rnd.random() < 0.3:
            self.left["other.thing"] = self.right["other.thing"] = self.back["other.thing"] = self.draw_tensor(3, 2)
            self.statements.append("* = *\n")
        self.text = "map train serve\n" + "".join(self.statements)
        self.padded = {**self.right, **self.surplus}

    def draw_tensor(self, *shape):
        dtype = self.rnd.choice(self.dtypes)
        return (dtype, shape, self.rnd.randbytes(files.size_of(dtype, shape)))

    def add_line(self, number):
        dtype, rnd = self.rnd.choice(self.dtypes), self.rnd
        width = files.BITS[dtype] // 8
        while True:
            line = Line(rnd, number, dtype)
            if sum(files.volume(shape) for _, shape, _ in line.tensors(0)) <= 600:
                break
        values = {}
        for name, shape, keys in line.tensors(0):
            data = rnd.randbytes(width * len(keys))
            values.update((key, data[i * width:(i + 1) * width]) for i, key in enumerate(keys))
            self.left[name] = self.back[name] = (dtype, shape, data)
        used = []
        for name, shape, keys in line.tensors(1):
            self.right[name] = (dtype, shape, b"".join(values[key] for key in keys))
            used += keys
        assert len(used) == len(values) and set(used) == set(values), "the oracle itself: both sides have the same elements"
        for name, shape, keys in line.tensors(1, padding=rnd.randint(1, 2)):
            self.surplus[name] = (dtype, shape, b"".join(rnd.randbytes(width) if key is None else values[key] for key in keys))
        self.statements.append(line.text())

    def add_both(self, left, right, *shape):
        self.left[left] = self.right[right] = self.back[left] = self.draw_tensor(*shape)

    def add_rename(self):
        for n in range(2):
            self.add_both(f"old.{n}.w", f"w.{n + 1}.new", 4, 3)
        self.statements.append("old.{m}.w = w.{m+1}.new\n")

    def add_drop(self):
        self.left["gone.0.x"] = self.draw_tensor(5)
        self.statements.append("gone.{m}.x drop =\n")

    def add_fills(self):
        """1.0 on the left, which is compared and left out, and -2 on the right, which is made."""
        ones = ("F32", (3, 2), b"\0\0\x80\x3f" * 6)
        self.left["ones"] = self.back["ones"] = ones
        self.right["twos"] = ("F32", (2, 4), b"\0\0\0\xc0" * 8)
        self.statements.append("ones [3 2] fill(1) =\n= twos [2 4] f32 fill(-2)\n")

    def add_copy(self):
        self.add_both("embed", "embedding", 6, 2)
        self.right["head"] = self.right["embedding"]
        self.statements.append("embed = embedding\n= head copy(embedding)\n")

    def add_optional(self):
        self.add_both("may.1.be", "maybe.1", 2, 5)
        self.statements.append("may.{m}.be optional = maybe.{m}\n")

    def add_alternative(self):
        """An older name is read, the newer one is written."""
        value = self.draw_tensor(7)
        self.left[self.rnd.choice(["name.new", "name.old"])] = self.right["named"] = self.back["name.new"] = value
        self.statements.append("name.new | name.old = named\n")
