// The cache of a layer.
#include "layer_cache.h"

#include <algorithm>

#include "../contract/problem.h"

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

// Rows of heads as they are counted.
std::vector<Expr> own_place(const Expr &d, const Expr &t, const Expr &h, const Expr &b) {
    return {d, t, h, b};
}

void leave_nothing_to_rotate(Problem *p) {
    p->rope = POLYHEAD_NO_ROPE;
    p->rotary_dim = p->rope_sections = p->section_1 = p->section_2 = p->section_3 = 0;
}

// Heads in memory of their own, made once for a call.
HeadRows &add_rows(const char *name, HeadRows::Heads heads, const AttentionFormulas &formulas, const Storage &storage, const Expr &tokens,
                   std::vector<HeadRows> *rows) {
    rows->emplace_back();
    rows->back().define(Halide::Func(name), storage.type, false);
    rows->back().write(heads, formulas, storage, tokens, own_place);
    return rows->back();
}

} // namespace

void HeadRows::define(const Halide::Func &func, const Halide::Type &type, bool output) {
    rows = func;
    is_output = output;
    rows(d, row, head, outermost) = Halide::undef(type);
}

void HeadRows::write(Heads heads, const AttentionFormulas &formulas, const Storage &storage, const Expr &tokens, const HeadPlace &place) {
    this->heads = heads;
    const AttentionInputs &in = formulas.inputs();
    head_dim = heads == Heads::value ? formulas.problem().head_dim_v : formulas.problem().head_dim;
    rotary_dim = heads != Heads::value && formulas.rotation().active() ? formulas.rotation().dim() : 0;
    computed = formulas.rotation().active() || contract::normalises(formulas.problem());
    const Expr number = heads == Heads::query ? in.num_heads : in.num_kv_heads;
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

void write_cache(const Problem &p, const AttentionFormulas &formulas, const Storage &storage, std::vector<HeadRows> *rows) {
    const HeadPlace place = place_in_cache(p, formulas.inputs(), (*rows)[0].extent(3));
    (*rows)[0].write(HeadRows::Heads::key, formulas, storage, formulas.inputs().seq_len_q, place);
    (*rows)[1].write(HeadRows::Heads::value, formulas, storage, formulas.inputs().seq_len_q, place);
}

void read_cache(Problem *p, AttentionInputs *in, const AttentionFormulas &formulas, const Storage &query, const KeySource &keys,
                const Expr &blocks, bool on_device, std::vector<HeadRows> *rows) {
    if (formulas.rotation().active() || p->query_norm != POLYHEAD_NO_NORM) {
        in->stored_query = add_rows("rotated_query", HeadRows::Heads::query, formulas, query, in->seq_len_q, rows).reader(on_device);
        in->query_storage = query;
    }
    in->keys = p->page_size > 0 ? keys.in_pages(page_table(*p, *in, blocks)) : keys;
    leave_nothing_to_rotate(p);
}

void keep_rows(Problem *p, AttentionInputs *in, const AttentionFormulas &formulas, const Storage &query, const Storage &key_and_value,
               const KeySource &given, bool on_device, std::vector<HeadRows> *rows) {
    const bool rotates = formulas.rotation().active();
    // Rows of all tokens and heads, whatever frames ask for: bounds inference may believe that they ask for more.
    const auto kept_rows = [&](const char *name, HeadRows::Heads heads, const Storage &storage, const Expr &tokens) -> KeySource::Element {
        const KeySource::Element read = add_rows(name, heads, formulas, storage, tokens, rows).reader(on_device);
        const Expr number = heads == HeadRows::Heads::query ? in->num_heads : in->num_kv_heads;
        const auto within = [](const Expr &index, const Expr &count) { return Halide::unsafe_promise_clamped(index, 0, count - 1); };
        return [=, batch = in->batch](const Expr &d, const Expr &t, const Expr &h, const Expr &b) {
            return read(d, within(t, tokens), within(h, number), within(b, batch));
        };
    };
    if (rotates || p->query_norm != POLYHEAD_NO_NORM) {
        in->stored_query = kept_rows("normalised_query", HeadRows::Heads::query, query, in->seq_len_q);
        in->query_storage = query;
    }
    if (rotates || p->key_norm != POLYHEAD_NO_NORM || p->value_norm != 0) {
        const auto kept = [&](const char *name, HeadRows::Heads heads, bool normalised, const KeySource::Element &otherwise) {
            const bool here = normalised || given.storage().type != key_and_value.type;
            return here ? kept_rows(name, heads, key_and_value, in->keys.rows()) : otherwise;
        };
        const KeySource::Element key = kept("normalised_key", HeadRows::Heads::key, rotates || p->key_norm != POLYHEAD_NO_NORM,
                                            [given](auto... at) { return given.stored_key(at...); }),
                                 value = kept("normalised_value", HeadRows::Heads::value, p->value_norm != 0,
                                              [given](auto... at) { return given.stored_value(at...); });
        in->keys = KeySource(key_and_value, key, value, in->keys.rows());
    }
    if (rotates) {
        leave_nothing_to_rotate(p);
    }
}

void give_norms_to_rows(std::vector<HeadNorm> *norms, std::vector<HeadRows> *rows) {
    for (HeadRows &r : *rows) {
        const auto own = std::find_if(norms->begin(), norms->end(), [&](const HeadNorm &n) { return n.of == r.heads && !n.together; });
        if (own != norms->end() && r.in_one_loop()) {
            r.norm = *own;
            norms->erase(own);
        }
    }
}

} // namespace polyhead::gen
