# SPDX-License-Identifier: Apache-2.0
"""Python's own reader of pickles, changed to keep names and calls as data, and the line that
pickle_lines.c writes for a graph. What it refuses beyond Python is what our reader documents."""
import codecs
import io
import pickle
import re
import struct
import warnings

warnings.simplefilter("ignore", DeprecationWarning)  # of odd escapes in strings


class Refused(Exception):
    pass


class Global:
    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    def __init__(self, letter, callable_, arguments, keywords=None):
        if not isinstance(arguments, tuple):
            raise Refused("arguments")
        self.letter, self.parts = letter, [callable_, arguments, keywords, None, None, None]
        self.has_state = False


class Persistent:
    def __init__(self, id_):
        self.id = id_


class Items(list):
    """A container that keeps the order and the doubles of the pickle; compared by identity."""
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Dict(Items):
    pass


class Set(Items):
    pass


class Frozen(Items):
    pass


class Reader(pickle._Unpickler):
    dispatch = dict(pickle._Unpickler.dispatch)

    def persistent_load(self, pid):
        return Persistent(pid)

    def find_class(self, module, name):
        if max(len(module.encode("utf-8", "surrogatepass")), len(name.encode("utf-8", "surrogatepass"))) > 1024:
            raise Refused("name")
        return Global(module, name)

    def get_extension(self, code):
        raise Refused("extension")

    def _decode_string(self, value):
        try:
            return value.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return value

    def line(self):
        line = self.readline()
        if line[-1:] != b"\n":
            raise Refused("line")
        return line[:-1]

    def load_frame(self):
        length, = struct.unpack("<Q", self.read(8))
        if length > self.rest():
            raise Refused("frame")

    def load_int(self):
        text = self.line()
        self.append({b"00": False, b"01": True}[text] if text in (b"00", b"01") else self.integer(text))

    def load_long(self):
        self.append(self.integer(self.line().removesuffix(b"L")))

    @staticmethod
    def integer(text):
        if not re.fullmatch(rb"[+-]?[0-9]+", text):
            raise Refused("digits")
        return int(text)

    def load_float(self):
        text = self.line()
        if not re.fullmatch(rb"[+-]?([0-9.eE+-]+|nan|inf)", text):
            raise Refused("float")
        value = float(text)
        if value in (float("inf"), float("-inf")) and b"n" not in text:
            raise Refused("float")
        self.append(value)

    def load_global(self):
        names = [self.line().decode("utf-8", "surrogatepass") for _ in range(2)]
        self.append(self.find_class(*names))

    def load_persid(self):
        self.append(Persistent(self.line().decode("utf-8", "surrogatepass")))

    def load_string(self):
        data = self.line()
        if len(data) < 2 or data[:1] != data[-1:] or data[:1] not in b"\"'":
            raise Refused("quotes")
        self.append(self._decode_string(codecs.escape_decode(data[1:-1])[0]))

    def load_reduce(self):
        arguments, callable_ = self.take(2)
        self.append(Call("R", callable_, arguments))

    def load_newobj(self):
        arguments, callable_ = self.take(2)
        self.append(Call("O", callable_, arguments))

    def load_newobj_ex(self):
        keywords, arguments, callable_ = self.take(3)
        if not isinstance(keywords, Dict):
            raise Refused("keywords")
        self.append(Call("O", callable_, arguments, keywords))

    def load_inst(self):
        names = [self.line().decode("utf-8", "surrogatepass") for _ in range(2)]
        values = self.pop_mark()  # also changes what self.append is
        self.append(Call("O", self.find_class(*names), tuple(values)))

    def load_obj(self):
        values = self.pop_mark()
        self.append(Call("O", values[0], tuple(values[1:])))

    def load_build(self):
        state, = self.take(1)
        target = self.stack[-1]
        if not isinstance(target, Call) or target.has_state:
            raise Refused("build")
        target.parts[3], target.has_state = state, True

    def take(self, count):
        return [self.stack.pop() for _ in range(count)]

    def add(self, kind, place, values):
        target = self.stack[-1]
        if isinstance(target, Call) and place is not None:
            if target.parts[place] is None:
                target.parts[place] = kind()
            target = target.parts[place]
        if type(target) is not kind or (kind is Dict and len(values) % 2):
            raise Refused("items")
        target.extend(values)

    def load_append(self):
        self.add(Items, 4, self.take(1))

    def load_appends(self):
        self.add(Items, 4, self.pop_mark())

    def load_setitem(self):
        self.add(Dict, 5, self.take(2)[::-1])

    def load_setitems(self):
        self.add(Dict, 5, self.pop_mark())

    def load_additems(self):
        self.add(Set, None, self.pop_mark())

    def gather(self, kind):
        values = self.pop_mark()
        if kind is Dict and len(values) % 2:
            raise Refused("pairs")
        self.append(kind(values))

    def load_put(self):
        self.put(int(self.digits()))

    def load_get(self):
        self.append(self.memo[int(self.digits())])

    def digits(self):
        text = self.line()
        if not re.fullmatch(rb"[0-9]{1,10}", text):
            raise Refused("digits")
        return text

    def put(self, index):
        if index > self.place:
            raise Refused("memo")
        self.memo[index] = self.stack[-1]

    def load(self):
        """As in pickle._Unpickler, and it knows where the opcode stands and wants nothing left over."""
        self._unframer = pickle._Unframer(self._file_read, self._file_readline)
        self.read, self.readline, self.readinto = self._file_read, self._file_readline, self._file_readinto
        self.metastack, self.stack, self.proto = [], [], 0
        self.append = self.stack.append
        while True:
            self.place = self.tell()
            key = self.read(1)
            if not key:
                raise EOFError
            if key == b".":
                if self.metastack or len(self.stack) != 1:
                    raise Refused("left over")
                return self.stack[0]
            if key in (b"\x97", b"\x98"):
                raise Refused("buffer")
            self.dispatch[key[0]](self)

    def __init__(self, data):
        file = io.BytesIO(data)
        super().__init__(file)
        self._file_read, self._file_readline, self._file_readinto = file.read, file.readline, file.readinto
        self.tell, self.rest = file.tell, lambda: len(data) - file.tell()


for name, code in [(n, getattr(pickle, n)[0]) for n in (
        "FRAME INT LONG FLOAT GLOBAL PERSID STRING REDUCE NEWOBJ NEWOBJ_EX INST OBJ BUILD APPEND APPENDS SETITEM"
        " SETITEMS ADDITEMS PUT GET").split()]:
    Reader.dispatch[code] = getattr(Reader, "load_" + name.lower())
for code, kind in [(pickle.EMPTY_LIST, Items), (pickle.EMPTY_DICT, Dict), (pickle.EMPTY_SET, Set)]:
    Reader.dispatch[code[0]] = lambda self, kind=kind: self.append(kind())
for code, kind in [(pickle.LIST, Items), (pickle.DICT, Dict), (pickle.FROZENSET, Frozen)]:
    Reader.dispatch[code[0]] = lambda self, kind=kind: self.gather(kind)
for code, width in [(pickle.BINPUT, "<B"), (pickle.LONG_BINPUT, "<I")]:
    Reader.dispatch[code[0]] = lambda self, width=width: self.put(
        struct.unpack(width, self.read(struct.calcsize(width)))[0])
Reader.dispatch[pickle.MEMOIZE[0]] = lambda self: self.put(len(self.memo))


def large(value):
    """Two's complement, lowest byte first, as short as can be."""
    return value.to_bytes((value ^ (value >> value.bit_length())).bit_length() // 8 + 1, "little", signed=True) if value else b""


def line(root, symbolic):
    """The line of pickle_lines.c for a graph: of classes above (symbolic), or of plain Python objects."""
    numbers, keep = {}, []

    def container(value, left, items, right):
        if id(value) in numbers:
            return "#%d" % numbers[id(value)]
        numbers[id(value)] = len(numbers)
        keep.append(value)
        return "#%d%s%s%s" % (numbers[id(value)], left, " ".join([show(item) for item in items]), right)

    def show(value):
        kind = type(value)
        if value is None:
            return "N"
        if kind is bool:
            return "T" if value else "F"
        if kind is int:
            return "i%d" % value if -2**63 <= value < 2**63 else "L" + large(value).hex()
        if kind is float:
            return "f" + struct.pack(">d", value).hex()
        if kind is str:
            return "u" + value.encode("utf-8", "surrogatepass").hex()
        if kind in (bytes, bytearray):
            return ("b" if kind is bytes else "B") + value.hex()
        if kind is tuple:
            return container(value, "(", value, ")") if value else "()"
        if kind is Global:
            return "g%s.%s" % tuple(n.encode("utf-8", "surrogatepass").hex() for n in (value.module, value.name))
        if kind is Persistent:
            return "P" + show(value.id)
        if kind is Call:
            return call(value)
        if kind is dict and not symbolic:
            return container(value, "{", [x for pair in value.items() for x in pair], "}")
        left, right = {Items: "[]", list: "[]", Dict: "{}", Set: "<>", Frozen: "||", set: "<>", frozenset: "||"}[kind]
        return container(value, left, value, right)

    def call(value):
        if id(value) in numbers:
            return "#%d" % numbers[id(value)]
        numbers[id(value)] = len(numbers)
        parts = [None if part is None and not (i == 3 and value.has_state) else (part,)
                 for i, part in enumerate(value.parts)]
        return "#%d%s(%s)" % (numbers[id(value)], value.letter,
                              " ".join("-" if part is None else show(part[0]) for part in parts))

    return show(root)
