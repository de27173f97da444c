# SPDX-License-Identifier: Apache-2.0
"""`python -m reshard ..` and the script `reshard` run the command: the one in the package, else the first one in PATH."""
import os
import shutil
import sys
from typing import Optional

from ._library import HERE


def find_command() -> Optional[str]:
    """RESHARD_COMMAND, the package's own command, or a `reshard` in PATH that is not this script."""
    asked = os.environ.get("RESHARD_COMMAND")
    if asked:
        return asked
    own = os.path.join(HERE, "bin", "reshard")
    if os.access(own, os.X_OK):
        return own
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep)
               if os.path.realpath(folder) != os.path.realpath(os.path.dirname(sys.executable))]
    return shutil.which("reshard", path=os.pathsep.join(folders))


def main() -> None:
    """Replaces this process by the command, with the same arguments."""
    command = find_command()
    if command is None:
        sys.exit("reshard: the command is neither in the package nor in PATH; set RESHARD_COMMAND to its path")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
