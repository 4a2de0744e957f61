"""The plots of the report: each a function from results and theme to a figure, drawn by Matplotlib."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib import ticker  # noqa: E402

from . import cases, results  # noqa: E402

THEMES = {
    "light": dict(ink="#1f2328", soft="#59636e", grid="#d9dee3", paper="#ffffff", band="#f3f5f8",
                  series=["#0b5fce", "#d1480f", "#1a8a4a", "#8a3ab0", "#8a6d00", "#4d5761"]),
    "dark": dict(ink="#e6edf3", soft="#9aa5b1", grid="#343b44", paper="#161b22", band="#1d232c",
                 series=["#62a8ff", "#ff8b5a", "#5fd08a", "#cf9bf2", "#e3c34b", "#a9b4c0"]),
}  # fmt: skip
MARKERS = "os^Dvphx"


def style(theme):
    """Settings under which a figure is drawn and written."""
    t = THEMES[theme]
    return {"figure.facecolor": t["paper"], "axes.facecolor": t["paper"], "savefig.facecolor": t["paper"], "text.color": t["ink"],
            "axes.labelcolor": t["ink"], "axes.edgecolor": t["grid"], "xtick.color": t["soft"], "ytick.color": t["ink"], "grid.color": t["grid"],
            "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.spines.top": False,
            "axes.spines.right": False, "legend.frameon": False, "svg.hashsalt": "polyhead", "figure.constrained_layout.use": True}  # fmt: skip


class Look:
    """Colour and marker of each library: the same in all plots of a theme."""

    def __init__(self, document, theme):
        self.theme, self.colours = THEMES[theme], {}
        self.labels = {name: peer["label"] for name, peer in document["peers"].items()}
        for index, name in enumerate(self.labels):
            self.colours[name] = (self.theme["series"][index % len(self.theme["series"])], MARKERS[index % len(MARKERS)])

    def mark(self, name):
        colour, marker = self.colours[name]
        return dict(color=colour, marker=marker, label=self.labels[name])

    def bar(self, name):
        return self.colours[name.split(" ")[0]][0]


def rows_of(document, groups):
    """The records of these groups that have an answer, in the order of the groups; a group's name comes before its first record."""
    found = []
    for group in groups:
        records = [r for r in document["cases"] if r["group"] == group and any(results.timed(x) for x in r["results"])]
        found += [cases.GROUPS[group], *records] if records else []
    return found


def row_label(row):
    return row if isinstance(row, str) else "%s   %s" % (row["title"], row["words"])


def records_in(rows):
    """(height, record) of the rows that are records."""
    return [(height, row) for height, row in enumerate(rows) if not isinstance(row, str)]


def strips(axis, look, rows):
    """Rows from top to bottom, a band behind every other record."""
    axis.set_ylim(len(rows) - 0.5, -0.5)
    for height, _ in records_in(rows)[::2]:
        axis.axhspan(height - 0.5, height + 0.5, color=look.theme["band"], zorder=0, linewidth=0)
    axis.set_yticks(range(len(rows)), [row_label(row) for row in rows])
    for text, row in zip(axis.get_yticklabels(), rows):
        if isinstance(row, str):
            text.set(fontweight="bold", color=look.theme["soft"])
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x", linewidth=0.8)
    axis.set_axisbelow(True)


def side_by_side(document, rows, theme, draw, threads=None):
    """One panel per number of threads over the same rows."""
    look, threads = Look(document, theme), threads or document["threads"]
    figure, axes = plt.subplots(1, len(threads), sharey=True, figsize=(4.2 + 3.1 * len(threads), 1.5 + 0.27 * len(rows)), squeeze=False)
    figure.get_layout_engine().set(wspace=0.05)  # numbers at the ends of neighbouring scales do not touch
    for axis, count in zip(axes[0], threads):
        strips(axis, look, rows)
        draw(axis, look, rows, count)
        axis.set_title(results.title(document, count))
    return figure, axes[0], look


def quantity(document, groups, theme, key, label, top):
    records = rows_of(document, groups)
    if not records:
        return None

    def draw(axis, look, found, threads):
        for name in reversed(list(look.labels)):
            points = [(r[key], row) for row, record in records_in(found) for r in [results.result_of(record, name, threads)] if r]
            if points:
                axis.plot([p["median"] for p, _ in points], [row for _, row in points], linestyle="", markersize=7 if name == results.OURS else 5.5,
                          zorder=4 if name == results.OURS else 3, **look.mark(name))
        axis.set_xlim(0, max(top, axis.get_xlim()[1]))
        axis.set_xlabel(label)

    figure, axes, look = side_by_side(document, records, theme, draw)
    ordered_legend(figure, axes[0], look)
    return figure


def ordered_legend(figure, axis, look):
    handles, names = axis.get_legend_handles_labels()
    known = dict(zip(names, handles))
    order = [name for name in look.labels.values() if name in known]
    figure.legend([known[name] for name in order], order, loc="outside upper left", ncols=min(6, len(order)))


def peak(document, theme):
    return quantity(document, [g for g in cases.GROUPS if g not in ("decode", "growth")], theme, "percent_of_peak", "% of the multiply-add peak", 100)


def decode(document, theme):
    return quantity(document, ["decode"], theme, "percent_of_read", "% of the measured read bandwidth", 100)


def ratios(document, theme, groups=cases.GROUPS, threads=None):
    records = [row for row in rows_of(document, groups) if isinstance(row, str) or row["best"]]
    if not records_in(records):
        return None

    def draw(axis, look, found, threads):
        axis.axvline(1, color=look.theme["ink"], linewidth=1.2, zorder=2)
        for name in look.labels:
            points = [(r["ratio"], row) for row, record in records_in(found) for r in [results.result_of(record, name, threads)] if r and "ratio" in r]
            if points:
                middle = [p["median"] for p, _ in points]
                errors = [[p["median"] - p["q1"] for p, _ in points], [p["q3"] - p["median"] for p, _ in points]]
                axis.errorbar(middle, [row for _, row in points], xerr=errors, linestyle="", markersize=5.5, elinewidth=1.4, zorder=3, **look.mark(name))
        axis.set_xscale("log")
        plain_log(axis.xaxis)
        axis.set_xlabel("time / time of polyhead")

    figure, axes, look = side_by_side(document, records, theme, draw, threads)
    low = min(a.get_xlim()[0] for a in axes)
    high = max(a.get_xlim()[1] for a in axes)
    for axis in axes:
        axis.set_xlim(min(low, 0.7), max(high, 1.45))
    ordered_legend(figure, axes[0], look)
    return figure


def overview(document, theme):
    """Whole models on one thread: the plot in the README."""
    return ratios(document, theme, ("model", "layer", "decode"), document["threads"][:1])


def plain_log(axis, subs=(1, 2, 5)):
    """Numbers and not powers on a logarithmic axis."""
    axis.set_major_locator(ticker.LogLocator(base=10, subs=subs))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: "%g" % value))
    axis.set_minor_formatter(ticker.NullFormatter())


def growth(document, theme):
    records = sorted((r for _, r in records_in(rows_of(document, ["growth"]))), key=lambda r: r["shape"]["Tq"])
    if len(records) < 2:
        return None
    look, threads = Look(document, theme), document["threads"][-1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.4))
    for name in look.labels:
        found = [(record["shape"]["Tq"], r["ms"]["median"]) for record in records for r in [results.result_of(record, name, threads)] if r]
        lengths = [t for t, _ in found]
        left.plot(lengths, [ms for _, ms in found], linewidth=1.6, markersize=5, **look.mark(name))
        right.plot(lengths, [ms * 1e6 / t**2 for t, ms in found], linewidth=1.6, markersize=5, **look.mark(name))
    for axis, steps in ((left, (1,)), (right, (1, 2, 5))):
        axis.set_yscale("log")
        plain_log(axis.yaxis, steps)
    left.set(title="Time per call, %s" % results.title(document, threads), xlabel="tokens", ylabel="milliseconds")
    right.set(title="Time per pair of query and key, 8 heads of 64", xlabel="tokens", ylabel="nanoseconds")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_xticks([r["shape"]["Tq"] for r in records], ["%d" % r["shape"]["Tq"] for r in records])
        axis.minorticks_off()
        axis.tick_params(axis="y", colors=look.theme["soft"])
        axis.grid(linewidth=0.8)
    ordered_legend(figure, left, look)
    return figure


def scaling(document, theme):
    """Speed of the largest number of threads over one: a dot per case."""
    if len(document["threads"]) < 2:
        return None
    look, few, many = Look(document, theme), document["threads"][0], document["threads"][-1]
    figure, axis = plt.subplots(figsize=(8.2, 0.9 + 0.62 * len(look.labels)))
    names = list(look.labels)
    for row, name in enumerate(names):
        pairs = [(results.result_of(r, name, few), results.result_of(r, name, many)) for r in document["cases"] if r["group"] != "decode"]
        speed = sorted(a["ms"]["median"] / b["ms"]["median"] for a, b in pairs if a and b)
        if not speed:
            continue
        offsets = [row + 0.22 * ((i * 0.618) % 1 - 0.5) for i in range(len(speed))]  # spread evenly, the same every time
        axis.plot(speed, offsets, linestyle="", markersize=5, alpha=0.75, **look.mark(name))
        middle = speed[len(speed) // 2]
        axis.plot([middle, middle], [row - 0.3, row + 0.3], color=look.theme["ink"], linewidth=2)
    axis.set_yticks(range(len(names)), [look.labels[n] for n in names])
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.axvline(many / few, color=look.theme["soft"], linestyle="--", linewidth=1)
    axis.set(xlabel="speed on %s / speed on %s; the bar is the middle case, the dashed line is all that is possible" % (results.threads_text(many), few))
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", linewidth=0.8)
    return figure


COST_LABELS = {"polyhead": "polyhead in Python, which compiles", "polyhead linked": "polyhead, linked ahead of time"}


def bars(document, theme, values, label, text):
    if not values:
        return None
    look = Look(document, theme)
    names = sorted(values, key=values.get)
    figure, axis = plt.subplots(figsize=(8.2, 0.9 + 0.42 * len(names)))
    axis.barh(range(len(names)), [values[n] for n in names], height=0.62, color=[look.bar(n) for n in names])
    for row, name in enumerate(names):
        axis.annotate(text(values[name]), (values[name], row), xytext=(5, 0), textcoords="offset points", va="center")
    axis.set_yticks(range(len(names)), [COST_LABELS.get(n) or look.labels.get(n, n) for n in names])
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xscale("log")
    plain_log(axis.xaxis, (1,))
    axis.set_xlim(right=max(values.values()) * 3)
    axis.set(xlabel=label)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", linewidth=0.8)
    axis.set_axisbelow(True)
    return figure


def megabytes(value):
    return "%.2g MB" % value if value < 10 else "%.0f MB" % value


def library_bytes(document, theme):
    values = {name: size["bytes"] / 1e6 for name, size in document["library_bytes"].items() if size.get("bytes")}
    return bars(document, theme, values, "megabytes", megabytes)


def cold_start(document, theme):
    values = {name: start["median"] * 1e3 for name, start in document["cold_start"].items() if "median" in start}
    return bars(document, theme, values, "milliseconds", lambda ms: "%.3g ms" % ms if ms < 1000 else "%.2f s" % (ms / 1000))


# name, title, drawing, what it shows
ALL = (
    ("peak", "% of peak by shape", peak, "Arithmetic per second as a part of what the same cores reach in bare multiply-adds in the same round. "
     "Further right is faster. A softmax and a mask are work that this scale does not count."),
    ("ratio", "Time of the others, by shape", ratios, "Medians of the ratios within a round; bars are the middle half of the rounds. Right of the line polyhead "
     "is faster, left of it slower."),
    ("overview", "Time of the others, real models", overview, "The same for shapes of real models, on the smallest number of threads."),
    ("decode", "Decoding: % of bandwidth", decode, "One query against a cache of keys and values that lies in memory. What counts is how fast the cache is read."),
    ("growth", "Growing sequences", growth, "Left: time per call. Right: the same time by pair of query and key, which stays level when twice the length costs "
     "four times as much."),
    ("threads", "Threads", scaling, "Every dot is a case."),
    ("bytes", "Bytes on disk", library_bytes, "For polyhead linked ahead of time: the kernel and the runtime inside a program. For the others: what pip installs, "
     "dependencies included. Logarithmic."),
    ("cold_start", "Cold start", cold_start, "From the start of a process to its first answer, files already in memory. Logarithmic."),
)  # fmt: skip
