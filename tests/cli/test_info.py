# SPDX-License-Identifier: Apache-2.0
"""`reshard info`, held against what the system and the other commands say."""
import os
import re
import tempfile

from support import CommandTest, main, run


class InfoTest(CommandTest):
    def test_facts(self):
        facts = self.read_json("info")
        self.assertEqual(self.read_text("--version"), f"reshard {facts['version']}\n")
        self.assertEqual(facts["processors"], os.sysconf("SC_NPROCESSORS_ONLN"))
        self.assertEqual(facts["memory_bytes"], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        families = re.findall(r"^(\S+)  ", self.read_text("rules"), re.MULTILINE)[1:]
        self.assertEqual(facts["families"], families)
        written = re.search(r"expected auto\|(\S+)", run("convert", "a", "b", "--format", "none").stderr).group(1).split("|")
        self.assertEqual([f["name"] for f in facts["formats"] if f["writes"]], written)
        self.assertNotIn("folder", facts)

    def test_a_folder_is_left_as_it_was(self):
        with tempfile.TemporaryDirectory() as folder:
            before = os.stat(folder).st_nlink
            facts = self.read_json("info", folder)["folder"]
            self.assertEqual((facts["path"], os.listdir(folder), os.stat(folder).st_nlink), (folder, [], before))
            self.assertGreater(facts["bytes_free"], 0)
            try:
                os.close(os.open(os.path.join(folder, "direct"), os.O_RDWR | os.O_CREAT | os.O_DIRECT))
                is_direct = True
            except OSError:
                is_direct = False
            self.assertEqual(facts["direct"], is_direct)
            text = self.read_text("info", folder)
            self.assertIn("has direct access" if is_direct else "has no direct access", text)
            self.assertLessEqual(max(len(line) for line in text.splitlines() if not line.startswith("folder")), 80)

    def test_mistakes(self):
        self.check_fails(["info", "/no/such/folder"], code=1, words="No such file")
        self.check_fails(["info", "a", "b"], words='unexpected argument "b"')


if __name__ == "__main__":
    main()
