# SPDX-License-Identifier: Apache-2.0
"""The command's options as keywords of Python's calls.

`_native.OPTIONS`, which is made from the command's own table, says which keywords a call has and which field of the library's
structs each one sets. So a new option of `reshard convert` is a keyword of `reshard.convert` without a line here.
"""
import ctypes
import functools
import inspect
import warnings
from collections.abc import Mapping as MappingClass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, TypeVar, cast

from . import _native
from ._dtypes import dtype_name, dtype_number
from ._library import encode, encode_list, whole_number


class Option(NamedTuple):
    """A row of the command's table. struct: which options of the library it belongs to; "": handled by the call itself."""

    keyword: str
    kind: str
    struct: str
    field: str
    commands: str
    meaning: str


OPTIONS = [Option(*row) for row in _native.OPTIONS]
STRUCTS = {"opening": _native.reshard_checkpoint_options, "planning": _native.reshard_conversion_options,
           "running": _native.reshard_conversion_run_options, "comparing": _native.reshard_comparison_options,
           "digesting": _native.reshard_digest_options, "viewing": _native.reshard_view_options}

#: What keywords were called before, for one release.
RENAMED = {"mesh": "from_", "mesh_rules": "from_rules", "sets": "set", "shard_bytes": "max_shard_size",
           "memory_bytes": "max_memory", "sync": "no_sync"}

#: Those of a conversion that say how tensors are named, cast and cut; a rank of a shard is of a mesh that is given apart.
CUT_OPTIONS = ("to", "rules", "set", "dtype", "include", "exclude", "rename", "only", "no_pad")
SHARD_OPTIONS = CUT_OPTIONS[1:]
#: Those of a view besides the naming.
VIEW_OPTIONS = ("map", "set", "dequantize")

Function = TypeVar("Function", bound=Callable[..., Any])


def list_options(command: str, *structs: str) -> Dict[str, Option]:
    """The options of a command, by keyword; with structs, those that belong to them."""
    return {option.keyword: option for option in OPTIONS
            if command in option.commands.split() and (not structs or option.struct in structs)}


def takes(command: str, *structs: str, only: Sequence[str] = ()) -> Callable[[Function], Function]:
    """Gives a function that has `**options` these keywords: it shows them, refuses all others, and understands old names."""
    found = {keyword: option for keyword, option in list_options(command, *structs).items() if not only or keyword in only}

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        known = {*found, *(each.name for each in own)}

        @functools.wraps(function)
        def call(*arguments: Any, **given: Any) -> Any:
            if not known.issuperset(given):
                given = rename(function.__name__, given, known)
            return function(*arguments, **given)
        more = [inspect.Parameter(keyword, inspect.Parameter.KEYWORD_ONLY, default=None) for keyword in found]
        call.__signature__ = signature.replace(parameters=own + more)  # type: ignore[attr-defined]
        call.__doc__ = "%s\n\n    Options, as the command has them:\n\n%s\n" % (
            (function.__doc__ or "").rstrip(), "\n".join("    %s: %s" % (keyword, found[keyword].meaning) for keyword in found))
        return cast(Function, call)
    return decorate


def rename(function: str, given: Mapping[str, Any], known: Any) -> Dict[str, Any]:
    """The keywords with their new names. Raises TypeError for one that the function does not have."""
    renamed: Dict[str, Any] = {}
    for name, value in given.items():
        keyword = name if name in known else RENAMED.get(name, name)
        if keyword not in known or keyword != name and keyword in given:
            raise TypeError("%s() got an unexpected keyword argument '%s'" % (function, name))
        if keyword != name:
            warnings.warn("%s=: it is called %s= now" % (name, keyword), DeprecationWarning, stacklevel=3)
        renamed[keyword] = not value if name == "sync" else value
    return renamed


def _list_texts(option: Option, value: Any) -> List[str]:
    if option.kind == "DTYPES" and not isinstance(value, MappingClass):
        return [dtype_name(value)]
    if isinstance(value, MappingClass):
        return ["%s=%s" % (key, dtype_name(each) if option.kind == "DTYPES" else each) for key, each in value.items()]
    return [value] if isinstance(value, str) else list(value)


def _number(option: Option, value: Any) -> int:
    if option.kind == "FLAG":
        return int(bool(value))
    if option.kind == "DTYPE":
        return dtype_number(value)
    return whole_number(value, option.keyword, *((-2**31, 2**31) if option.kind == "RANK" else (0,)))


def fill(command: str, struct: str, options: Mapping[str, Any]) -> Any:
    """The library's options, from those keywords that belong to them. They keep alive what they point to."""
    made = STRUCTS[struct](size=ctypes.sizeof(STRUCTS[struct]))
    for option in list_options(command, struct).values():
        value = options.get(option.keyword)
        if value is None or option.kind == "FORMAT" and value == "auto":
            continue
        if option.kind in ("TEXTS", "PAIRS", "DTYPES"):
            texts = _list_texts(option, value)
            setattr(made, option.field[:-1] + "_count", len(texts))
            setattr(made, option.field, encode_list(texts, option.keyword))
        else:
            is_text = option.kind in ("TEXT", "MESH", "FORMAT")
            setattr(made, option.field, encode(value, option.keyword) if is_text else _number(option, value))
    return made


def choose(options: Mapping[str, Any], command: str, *structs: str) -> Dict[str, Any]:
    """Those of the keywords that belong to one of these structs."""
    known = list_options(command, *structs)
    return {keyword: value for keyword, value in options.items() if keyword in known}


def opening(options: Mapping[str, Any], b: bool = False) -> Dict[str, Any]:
    """The keywords of reshard.open for the source of a conversion or, with b, for the second checkpoint of a comparison. Without
    rules of its own, the first is split by those of the conversion, and keeps its names, because the conversion renames."""
    found = choose(options, "DIGEST", "opening")
    rules, own = options.get("rules"), options.get("rules_b" if b else "from_rules")
    found.update(from_=options.get("from_b" if b else "from_"), rules=rules if own is None else own,
                 keep_names=not b and own is None and rules is not None)
    return found
