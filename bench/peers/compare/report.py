"""The report: one self-contained HTML page in light and dark, and the plots as PNG beside it."""

import base64
import html
import io
import pathlib
import string

import matplotlib.pyplot as plt

from . import cases, machine, measure, plots, results, table, whole

TEMPLATE = pathlib.Path(__file__).with_name("report.html")


def drawn(draw, document, theme, **options):
    """The bytes of a plot, or None when there is nothing to draw."""
    with plt.rc_context(plots.style(theme)):
        figure = draw(document, theme)
        if figure is None:
            return None
        memory = io.BytesIO()
        figure.savefig(memory, **options)
        plt.close(figure)
    return memory.getvalue()


def data_uri(svg):
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")


def figures(document, folder, stem):
    """HTML of all plots; writes STEM_NAME.png into the folder."""
    found = []
    for name, title, draw, caption in plots.ALL:
        png = drawn(draw, document, "light", format="png", dpi=150)
        if png is None:
            continue
        whole.write(pathlib.Path(folder, "%s_%s.png" % (stem, name)), png)
        light, dark = (data_uri(drawn(draw, document, theme, format="svg")) for theme in ("light", "dark"))
        found.append('<section class="card"><figure><h2>%s</h2><figcaption>%s</figcaption><div class="scroll"><picture><source media="(prefers-color-scheme: dark)" '
                     'srcset="%s"><img src="%s" alt="%s"></picture></div></figure></section>'
                     % (html.escape(title), html.escape(caption), dark, light, html.escape(title + ". " + caption)))  # fmt: skip
    return "\n".join(found)


def tile(number, text):
    return '<div class="card"><b>%s</b>%s</div>' % (html.escape(number), html.escape(text))


def tiles(document, labels):
    threads = document["threads"][-1]
    found = results.summary(document["cases"], threads)
    if not found:
        return tile("–", "nothing was compared")
    words, best = results.threads_text(threads), {r["name"]: r["best"].get(str(threads)) for r in document["cases"]}
    shown = [tile("%.2f×" % found["mean"], "time of the fastest other library of each case over ours, geometric mean of %d cases on %s"
                  % (found["cases"], words)),
             tile("%d of %d" % (found["faster"], found["cases"]), "cases in which polyhead is faster than all of them; level in %d, slower in %d"
                  % (found["level"], found["slower"]))]  # fmt: skip
    for key, text in (("most", "largest lead"), ("least", "smallest lead or largest loss")):
        name = found[key]
        shown.append(tile("%.2f×" % best[name]["median"], "%s: %s against %s" % (text, name, labels[best[name]["peer"]])))
    return "".join(shown)


def ratio_cell(result):
    if "ratio" in result:
        ratio = result["ratio"]
        detail = "%s; %.3g ms, largest error %.1e" % (result["how"], result["ms"]["median"], result["max_error"])
        return '<td class="%s" title="%s">%.2f <small>±%.2f</small></td>' % (
            results.verdict(ratio), html.escape(detail), ratio["median"], (ratio["q3"] - ratio["q1"]) / 2)  # fmt: skip
    if "ms" in result:
        return "<td>%.3g ms</td>" % result["ms"]["median"]
    reason = result.get("error") or result.get("missing") or ""
    return '<td title="%s">%s</td>' % (html.escape(reason), "error" if "error" in result else "no" if "missing" in result else "–")


def case_row(record, threads, others):
    found = {r["peer"]: r for r in record["results"] if r["threads"] == threads}
    ours = found.get(results.OURS, {})
    rate = ours.get("percent_of_read") or ours.get("percent_of_peak")
    cells = ["<td>%s</td><td>%s</td>" % (html.escape(record["title"]), html.escape(record["words"])),
             "<td>%.3g</td>" % ours["ms"]["median"] if "ms" in ours else ratio_cell(ours),
             "<td>%.0f%s</td>" % (rate["median"], " <small>of read</small>" if "percent_of_read" in ours else "") if rate else "<td>–</td>"]  # fmt: skip
    return "<tr>%s%s</tr>" % ("".join(cells), "".join(ratio_cell(found.get(name, {})) for name in others))


def case_table(document, threads, labels):
    others = [name for name in labels if name != results.OURS]
    heads = ["case", "shape", "polyhead ms", "% of peak", *(labels[name] for name in others)]
    rows = []
    for group, title in cases.GROUPS.items():
        records = [r for r in document["cases"] if r["group"] == group]
        if records:
            rows.append('<tr class="group"><th colspan="%d">%s</th></tr>' % (len(heads), html.escape(title)))
            rows += [case_row(record, threads, others) for record in records]
    return ('<section class="card"><h2>All cases, %s</h2><p class="soft">Under the names of the others: their time over ours, median of %d rounds ± half '
            'the interquartile range. Green: polyhead is faster. Red: it is slower. Uncoloured: the rounds do not agree. Hover for how a library did it.</p>'
            '<div class="scroll"><table><thead><tr>%s</tr></thead><tbody>%s</tbody></table></div></section>'
            % (results.title(document, threads), document["rounds"], "".join("<th>%s</th>" % html.escape(h) for h in heads), "".join(rows)))  # fmt: skip


TYPES = {True: "All tensors are f32 and arithmetic is f32 on all sides.",
         False: "Inputs are random numbers rounded to the type, the same for all libraries. Each library does its arithmetic in its own way; how far its answer "
                "may be from that of float64 depends on the type."}  # fmt: skip


def method(document):
    busy = [x for record in document["cases"] for x in record.get("others_busy", ())]
    again = sum(max(0, record.get("rounds_made", 0) - document["rounds"]) for record in document["cases"])
    roofs = [(n, results.spread([x for r in document["cases"] for x in r["roofs"][str(n)]["fma_gflops"]]),
              results.spread([x for r in document["cases"] for x in r["roofs"][str(n)]["copy_gbs"]])) for n in document["threads"]]  # fmt: skip
    lines = ["Command: %s" % document["command"],
             "Each library runs in processes of its own, one per number of threads, pinned to the same first cores. One process runs at a time; the others are "
             "stopped, so that their spinning threads cost nobody.",
             "A round gives every process one slice of %g s, in an order that changes from round to round. The shortest call stands for the slice and the "
             "fastest slice of the peak for the roof, because other programs only take away from them. Ratios are taken within a round."
             % document["slice_seconds"],
             "%s Inputs lie in the layout that a library likes, outputs are bound where it can." % TYPES[results.dtype_of(document) == "f32"],
             "Before anything is timed, sampled rows of every answer are held against float64. Of several ways in which a library can do a case, the fastest "
             "right one counts.",
             "Work that position or key lengths exclude is not counted as work; what a mask excludes is."]  # fmt: skip
    lines += ["Roof on %s: %.0f GFLOP/s by %s (middle half of the rounds %.0f to %.0f), a copy writes %.1f GB/s."
              % (results.threads_text(n), fma["median"], document["fma"], fma["q1"], fma["q3"], copy["median"]) for n, fma, copy in roofs]  # fmt: skip
    if busy:
        found = results.spread(busy)
        lines.append("Other programs kept %.2f cores busy meanwhile (median of the rounds; upper quartile %.2f). %d rounds were made again, because they used "
                     "more than %g." % (found["median"], found["q3"], again, measure.BUSY))
    return "".join("<li>%s</li>" % html.escape(line) for line in lines)


def warning(document):
    """What a reader must know before the first figure, or nothing."""
    busy = [x for record in document["cases"] for x in record.get("others_busy", ())]
    lines = ["This run was ended early; the cases that were complete are shown."] if document.get("interrupted") else []
    if busy and results.spread(busy)["median"] > measure.BUSY:
        lines.append("The machine was not quiet: other programs kept %.1f of %d cores busy, so figures are rough, those of several threads above all."
                     % (results.spread(busy)["median"], document["machine"]["cores"]))  # fmt: skip
    return "".join('<p class="warning">%s</p>' % html.escape(line) for line in lines)


def write(document, path):
    """Writes the page and its PNGs; returns their paths."""
    path = pathlib.Path(path)
    labels = {name: peer["label"] for name, peer in document["peers"].items()}
    lines = list(table.faults(document, labels))
    faults = "<section class=\"card\"><h2>What did not work</h2><ul>%s</ul></section>" % "".join("<li>%s</li>" % html.escape(x) for x in lines)
    found = document["machine"]
    versions = ", ".join("%s %s" % (peer["label"], peer["version"]) for peer in document["peers"].values() if peer.get("version"))
    page = string.Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        dtype=results.dtype_of(document), machine=html.escape(machine.sentence(found)), date=html.escape(found["date"]),
        commit=html.escape(found["commit"] + (", with changes" if found["changed"] else "")), versions=html.escape(versions),
        warning=warning(document), tiles=tiles(document, labels), plots=figures(document, path.parent, path.stem), method=method(document),
        tables="".join(case_table(document, n, labels) for n in document["threads"]), faults=faults if lines else "")  # fmt: skip
    whole.write(path, page)
    return [path, *sorted(path.parent.glob(path.stem + "_*.png"))]
