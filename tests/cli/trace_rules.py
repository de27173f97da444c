# SPDX-License-Identifier: Apache-2.0
"""The rules of the trace event format, as far as reshard uses it, written down from the format's description and from what
viewers do; shares no code with what writes traces. Times are exact: nanoseconds as integers.

    python3 trace_rules.py FILE...      checks files and tells what is in them
"""
import collections
import decimal
import json
import sys

KINDS = {"plan", "ready", "copy", "combine", "pack", "send", "receive", "unpack", "wait", "done", "verify", "read", "write",
         "kernel copy", "compare", "sync", "stage"}
# Of an exec: those whose bytes are what the plan moves, and those that tell what stays.
MOVED, KEPT = {"copy", "receive", "unpack"}, {"copy", "combine"}

Span = collections.namedtuple("Span", "name category begin end rank thread args")


class BrokenRule(AssertionError):
    pass


def demand(true, *words):
    if not true:
        raise BrokenRule(" ".join(str(word) for word in words))


def refuse_twice(pairs):
    found = dict(pairs)
    demand(len(found) == len(pairs), "a key twice in", pairs)
    return found


def nanoseconds(number):
    exact = decimal.Decimal(number) * 1000
    demand(exact == exact.to_integral_value(), "parts of a nanosecond:", number)
    return int(exact)


class Trace:
    """A file that keeps the rules."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.whole = json.load(file, parse_float=decimal.Decimal, object_pairs_hook=refuse_twice)
        demand(set(self.whole) == {"traceEvents", "displayTimeUnit", "otherData"}, sorted(self.whole))
        self.other = self.whole["otherData"]
        self.spans, self.flows, self.names = [], collections.defaultdict(dict), {}
        for event in self.whole["traceEvents"]:
            self.take(event)
        self.check_nesting()
        self.check_names()
        self.check_counts()

    def take(self, event):
        for key in ("name", "ph", "ts", "pid", "tid"):
            demand(key in event, "no", key, "in", event)
        for key in ("pid", "tid"):
            demand(isinstance(event[key], int) and event[key] >= 0, event)
        place = event["pid"], event["tid"]
        begin = nanoseconds(event["ts"])
        demand(begin >= 0, "before the beginning:", event)
        if event["ph"] == "X":
            demand(event["name"] in KINDS, "unknown span", event)
            length = nanoseconds(event["dur"])
            demand(length >= 0, event)
            self.spans.append(Span(event["name"], event["cat"], begin, begin + length, *place, event["args"]))
        elif event["ph"] in "sf":
            demand(event["ph"] == "s" or event["bp"] == "e", event)
            demand(event["ph"] not in self.flows[event["id"]], "a flow's end twice:", event)
            demand(int(event["id"], 16) > 0 and (event["name"], event["cat"]) == ("bytes", "flow"), event)
            self.flows[event["id"]][event["ph"]] = (begin, *place)
        else:
            demand(event["ph"] == "M", "unknown phase", event)
            self.names[event["name"], *(place if event["name"] != "process_name" else place[:1])] = event["args"].get("name")

    def check_nesting(self):
        """Of two spans of a thread, one is inside the other or they do not meet."""
        self.rows = collections.defaultdict(list)
        for span in self.spans:
            self.rows[span.rank, span.thread].append(span)
        for row in self.rows.values():
            row.sort(key=lambda span: (span.begin, -span.end))
            around = []
            for span in row:
                while around and around[-1].end <= span.begin:
                    around.pop()
                demand(not around or span.end <= around[-1].end, "spans cross:", around[-1:], span)
                around.append(span)

    def check_names(self):
        for rank, thread in self.rows:
            demand(self.names.get(("process_name", rank)) == f"rank {rank}", "no name of rank", rank)
            demand(self.names.get(("thread_name", rank, thread)), "no name of thread", rank, thread)

    def check_counts(self):
        ranks = self.other["ranks"]
        demand([one["rank"] for one in ranks] == list(range(len(ranks))), ranks)
        demand(sum(one["dropped"] for one in ranks) == self.other["dropped"], ranks)
        events = len(self.spans) + sum(len(ends) for ends in self.flows.values())
        demand(sum(one["events"] for one in ranks) == events, events, "events, and", ranks)

    def check_flows(self):
        """All arrows have both ends, in spans of different ranks, and none goes back in time."""
        for id_, ends in self.flows.items():
            demand(set(ends) == {"s", "f"}, "half an arrow:", id_, ends)
            (begin, *source), (end, *target) = ends["s"], ends["f"]
            demand(begin <= end, "back in time:", id_, ends)
            demand(source[0] != target[0], "within a rank:", id_, ends)
            for at, row in ((begin, source), (end, target)):
                demand(any(span.begin <= at <= span.end for span in self.rows[tuple(row)]), "outside of spans:", id_, at, row)

    def total(self, key="bytes", names=MOVED, **wanted):
        return sum(span.args.get(key, 0) for span in self.spans
                   if span.name in names and all(span.args.get(name) == value for name, value in wanted.items()))

    def runs(self):
        return sorted({span.args["run"] for span in self.spans if "run" in span.args})


if __name__ == "__main__":
    for name in sys.argv[1:]:
        trace = Trace(name)
        trace.check_flows()
        print(name, dict(collections.Counter(span.name for span in trace.spans)), len(trace.flows), "arrows", trace.other["clock"])
