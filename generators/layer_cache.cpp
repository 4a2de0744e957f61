// The cache of a layer.
#include "layer_cache.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::RDom;

namespace {

// An entry as the projections left it.
Expr plain_entry(HeadRows::Heads heads, const AttentionInputs &in, const Storage &storage, const Expr &d, const Expr &t, const Expr &h,
                 const Expr &b) {
    const Storage &projected = heads == HeadRows::Heads::query ? in.query_storage : in.keys.storage();
    const Expr stored = heads == HeadRows::Heads::query ? in.stored_query(d, t, h, b)
                        : heads == HeadRows::Heads::key ? in.keys.stored_key(d, t, h, b)
                                                        : in.keys.stored_value(d, t, h, b);
    return projected.type == storage.type ? stored : storage.store(projected.load(stored));
}

// The place of a new key behind the valid ones of its batch row; with pages in one of `outermost` pages.
HeadPlace place_in_cache(const Problem &problem, const AttentionInputs &inputs, const Expr &outermost) {
    return [=](const Expr &d, const Expr &t, const Expr &h, const Expr &b) {
        const Expr row = inputs.cache_length(b) + t;
        if (problem.page_size == 0) {
            return std::vector<Expr>{d, row, h, b};
        }
        const Expr size = problem.page_size, page = inputs.element("page_table", {row / size, b});
        return std::vector<Expr>{d, row % size, h, Halide::clamp(page, 0, outermost - 1)}; // the table may change while the kernel runs
    };
}

} // namespace

void HeadRows::define(const Halide::Func &func, const Halide::Type &type, bool output) {
    rows = func;
    is_output = output;
    rows(d, row, head, outermost) = Halide::undef(type);
}

void HeadRows::write(Heads heads, const AttentionFormulas &formulas, const Storage &storage, const HeadPlace &place) {
    const AttentionInputs &in = formulas.inputs();
    head_dim = heads == Heads::value ? formulas.problem().head_dim_v : formulas.problem().head_dim;
    rotary_dim = heads != Heads::value && formulas.rotation().active() ? formulas.rotation().dim() : 0;
    const Expr tokens = in.seq_len_q, number = heads == Heads::query ? in.num_heads : in.num_kv_heads;
    count = tokens * number * in.batch * head_dim;
    if (rotary_dim < head_dim) {
        const int first = rotary_dim > 0 && formulas.rotation().first() > 0 ? 0 : rotary_dim;
        plain = RDom({{first, head_dim - rotary_dim}, {0, tokens}, {0, number}, {0, in.batch}}, rows.name() + "_plain");
        const Expr entry = plain[0], t = plain[1], h = plain[2], b = plain[3];
        rows(place(entry, t, h, b)) = plain_entry(heads, in, storage, entry, t, h, b);
    }
    if (rotary_dim > 0) {
        rotated = RDom({{0, 2}, {0, rotary_dim / 2}, {0, tokens}, {0, number}, {0, in.batch}}, rows.name() + "_rotated");
        const Expr part = rotated[0], pair = rotated[1], t = rotated[2], h = rotated[3], b = rotated[4];
        rows(place(formulas.rotation().entry(part, pair), t, h, b)) =
            storage.store(heads == Heads::key ? formulas.operands().rotated_key(part, pair, t, h, b)
                                              : formulas.operands().rotated_plain_query(part, pair, t, h, b));
    }
}

// On a device bounds inference may believe that the last thread reads one entry more than there are; of an output it then requires it.
KeySource::Element HeadRows::reader(bool on_device) const {
    return [func = rows, last = head_dim - 1, promised = on_device && is_output](const Expr &entry, const Expr &t, const Expr &h,
                                                                                 const Expr &b) -> Expr {
        return func(promised ? Halide::unsafe_promise_clamped(entry, 0, last) : entry, t, h, b);
    };
}

std::vector<HeadRows> define_caches(const Halide::Func &key, const Halide::Func &value, const Halide::Type &type) {
    std::vector<HeadRows> caches(2);
    caches[0].define(key, type, true);
    caches[1].define(value, type, true);
    return caches;
}

void read_cache(Problem *p, AttentionInputs *in, const AttentionFormulas &formulas, const Storage &storage, const Expr &keys,
                bool on_device, std::vector<HeadRows> *rows) {
    const Expr outermost = (*rows)[0].extent(3);
    const HeadPlace place = place_in_cache(*p, *in, outermost);
    (*rows)[0].write(HeadRows::Heads::key, formulas, storage, place);
    (*rows)[1].write(HeadRows::Heads::value, formulas, storage, place);
    if (formulas.rotation().active()) {
        rows->emplace_back();
        HeadRows &query = rows->back();
        query.define(Halide::Func("rotated_query"), in->query_storage.type, false);
        query.write(HeadRows::Heads::query, formulas, in->query_storage,
                    [](const Expr &d, const Expr &t, const Expr &h, const Expr &b) { return std::vector<Expr>{d, t, h, b}; });
        in->stored_query = query.reader(on_device);
    }
    in->keys = {storage, (*rows)[0].reader(on_device), (*rows)[1].reader(on_device), keys};
    if (p->page_size > 0) {
        in->keys = in->keys.in_pages(page_table(*p, *in, outermost));
    }
    p->rope = POLYHEAD_NO_ROPE;
    p->rotary_dim = p->rope_sections = p->section_1 = p->section_2 = p->section_3 = 0;
}

} // namespace polyhead::gen
