# SPDX-License-Identifier: Apache-2.0
"""Published models as names, shapes and how each tensor has to be cut, written by hand from their papers, configurations and
programs: nothing here shares code with the library.

Each file below has the models of one kind: functions that make them, and at its end ROWS, with their published numbers.
To add a model, add a row, and a function if no other model has its names; numbers of layers and experts are in the names.
"""
from families import decoders, encoders, experts, gemma, gpt, hybrids, llama, towers

TOPICS = [
    ("Names of Llama", llama.ROWS),
    ("Gemma", gemma.ROWS),
    ("Experts", experts.ROWS),
    ("State spaces and linear attention", hybrids.ROWS),
    ("Names of GPT", gpt.ROWS),
    ("Images and sound with text", towers.ROWS),
    ("Encoders", encoders.ROWS),
    ("Encoders with decoders", decoders.ROWS),
]
ROWS = [row for _, rows in TOPICS for row in rows]
BY_NAME = {row.name: row for row in ROWS}
