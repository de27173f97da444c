# SPDX-License-Identifier: Apache-2.0
"""Symbolic links in a checkpoint's folder. Weights are read wherever a link leads, and a note says so. Other files are copied
from inside the folder, or the model's part of the hub's cache, alone."""
import os
import shutil
import stat
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files  # noqa: E402
from support import CommandTest, main, run  # noqa: E402

MODEL = {"t": ("U8", (4, 2), bytes(range(8)))}


class LinksTest(CommandTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="reshard-test-")
        self.addCleanup(holder.cleanup)
        self.folder = os.path.realpath(holder.name)
        files.write(self.at("source/model.safetensors"), MODEL)
        self.write("secret", "of this machine")

    def at(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        with open(self.at(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.at(name), mode)

    def check_refused(self, words):
        """In one line, before anything is written, also when nothing would be."""
        for extra in ([], ["--dry-run"]):
            self.check_fails(["convert", self.at("source"), self.at("out"), *extra], 1, words)
            self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("out")], [])

    def test_links_that_leave_are_refused(self):
        for target in (self.at("secret"), "../secret", "../source2/x", "/etc/passwd"):
            self.write("source2/x", "a folder whose name begins like the source's")
            os.symlink(target, self.at("source/tokenizer.json"))
            with self.subTest(target=target):
                self.check_refused(f"{self.at('source/tokenizer.json')}: a link that leaves the checkpoint")
            os.unlink(self.at("source/tokenizer.json"))
        os.symlink(self.at("source2"), self.at("source/more"))  # a folder
        self.check_refused("source/more: a link that leaves")

    def test_links_that_cannot_be_read_are_found_first(self):
        os.symlink("nowhere", self.at("source/tokenizer.json"))
        self.check_refused("source/tokenizer.json: leads nowhere")
        os.unlink(self.at("source/tokenizer.json"))
        os.symlink("loop", self.at("source/loop"))
        self.check_refused("source/loop: leads nowhere")

    def test_links_inside(self):
        self.write("source/real.json", "{}")
        os.symlink("real.json", self.at("source/tokenizer.json"))
        os.symlink(self.at("source"), self.at("linked"))
        for number, name in enumerate(["source", "linked"]):
            self.read_text("convert", self.at(name), self.at(f"out{number}"), "--quiet")
            self.assertEqual(sorted(os.listdir(self.at(f"out{number}"))), ["model.safetensors", "real.json", "tokenizer.json"])
            self.assertFalse(os.path.islink(self.at(f"out{number}/tokenizer.json")))

    def test_cache_of_the_hub(self):
        """models--org--name/snapshots/REVISION links to ../../blobs; other models do not belong to it."""
        model = "hub/models--org--name"
        files.write(self.at(f"{model}/blobs/aa"), MODEL)
        self.write(f"{model}/blobs/bb", "{}", 0o600)
        os.makedirs(self.at(f"{model}/snapshots/123"))
        os.symlink("../../blobs/aa", self.at(f"{model}/snapshots/123/model.safetensors"))
        os.symlink("../../blobs/bb", self.at(f"{model}/snapshots/123/tokenizer.json"))
        text = self.read_text("convert", self.at(f"{model}/snapshots/123"), self.at("out"))
        self.assertNotIn("leads", text)
        self.assertEqual(files.read(self.at("out/model.safetensors"))[0], MODEL)
        self.assertEqual(stat.S_IMODE(os.stat(self.at("out/tokenizer.json")).st_mode), 0o600)
        self.write("hub/models--org--other/blobs/cc", "{}")
        os.symlink(self.at("hub/models--org--other/blobs/cc"), self.at(f"{model}/snapshots/123/vocab.json"))
        self.check_fails(["convert", self.at(f"{model}/snapshots/123"), self.at("out2")], 1, "vocab.json: a link that leaves")

    def test_modes_are_kept(self):
        for name, mode in [("private.json", 0o600), ("run.sh", 0o755), ("group.txt", 0o640)]:
            self.write(f"source/{name}", "x", mode)
        self.write("source/read.txt", "x", 0o444)
        self.read_text("convert", self.at("source"), self.at("out"), "--quiet")
        for name, mode in [("private.json", 0o600), ("run.sh", 0o755), ("group.txt", 0o640), ("read.txt", 0o644)]:
            self.assertEqual(stat.S_IMODE(os.stat(self.at(f"out/{name}")).st_mode), mode, name)

    def link_all(self, source, folder):
        """A folder of links to the files of another one."""
        os.makedirs(self.at(folder))
        for name in os.listdir(self.at(source)):
            os.symlink(self.at(f"{source}/{name}"), self.at(f"{folder}/{name}"))

    def test_weights_elsewhere_are_told_of__in_every_format(self):
        files.write(self.at("plain/model.safetensors"), MODEL)
        for form in ("hf", "dcp", "dcp-safetensors", "rank-files", "torch-ranks", "torch"):
            mesh = [] if form in ("hf", "torch") else ["--to", "fsdp=2"]
            self.read_text("convert", self.at("plain"), self.at(form), *mesh, "--format", form, "--quiet")
            self.link_all(form, f"links of {form}")
            weights = sorted(name for name in os.listdir(self.at(form)) if name.endswith((".safetensors", ".distcp", ".pt", ".bin", ".pth")))
            note = f"files that are links and leave the folder: {len(weights)} of {len(weights)}; {weights[0]} leads to {self.at(form)}/{weights[0]}"
            with self.subTest(form):
                for command in ("inspect", "plan"):
                    self.assertIn(f"note: {note}\n", self.read_text(command, self.at(f"links of {form}")))
                self.assertIn(f"note: {note}\n", self.read_text("convert", self.at(f"links of {form}"), self.at("out"), "--format", "hf"))
                self.assertEqual(files.read(self.at("out/model.safetensors"))[0], MODEL)  # they are followed
                shutil.rmtree(self.at("out"))
                self.assertEqual(self.read_text("convert", self.at(f"links of {form}"), self.at("out"), "--format", "hf", "--quiet"), "")
                shutil.rmtree(self.at("out"))

    def test_weights_elsewhere_are_told_of__by_an_index_that_is_named(self):
        files.write(self.at("elsewhere/w"), MODEL)
        os.makedirs(self.at("links"))
        os.symlink(self.at("elsewhere/w"), self.at("links/a.safetensors"))
        self.write("links/model.safetensors.index.json", '{"weight_map": {"t": "a.safetensors"}}')
        note = f"files that are links and leave the folder: 1 of 1; a.safetensors leads to {self.at('elsewhere/w')}"
        for name in ("links", "links/model.safetensors.index.json"):
            self.assertIn(f"note: {note}\n", self.read_text("inspect", self.at(name)))
        self.assertNotIn("leave the folder", self.read_text("inspect", "a.safetensors", cwd=self.at("links")))  # the user named it

    def test_weights_elsewhere_are_told_of__through_a_folder(self):
        """Metadata may name files in folders, and such a folder may be a link."""
        files.write(self.at("plain/model.safetensors"), MODEL)
        self.read_text("convert", self.at("plain"), self.at("dcp"), "--to", "fsdp=1", "--format", "dcp", "--quiet")
        with open(self.at("dcp/.metadata"), "rb") as file:
            text = file.read()
        with open(self.at("dcp/.metadata"), "wb") as file:
            file.write(text.replace(b"__0_0.distcp", b"s/0_0.distcp"))  # as long as before
        os.mkdir(self.at("dcp/s"))
        os.rename(self.at("dcp/__0_0.distcp"), self.at("dcp/s/0_0.distcp"))
        self.assertNotIn("leave the folder", self.read_text("inspect", self.at("dcp")))
        os.rename(self.at("dcp/s"), self.at("elsewhere"))
        os.symlink(self.at("elsewhere"), self.at("dcp/s"))
        note = f"files that are links and leave the folder: 1 of 1; s/0_0.distcp leads to {self.at('elsewhere')}/0_0.distcp"
        self.assertIn(f"note: {note}\n", self.read_text("inspect", self.at("dcp")))

    def test_indexes_elsewhere_bring_in_nothing(self):
        """An index and metadata that are links are read, and lead only to files beside the link."""
        self.write("elsewhere/index.json", '{"metadata": {"note": "of this machine"}, "weight_map": {"t": "model.safetensors"}}')
        os.symlink(self.at("elsewhere/index.json"), self.at("source/model.safetensors.index.json"))
        files.write(self.at("elsewhere/model.safetensors"), {"t": ("U8", (4, 2), b"elsewhe!")})
        self.read_text("convert", self.at("source"), self.at("out"), "--quiet")
        self.assertEqual(os.listdir(self.at("out")), ["model.safetensors"])
        self.assertEqual(files.read(self.at("out/model.safetensors"))[:2], (MODEL, {"format": "pt"}))
        for name in ("../elsewhere/model.safetensors", self.at("elsewhere/model.safetensors"), "elsewhere/model.safetensors"):
            self.write("elsewhere/index.json", '{"weight_map": {"t": "%s"}}' % name)
            self.check_fails(["convert", self.at("source"), self.at("out2")], 1, "the name of a file beside the index")
        self.read_text("convert", self.at("elsewhere/model.safetensors"), self.at("dcp"), "--to", "fsdp=2", "--format", "dcp", "--quiet")
        os.rename(self.at("dcp/.metadata"), self.at("elsewhere/.metadata"))
        os.symlink(self.at("elsewhere/.metadata"), self.at("dcp/.metadata"))
        self.read_text("convert", self.at("dcp"), self.at("out3"), "--quiet")
        self.assertEqual(files.read(self.at("out3/model.safetensors"))[0], {"t": ("U8", (4, 2), b"elsewhe!")})
        os.mkdir(self.at("alone"))
        os.symlink(self.at("elsewhere/.metadata"), self.at("alone/.metadata"))  # its files are not beside the link
        self.assertNotEqual(run("convert", self.at("alone"), self.at("out4")).returncode, 0)

    def test_weights_elsewhere_are_told_of(self):
        files.write(self.at("elsewhere/w"), MODEL)
        os.makedirs(self.at("links"))
        for name in ("1.safetensors", "2.safetensors"):
            os.symlink(self.at("elsewhere/w" if name[0] == "1" else "elsewhere/v"), self.at(f"links/{name}"))
        files.write(self.at("elsewhere/v"), {"v": ("U8", (1,), b"v")})
        note = f"files that are links and leave the folder: 2 of 2; 1.safetensors leads to {self.at('elsewhere/w')}"
        self.assertIn(note, self.read_json("inspect", self.at("links"))["notes"])
        self.assertIn(f"note: {note}\n", self.read_text("inspect", self.at("links")))
        self.assertIn(f"note: {note}\n", self.read_text("convert", self.at("links"), self.at("out")))
        self.assertEqual(self.read_json("inspect", self.at("links/1.safetensors"))["notes"], [])


if __name__ == "__main__":
    main()
