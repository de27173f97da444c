# SPDX-License-Identifier: Apache-2.0
"""machine.py - one line about the machine that the bench scripts print above their figures: a figure without it cannot be compared."""
import os
import platform
import re


def read(path, pattern=r"(.*)"):
    try:
        with open(path, encoding="utf-8") as file:
            found = re.search(pattern, file.read(), re.M)
    except OSError:
        found = None
    return found.group(1).strip() if found else "unknown"


def describe():
    cores = len(os.sched_getaffinity(0))
    caches = []
    for index in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
        if os.path.exists(folder + "level") and read(folder + "type") != "Instruction":
            caches.append(f"L{read(folder + 'level')} {read(folder + 'size')}")
    wide = [name for name in ("avx2", "avx512vbmi") if re.search(rf"\b{name}\b", read("/proc/cpuinfo", r"^flags\s*:(.*)$"))]
    busy = os.getloadavg()[0]
    model = read("/proc/cpuinfo", r"^model name[^:]*:(.*)$")
    huge = read("/sys/kernel/mm/transparent_hugepage/enabled", r"\[(.*?)\]")
    return (f"{model}, {cores} cores, {', '.join(caches) or 'caches unknown'}{', ' + ' '.join(wide) if wide else ''}; "
            f"{platform.system()} {platform.release()}, huge pages {huge}; load {busy:.1f} when begun")
