# SPDX-License-Identifier: Apache-2.0
"""Stands for transformers 5 where that cannot be had: the classes of its registry of conversions, with its names of classes, attributes and
methods, written anew on NumPy. conversion_mapping.py has cases of our own."""
__version__ = "5.0-standin"
