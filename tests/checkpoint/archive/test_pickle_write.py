# SPDX-License-Identifier: Apache-2.0
"""Pickles that we write, loaded by Python and by our own reader.

  test_pickle_write.py PICKLE-WRITE-LINES PICKLE-LINES
"""
import collections
import io
import pickle
import pickletools
import struct
import subprocess
import sys
import types

import symbolic

# What torch.load(weights_only=True) knows.
SAFE = set("GLOBAL NEWOBJ REDUCE BUILD APPEND APPENDS SETITEM SETITEMS MARK TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWFALSE NEWTRUE"
           " EMPTY_TUPLE EMPTY_LIST EMPTY_DICT EMPTY_SET BININT BININT1 BININT2 BINFLOAT BINUNICODE LONG1 BINPERSID BINGET"
           " LONG_BINGET BINPUT LONG_BINPUT PROTO STOP".split())
PLAIN = {
    "ints": [0, 1, 255, 256, 65535, 65536, -1, -128, -129, 2**31 - 1, -2**31, 2**31, 2**63 - 1, -2**63, 2**39, -2**39, -2**31 - 1, 255],
    "floats": [0.0, -0.0, 1.5, 1e300, 5e-324, -2.25], "texts": ("", "é€\U0001f600\n"), "bytes": bytes(range(256)),
    "no bytes": b"", "others": [None, True, False, (), {}]}


def main():
    writer, reader = sys.argv[1:]
    lines = subprocess.run([writer], capture_output=True, check=True, text=True).stdout.splitlines()
    made = {name: bytes.fromhex(digits) for name, digits in (line.split(" ") for line in lines)}
    for name, data in made.items():
        opcodes = {opcode.name for opcode, _, _ in pickletools.genops(data)}
        assert opcodes <= SAFE, (name, opcodes - SAFE)
        assert data[:2] == b"\x80\x02", name
        pickletools.dis(data, out=io.StringIO())  # also checks the stack
        seen = subprocess.run([reader], input=struct.pack("<I", len(data)) + data, capture_output=True, check=True)
        symbol = symbolic.Reader(data)
        root = symbol.load()
        assert seen.stdout.decode().strip() == "%s used %d" % (symbolic.line(root, True), symbol.tell()), name

    plain = pickle.loads(made["plain"])
    assert repr(plain) == repr(PLAIN), plain
    # Python itself takes as many bytes for a number.
    for number in PLAIN["ints"]:
        assert pickle.dumps(number, 2)[2:-1] in made["plain"], number
    shared = pickle.loads(made["shared"])
    assert [x[0] for x in shared] == list(range(300)) * 2 and all(shared[i] is shared[i + 300] for i in range(300))
    state = symbolic.Reader(made["state_dict"]).load()
    assert state.parts[0].name == "OrderedDict" and list(state.parts[5])[0::2] == ["weight", "tied"]
    assert state.parts[5][1] is state.parts[5][3] and state.parts[3] == state.parts[3]
    tensor = state.parts[5][1]
    assert tensor.parts[0].name == "_rebuild_tensor_v2" and tensor.parts[1][2:4] == ((3, 4), (4, 1))
    assert tensor.parts[1][0].id[2:] == ("0", "cpu", 12)
    assert pickle.loads(made["object"]) == types.SimpleNamespace(a=1)
    two = io.BytesIO(made["two"])
    assert pickle.load(two) == "first" and pickle.load(two) == "second" and not two.read()
    assert collections.Counter(made["two"])[0x80] == 2
    print("%d pickles loaded" % len(made))


if __name__ == "__main__":
    main()
