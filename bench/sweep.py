"""Draws what polyhead_bench_sweep measured: % of the multiply-add peak over the query length, a line for each head dim.

    python3 bench/sweep.py RESULTS.json PLOT.svg
"""
import json
import sys

import matplotlib.pyplot as plt
from compare import plots
from matplotlib import ticker


def draw(results, theme="light"):
    """A panel for plain and one for causal attention; lengths on a logarithmic axis."""
    with plt.rc_context(plots.style(theme)):
        figure, panels = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
        for panel, causal in zip(panels, (False, True)):
            for line, colour in zip([one for one in results["lines"] if one["causal"] is causal], plt.cm.viridis([i / 7 for i in range(7)])):
                lengths = [point["length"] for point in line["points"]]
                panel.plot(lengths, [point["percent_of_peak"] for point in line["points"]], color=colour, linewidth=1.1,
                           label="head_dim %d" % line["head_dim"])
            panel.set_title("causal" if causal else "plain")
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter(ticker.ScalarFormatter())
            panel.set_xlabel("query length = key length")
            panel.grid(True)
        panels[0].set_ylabel("% of peak (" + results["peak"] + ")")
        panels[0].set_ylim(bottom=0)
        panels[1].legend(loc="lower right")
        threads = results["threads"]
        figure.suptitle("1 batch row, %d heads, f32, %d thread%s" % (results["heads"], threads, "" if threads == 1 else "s"))
        return figure


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    draw(results).savefig(sys.argv[2], metadata={"Date": None} if sys.argv[2].endswith(".svg") else None)
    print("written: %s" % sys.argv[2])


if __name__ == "__main__":
    main()
