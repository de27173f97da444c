# SPDX-License-Identifier: Apache-2.0
"""Transforms and operations. An operation takes {pattern: array, or list of arrays} and returns the same."""
import re

import numpy


def single(values):
    (value,) = values.values()
    return value[0] if isinstance(value, list) else value


class Operation:
    pass


class MergeModulelist(Operation):
    def __init__(self, dim=0):
        self.dim = dim

    def convert(self, values, sources, targets, config):
        return {(key if len(values) > 1 else targets[0]): numpy.stack(value, self.dim) for key, value in values.items()}


class Concatenate(Operation):
    def __init__(self, dim=0):
        self.dim = dim

    def convert(self, values, sources, targets, config):
        parts = []
        for key in sources:
            parts += values[key] if isinstance(values[key], list) else [values[key]]
        return {targets[0]: numpy.concatenate(parts, self.dim)}


class Chunk(Operation):
    def __init__(self, dim=0):
        self.dim = dim

    def convert(self, values, sources, targets, config):
        return dict(zip(targets, numpy.split(single(values), len(targets), self.dim)))


class SplitModulelist(Operation):
    def __init__(self, dim=0):
        self.dim = dim

    def convert(self, values, sources, targets, config):
        made = {}
        for key, value in values.items():
            value = value[0] if isinstance(value, list) else value
            for i in range(value.shape[self.dim]):
                made[(key if len(values) > 1 else targets[0]).replace("*", str(i))] = value.take(i, self.dim)
        return made


class Transpose(Operation):
    def __init__(self, dim0=0, dim1=1, check_dims=False):
        self.dim0, self.dim1, self.check_dims = dim0, dim1, check_dims

    def convert(self, values, sources, targets, config):
        key = targets[0] if len(targets) == 1 else sources[0]
        value = single(values)
        return {key: value if self.check_dims and not config["transposed"] else value.swapaxes(self.dim0, self.dim1)}


class Interleave(Operation):
    def __init__(self, dim=0, inverse=False):
        self.dim, self.inverse = dim, inverse

    def convert(self, values, sources, targets, config):
        value = numpy.moveaxis(single(values), self.dim, 0)
        half = len(value) // 2
        order = [i // 2 + i % 2 * half for i in range(2 * half)] if self.inverse else [*range(0, 2 * half, 2), *range(1, 2 * half, 2)]
        return {targets[0]: numpy.moveaxis(value[order], 0, self.dim)}


class PermuteForRope(Operation):
    def __init__(self, subconfig_key=None, permute_layer_names=None, inverse=False):
        self.subconfig_key, self.permute_layer_names, self.inverse = subconfig_key, permute_layer_names, inverse

    def convert(self, values, sources, targets, config):
        config = config.get(self.subconfig_key, config)
        made = {}
        for key, value in values.items():
            value = value[0] if isinstance(value, list) else value
            if any(name in key for name in self.permute_layer_names):
                rows = len(value) // config["num_attention_heads"]
                order = []
                for head in range(config["num_attention_heads"]):
                    inside = list(range(0, rows, 2)) + list(range(1, rows, 2))
                    if self.inverse:
                        inside = [i // 2 + i % 2 * (rows // 2) for i in range(rows)]
                    order += [head * rows + i for i in inside]
                value = value[order]
            made[key] = value
        return made


class Unheard(Operation):
    """One of those that only one model has."""


def as_list(patterns):
    return [patterns] if isinstance(patterns, str) else list(patterns)


class WeightTransform:
    def __init__(self, source_patterns, target_patterns):
        self.source_patterns, self.target_patterns = as_list(source_patterns), as_list(target_patterns)

    def rename_source_key(self, source_key):
        for pattern in self.source_patterns:
            found = re.search(pattern.replace(".*.", r"\..*\."), source_key)
            if found:
                target = self.target_patterns[0]
                if r"\1" in target:
                    target = target.replace(r"\1", found.group(1))
                return source_key.replace(found.group(0), target, 1), pattern
        return source_key, None


class WeightRenaming(WeightTransform):
    pass


class WeightConverter(WeightTransform):
    def __init__(self, source_patterns, target_patterns, operations):
        super().__init__(source_patterns, target_patterns)
        self.operations = operations
