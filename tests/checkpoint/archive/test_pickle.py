# SPDX-License-Identifier: Apache-2.0
"""Pickles as our reader sees them beside what Python makes of them.

  test_pickle.py PICKLE-LINES

 1. Random plain data, written by Python in every protocol: the same graph, shared parts included.
 2. Objects of all kinds: the same names, calls and states as Python's reader finds, nothing run.
 3. Pickles that were damaged at random: accepted exactly when Python's reader accepts them.
 4. Hostile ones.
"""
import collections
import datetime
import decimal
import enum
import io
import os
import pathlib
import pickle
import pickletools
import random
import struct
import subprocess
import sys

import symbolic

SEED = int(os.environ.get("RESHARD_TEST_SEED", "20"))
sys.setrecursionlimit(20000)


def read_all(program, pickles):
    data = b"".join(struct.pack("<I", len(p)) + p for p in pickles)
    done = subprocess.run([program], input=data, capture_output=True, check=True)
    lines = done.stdout.decode("ascii", "replace").split("\n")[:-1]
    assert len(lines) == len(pickles), (len(lines), len(pickles))
    return lines


def make_plain(rng, protocol, depth=0, pool=None):
    """Data that the protocol writes without calls."""
    pool = [] if pool is None else pool
    text = "".join(rng.choice("ab\n\\'\"\r\0\x1aé€\U0001f600\ud800 u0U") for _ in range(rng.randrange(rng.choice([3, 10, 300]))))
    kinds = [lambda: None, lambda: rng.random() < 0.5, lambda: rng.choice([1, -1]) * rng.getrandbits(rng.randrange(1, 66)),
             lambda: rng.choice([-1, 1]) << rng.choice([7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 2100]),
             lambda: rng.choice([0.0, -0.0, 1.5, 1e300, 5e-324, float("inf"), float("-inf"), rng.random()]), lambda: text]
    if protocol >= 3:
        kinds.append(lambda: rng.randbytes(rng.randrange(rng.choice([3, 400]))))
    if protocol >= 5:
        kinds.append(lambda: bytearray(rng.randbytes(rng.randrange(9))))
    if pool and rng.random() < 0.15:
        return rng.choice(pool)
    if depth > 5 or rng.random() < 0.5:
        return rng.choice(kinds)()
    child = lambda: make_plain(rng, protocol, depth + 1, pool)
    count = rng.choice([0, 1, 2, 3, 4, 7]) if rng.random() < 0.98 else 1100  # Python writes 1000 at a time
    kind = rng.randrange(5 if protocol >= 4 else 3)
    if count == 1100:
        made = [[rng.randrange(9) for _ in range(count)], dict(zip(range(count), range(count)))][rng.randrange(2)]
    elif kind == 0:
        made = []
        pool.append(made)
        made.extend(child() for _ in range(count))
    elif kind == 1:
        made = {}
        pool.append(made)
        for i in range(count):
            made[rng.choice([i, str(i), (i, "k"), None])] = child()
    elif kind == 2:
        made = tuple(child() for _ in range(count))
        pool.append(made)
    else:  # of one item at most: more lose their order
        made = [set, frozenset][kind - 3](rng.choice([i, str(i), (i,)]) for i in range(min(count, 1)))
    return made


class Plain:
    def __init__(self, **state):
        self.__dict__.update(state)


class Slots:
    __slots__ = ("a", "b")


class Keyed(dict):
    pass


class Listed(list):
    pass


class New:
    def __new__(cls, *, word):
        return object.__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"word": "x"}


class Colour(enum.Enum):
    RED = 1


class Setter:
    def __reduce_ex__(self, protocol):
        return Setter, (), {"state": 1}, None, None


def make_objects():
    slots = Slots()
    slots.a = [1]
    keyed = Keyed(x=1)
    keyed.more = keyed
    ordered = collections.OrderedDict([("w", (1, 2)), ("b", None)])
    ordered._metadata = collections.OrderedDict()
    itself = Plain()
    itself.me = [itself]
    counted = collections.defaultdict(list, {"a": [1]})
    point = collections.namedtuple("point", "x y")
    globals()["point"] = point
    shared = ["s"]
    return [Plain(a=1, b=Plain()), slots, keyed, Listed([1, 2]), ordered, itself, counted, New(word="x"), Colour.RED,
            datetime.datetime(2020, 1, 2), decimal.Decimal("1.5"), pathlib.PurePosixPath("a/b"), range(5), slice(1, 2), 1 + 2j,
            b"bytes\xff", bytearray(b"x\xff"), {1, 2}, frozenset({3}), int, len, os.system, [shared, shared], Setter(),
            collections.Counter("aab"), collections.deque([1]), point(1, 2), Exception("no"), ..., NotImplemented, b"", [b"", set()]]


class Storages(pickle.Pickler):
    """As torch.save does: storages are named, not written."""

    def persistent_id(self, value):
        return ("storage", os.path.join, "0", "cpu", 12) if isinstance(value, Slots) else None


def check_plain(program):
    rng = random.Random(SEED)
    cases = [(protocol, make_plain(rng, protocol)) for _ in range(250) for protocol in range(6)]
    for protocol, edge in ((p, [2**k + d for k in (7, 8, 15, 16, 31, 32, 62, 63, 64, 1000) for d in (-1, 0, 1)]) for p in range(6)):
        cases += [(protocol, edge), (protocol, [-x for x in edge])]
    pickles = [pickle.dumps(value, protocol) for protocol, value in cases]
    for (protocol, value), data, seen in zip(cases, pickles, read_all(program, pickles)):
        # Equal numbers and texts are one object in Python's eyes, tuples only when they are the same.
        expected = "%s used %d" % (symbolic.line(pickle.loads(data), False), len(data))
        assert seen == expected, (SEED, protocol, data, seen, expected)
    return len(cases)


def make_object_pickles():
    pickles = []
    for protocol in range(6):
        objects = [value for value in make_objects() if protocol >= 2 or not isinstance(value, Slots)]
        pickles += [pickle.dumps(value, protocol) for value in objects + [objects]]
        if protocol >= 1:
            file = io.BytesIO()
            Storages(file, protocol).dump({"w": Slots(), "v": [Slots()]})
            pickles.append(file.getvalue())
    pickles += [pickletools.optimize(data) for data in pickles]
    # What Python 2 and hand-made pickles have.
    pickles += [b"(S'a\\n\\x41\\101'\np0\nU\x02bcT\x01\x00\x00\x00\xffg0\nt.", b"(imodule\nOld\np0\n(dp1\nS'k'\nI1\nsb.",
                b"(cmodule\nOld\nK\x01o}b.", b"(dI01\nI00\ns.", b"Pname\n.", b"(lp1\ng1\na.", b"L12345678901234567890L\n.",
                b"F1.5\n.", b"(K\x01K\x022N0t.", b"(K\x01(K\x021t.", b"\x80\x02N\x80\x04.", b"]2\x86."]
    return pickles


def expect(data):
    """Our line, from Python's reader, or None when it refuses."""
    reader = symbolic.Reader(data)
    try:
        root = reader.load()
    except RecursionError:
        raise
    except Exception:
        return None
    return "%s used %d" % (symbolic.line(root, True), reader.tell())


def check_objects(program, pickles):
    for data, seen in zip(pickles, read_all(program, pickles)):
        expected = expect(data)
        assert expected is not None and seen == expected, (data, seen, expected)
    return len(pickles)


def damage(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(data))
        how = rng.randrange(5)
        if how == 0:
            data[place] = rng.randrange(256)
        elif how == 1:
            del data[place:place + rng.randrange(1, 4)]
        elif how == 2:
            data[place:place] = bytes([rng.choice(b"(.012NKJ]}d)tuesabRcQqrhjgp\x81\x85\x86\x8a\x8b\x8c\x8f\x90\x91\x93\x94\x95")])
        elif how == 3:
            other = rng.randrange(len(data))
            data[place:place] = data[other:other + rng.randrange(1, 12)]
        else:
            data[place] = (data[place] + rng.choice([-1, 1])) % 256
        data = data or bytearray(b".")
    return bytes(data)


def check_damaged(program, pickles):
    rng = random.Random(SEED)
    small = [data for data in pickles if len(data) < 600]
    damaged = [damage(rng, rng.choice(small)) for _ in range(5000)]
    accepted = 0
    for data, seen in zip(damaged, read_all(program, damaged)):
        expected = expect(data)
        if expected is None:
            assert seen.startswith("error -2: input, byte ") or seen.startswith("error -6: input, byte "), (SEED, data, seen)
        else:
            assert seen == expected, (SEED, data, seen, expected)
            accepted += 1
    assert accepted > 200, accepted
    return len(damaged)


def check_hostile(program):
    """Rows of a pickle and how its line begins."""
    name = lambda module, what: "g%s.%s" % (module.encode().hex(), what.encode().hex())
    many = 10**6
    rows = [
        (b"cos\nsystem\n(S'touch hacked'\ntR.", "#0R(%s #1(u%s)" % (name("os", "system"), b"touch hacked".hex())),
        (b"cposix\nsystem\n(X\x01\x00\x00\x00xtR.", "#0R(" + name("posix", "system")),
        (b"cbuiltins\neval\n(S'1'\ntR.", "#0R(" + name("builtins", "eval")),
        (b"\x8c\x08builtins\x8c\x04exec\x93\x8c\x01x\x85R.", "#0R(" + name("builtins", "exec")),
        (b"cbuiltins\ngetattr\n(cos\npath\nS'x'\ntR(tR.", "#0R(#1R(" + name("builtins", "getattr")),
        (b"(S'touch hacked'\nios\nsystem\n.", "#0O(" + name("os", "system")),
        (b"(cos\nsystem\nS'x'\no.", "#0O(" + name("os", "system")),
        (b"cos\nsystem\n)\x81}b.", "#0O(" + name("os", "system")),
        (b"]q\x00h\x00a.", "#0[#0]"),
        (b"}q\x00h\x00h\x00s.", "#0{#0 #0}"),
        (b"(h\x00t.", "error -2: input, byte 1: BINGET: the memo holds nothing"),
        (b"]" * many + b"a" * (many - 1) + b".", "#0[#1[#2["),
        (b"(" * many, "error -2: input, byte %d: the pickle ends before its STOP" % many),
        (b"(" * many + b"t" * many + b".", "#0(#1("),
        (b"}" * many + b"(Ns", "error -2: input, byte %d: SETITEM: it takes more" % (many + 2)),
        (b")" * 2 + b"\x86" + b"\x85" * many + b".", "#0(#1("),
        (b"cm\nn\n" + b"(tR" * many + b".", "#0R(#1R("),
        (b"N" + b"Q" * many + b".", "PPPP"),
        (b"]r\xff\xff\xff\xff.", "error -2: input, byte 1: LONG_BINPUT: the memo's index"),
        (b"]p99999999999\n.", "error -2: input, byte 1: PUT: its argument is not an index"),
        (b"\x8b\xff\xff\xff\xff.", "error -2: input, byte 0: LONG4: its length is negative"),
        (b"T\xff\xff\xff\xffx.", "error -2: input, byte 0: BINSTRING: its length is negative"),
        (b"X\xff\xff\xff\xffx.", "error -2: input, byte 0: BINUNICODE: it is longer than"),
        (b"\x8e" + b"\xff" * 8 + b"x.", "error -2: input, byte 0: BINBYTES8: it is longer than"),
        (b"\x96" + b"\xff" * 7 + b"\x7fx.", "error -2: input, byte 0: BYTEARRAY8: it is longer than"),
        (b"\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N.", "error -2: input, byte 2: FRAME: the frame is longer"),
        (b"\x80\x04\x95\xff\x00\x00.", "error -2: input, byte 2: FRAME: the bytes end inside it"),
        (b"\x80\x06N.", "error -6: input, byte 0: pickle protocol 6"),
        (b"\x82\x01.", "error -6: input, byte 0: EXT1: refers to something outside"),
        (b"\x97.", "error -6: input, byte 0: NEXT_BUFFER"),
        (b"N\x98.", "error -6: input, byte 1: READONLY_BUFFER"),
        (b"\xffN.", "error -2: input, byte 0: 0xff is not an opcode"),
        (b"", "error -2: input, byte 0: the pickle ends before its STOP"),
        (b".", "error -2: input, byte 0: STOP: the stack holds no value"),
        (b"NN.", "error -2: input, byte 2: STOP: values or marks are left over"),
        (b"t.", "error -2: input, byte 0: TUPLE: there is no mark"),
        (b"K\x01(a.", "error -2: input, byte 3: APPEND: it takes more values"),
        (b"(K\x01e.", "error -2: input, byte 3: APPENDS: it takes more values"),
        (b"K\x01(N(Ne.", "error -2: input, byte 6: APPENDS: the value below cannot take items"),
        (b"}(Nu.", "error -2: input, byte 3: SETITEMS: a key has no value"),
        (b"}Nb.", "error -2: input, byte 2: BUILD: the value below the state is not an object"),
        (b"cm\nn\n)R}b}b.", "error -2: input, byte 10: BUILD: the object has a state already"),
        (b"cm\nn\n]R.", "error -2: input, byte 6: REDUCE: the arguments are not a tuple"),
        (b"]N\x93.", "error -2: input, byte 2: STACK_GLOBAL: module and name are not texts"),
        (b"X\x02\x00\x00\x00\xc3(.", "error -2: input, byte 0: BINUNICODE: the text is not UTF-8"),
        (b"c" + b"m" * 1025 + b"\nn\n.", "error -2: input, byte 0: GLOBAL: the name has more than 1024"),
        (b"I" + b"9" * 4301 + b"\n.", "error -2: input, byte 0: INT: the number has more than 4300"),
        (b"I" + b"9" * 4300 + b"\n.", "L"),
        (b"I0x10\n.", "error -2: input, byte 0: INT: its argument is not a decimal"),
        (b"F1e400\n.", "error -2: input, byte 0: FLOAT: the number is too large"),
        (b"F0x1p3\n.", "error -2: input, byte 0: FLOAT: its argument is not a float"),
    ]
    for (data, begin), seen in zip(rows, read_all(program, [data for data, _ in rows])):
        assert seen.startswith(begin), (data[:60], seen[:200], begin)
    # A memo bomb is small as a graph, and huge when every path is walked.
    bomb = b"(]q\x00" + b"".join(b"](" + b"h%c" % i * 9 + b"eq%c" % (i + 1) for i in range(200)) + b"1h\xc8."
    assert read_all(program, [bomb])[0].startswith("#0[#1[#2["), bomb
    return len(rows) + 1


def main():
    program = sys.argv[1]
    pickles = make_object_pickles()
    print("plain: %d pickles" % check_plain(program))
    print("objects: %d pickles" % check_objects(program, pickles))
    print("damaged: %d pickles" % check_damaged(program, pickles))
    print("hostile: %d pickles" % check_hostile(program))
    assert not os.path.exists("hacked")


if __name__ == "__main__":
    main()
