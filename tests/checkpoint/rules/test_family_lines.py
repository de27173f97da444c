# SPDX-License-Identifier: Apache-2.0
"""No line of a family is without a test: each one decides on a tensor of some model of families/, and so does each alternative in
its braces. Lines that plans do not name (every, default, drop) are taken out, one at a time, and some plan has to change."""
import collections
import functools
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import support
from families import BY_NAME, ROWS, forms, towers
from families.extras import DROP, EXTRAS
from families.written import write_sparse
from model_case import ModelTest

FAMILIES = os.path.join(HERE, "..", "..", "..", "src", "checkpoint", "rules", "families")
MESHES = ("tp=2", "tp=8", "pp=2")


@functools.lru_cache(maxsize=None)
def family_lines():
    return list(read_family_lines())


def read_family_lines():
    """(family, number, line) of all that is neither blank nor a comment."""
    for file in sorted(os.listdir(FAMILIES)):
        with open(os.path.join(FAMILIES, file), encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip() and not line.startswith("#"):
                    yield file.removesuffix(".rules"), number, line.rstrip("\n")


def unfold(family):
    """The lines of a family and of those that it uses, in order, with the files that they are from."""
    for name, number, line in family_lines():
        if name == family and line.startswith("use "):
            yield from unfold(line.split()[1])
        elif name == family:
            yield name, number, line


def glob_expression(glob):
    """The pattern of a rule as a regular expression, in which each {a,b} is a group, and the lists of alternatives."""
    text, lists = "", []
    for part in re.findall(r"\{[^}]*\}|\\.|.", glob):
        if part[0] == "{" and ".." in part:
            text += "(?:0|[1-9][0-9]*)"
        elif part[0] == "{":
            lists.append(part[1:-1].split(","))
            text += "(" + "|".join(map(re.escape, lists[-1])) + ")"
        else:
            text += {"*": ".*?", "?": "."}.get(part) or re.escape(part[-1])
    return re.compile(text + r"\Z", re.S), lists


class FamilyLines(ModelTest):
    def setUp(self):
        super().setUp()
        self.names = {}  # of the tensors in a folder
        self.tried = collections.defaultdict(set)  # the names that a line decided on, or that it refused
        self.models = []  # all that was planned: folder, family, mesh, options, names

    def keep(self, family, folder, mesh, *options):
        done, plan = self.plan(folder, mesh, *options)
        for tensor in plan["tensor_list"] if plan else []:
            self.tried[tensor["rules"], tensor["line"]].add(tensor["name"])
        refused = re.search(r'tensor "(.*?)" .*?: (\w+):(\d+): tp=\d+: ', done.stderr)
        if refused:
            self.tried[refused[2], int(refused[3])].add(refused[1])
        self.models.append((folder, family, mesh, options, self.names[folder]))

    def write(self, tensors, given):
        folder = f"{self.folder}/{len(os.listdir(self.folder))}"
        write_sparse(folder, tensors, given)
        self.names[folder] = tuple(tensor[0] for tensor in tensors)
        return folder

    def plan_rows(self):
        for row in ROWS:
            folder = self.write(row.sampled()[0].tensors, row.given)
            for mesh in MESHES[:3 if "pp" in row.axes else 2]:
                self.keep(row.family, folder, mesh)
            self.keep(row.family, folder, "fsdp=2,tp=1")
            if "ep" in row.axes:
                self.keep(row.family, folder, "ep=2")

    def plan_forms(self):
        row = BY_NAME["Llama-3.1-70B"]
        m, _ = row.sampled()
        for form, write, extra in forms.FORMS:
            tensors = [made for name, value in m.linears.items() for made in write(name, *value)]
            self.keep(row.family, self.write(tensors, {**row.given, **extra}), "tp=2")

    def plan_towers(self):
        """The towers are cut when asked."""
        said = {"vision_config": {"hidden_size": 1024, "num_attention_heads": 16}, "audio_config": {"d_model": 1280, "encoder_attention_heads": 20}}
        given, names = {**BY_NAME["Llama-2-7B"].given, **said}, []
        for at in ("", "model."):
            for tower in ("visual", "vision_tower", "vision_model", "vision_encoder", "audio_tower"):
                names += [f"{at}{tower}.{blocks}.0.{name}" for blocks in ("layers", "blocks") for name in towers.LAYER_NAMES
                          if tower != "audio_tower" or not name.startswith(("attn.", "x.o_proj"))]
        folder = self.write([(name, "F32", (7680, 7680) if name.endswith("weight") else (7680,), None) for name in names], given)
        self.keep("llama", folder, "tp=2", "--set", "towers=1")
        for tower in ("visual", "model.vision_tower", "vision_model", "vision_encoder", "audio_tower"):
            for name in ("weight_scale", "weight_scale_inv", "weight_packed", "qweight", "weight.absmax", "SCB"):
                self.keep("llama", self.write([(f"{tower}.layers.0.x.{name}", "F32", (8,), None)], given), "tp=2", "--set", "towers=1")

    def plan_any(self):
        folder = self.write([("any", "F32", (8, 8), None)], {})
        self.keep("fsdp", folder, "fsdp=2")
        self.keep("replicate", folder, "dp=2")

    def plan_meta(self):
        """Names of Meta and Mistral, which no model_type leads to."""
        given = {"hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 3, "embedding_columns": 0}
        matrices = {"tok_embeddings.weight": (6, 8), "output.weight": (6, 8)}
        for name, shape in [("attention.wq", (8, 8)), ("attention.wk", (4, 8)), ("attention.wv", (4, 8)), ("attention.wo", (8, 8)),
                            ("attention.wqkv", (16, 8)), ("feed_forward.w1", (4, 8)), ("feed_forward.w3", (4, 8)), ("feed_forward.w2", (8, 4)),
                            ("feed_forward.gate", (3, 8)), ("feed_forward.w_in_shared_FD", (4, 8)), ("feed_forward.w_swiglu_FD", (4, 8)),
                            ("feed_forward.w_out_shared_DF", (8, 4))]:
            matrices[f"layers.0.{name}.weight"] = shape
        for name, shape in [("mlp.fc1_weight", (8, 8)), ("mlp.fc2_weight", (8, 4)), ("experts.moe_w_in_eD_F", (24, 4)),
                            ("experts.moe_w_swiglu_eD_F", (24, 4)), ("experts.moe_w_out_eF_D", (12, 8)), ("router_DE", (8, 3)),
                            ("expert_activation_DE", (8, 3)), ("global_gate_stats_3E", (3, 3))]:
            matrices[f"layers.0.feed_forward.{name}"] = shape
        for name, size in [("attention.wq.bias", 8), ("attention.wk.bias", 4), ("attention.wv.bias", 4), ("ffn_norm.weight", 8),
                           ("attention.wqkv.layer_norm_weight", 8)]:
            matrices[f"layers.0.{name}"] = (size,)
        matrices["rope.freqs"] = (1,)
        folder = self.write([(name, "F32", shape, None) for name, shape in matrices.items()], given)
        for axis in ("tp", "mp"):
            self.keep("meta", folder, f"{axis}=2", "--rules", "meta")
        self.keep("meta", folder, "tp=2", "--rules", "meta", "--set", "embedding_columns=1")

    def plan_extras(self):
        for extra in EXTRAS:
            row = BY_NAME[extra.row]
            folder = self.write(extra.tensors, {**row.given, **extra.changes})
            for mesh in extra.meshes:
                self.keep("mixtral" if extra.changes.get("model_type") else row.family, folder, mesh)

    def test_extras_are_cut_as_said(self):
        for number, extra in enumerate(EXTRAS):
            row = BY_NAME[extra.row]
            folder = self.write(extra.tensors, {**row.given, **extra.changes})
            for mesh in extra.meshes:
                with self.subTest(number=number, row=extra.row, mesh=mesh):
                    if extra.refused:
                        self.check_fails(["plan", folder, "--to", mesh], 1, extra.refused)
                        continue
                    kept = [tensor for tensor in extra.tensors if tensor[3] is not DROP]
                    self.check_plan(row, kept, folder, mesh, True, stages=extra.stages)

    def test_every_line_is_tried(self):
        self.plan_rows()
        self.plan_forms()
        self.plan_towers()
        self.plan_any()
        self.plan_meta()
        self.plan_extras()
        missing = []
        for family, number, line in family_lines():
            word = line.split()[0]
            if word in ("types", "sign", "use") or family in ("vllm", "megatron"):  # names that naming_vllm and checkpoint_megatron try
                continue
            if word in ("every", "every:", "default") or re.search(r"\bdrop\b", line):
                if not self.matters(family, number, line):
                    missing.append(f"{family}:{number}: {line}")
                continue
            names = self.tried[family, number]
            if not names:
                missing.append(f"{family}:{number}: {line}")
                continue
            expression, lists = glob_expression(word)
            found = list(zip(*[expression.match(name).groups() for name in names]))
            missing += [f"{family}:{number}: {word}: {text!r}" for place, texts in enumerate(lists) for text in texts if text not in found[place]]
        self.assertEqual(missing, [], "no model of families/ tries these; families/extras.py is the place for names that no row has")

    def test_towers_are_whole_in_every_family_that_has_them(self):
        """No line for the text comes before those for towers, whose layers have the same names."""
        inside = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "self_attn.out_proj", "self_attn.qkv_proj", "attention.dense", "attn.out_proj", "mlp.fc1",
                  "mlp.gate_proj", "mlp.down_proj", "feed_forward.w1", "conv.out_proj", "mixer.q_proj", "mamba.in_proj", "norm"]
        names = [f"{at}{tower}.layers.0.{name}.weight" for at in ("", "model.") for tower in ("vision_tower", "visual", "audio_tower") for name in inside]
        for row in ROWS:
            if not any(name == "towers" for name, _, _ in unfold(row.family)):
                continue
            tensors = [(name, "F32", (6, 6), None) for name in names]
            with self.subTest(row=row.name):
                self.check_whole(row, tensors)

    def check_whole(self, row, tensors):
        done, plan = self.plan(self.write(tensors, row.given), "tp=2")
        self.assertEqual((done.returncode, done.stderr), (0, ""), row.name)
        self.assertEqual([tensor["name"] for tensor in plan["tensor_list"] if tensor["cut"] != "tp=2: R"], [], row.name)

    def matters(self, family, number, line):
        """Whether some plan changes without this line. A line that names no tensor, such as a default, may matter to any."""
        axis = re.search(r"@(\w+)", line)
        glob = re.match(r"(?:every )?(\S+?):?(?: |$)", line)[1] if not line.startswith(("default", "every:")) else "*"
        expression, _ = glob_expression(glob)
        for model in self.models:
            folder, by, mesh, options, names = model
            if (family, number) not in self.numbers(by) or (axis and line.startswith("every") and f"{axis[1]}=2" not in mesh):
                continue
            if any(expression.match(name) for name in names) and self.outcome(model, None) != self.outcome(model, (family, number)):
                return True
        return False

    @functools.lru_cache(maxsize=None)
    def numbers(self, family):
        return {line[:2] for line in unfold(family)}

    @functools.lru_cache(maxsize=None)
    def outcome(self, model, without):
        """What is planned for the model by its family's rules, but for one line."""
        folder, by, mesh, options, _ = model
        lines = [line for name, number, line in unfold(by) if (name, number) != without and not line.startswith(("types ", "sign "))]
        done, plan = self.plan(folder, mesh, *options, "--rules", self.write_file("\n".join(lines).encode()))
        return done.returncode, str([(tensor["name"], tensor["shards"]) for tensor in plan["tensor_list"]]) if plan else None


if __name__ == "__main__":
    support.main()
