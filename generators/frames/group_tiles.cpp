// The frame "group tiles": warp tiles whose scores and acc are made by products of four warps, which are under way while the warps compute
// the softmax.
//
// Such a product reads key, value and query in shared memory, so there are no fragments to load. In whole chunks the scores of a chunk and
// the product of the probs of the chunk before are issued together: the softmax begins when the scores are there, and acc is waited for
// where it is needed, behind all powers of 2. Before the first chunk there are probs and values of 0.
//
// Groups of four warps do not meet in whole chunks: one computes powers while products of another are under way. Two barriers in memory
// keep the order, with a phase for each chunk. When a thread has the scores of chunk n, it sends copies of keys n + 2 and values n + 1. It
// waits for its own that it sent in the chunk before, keys n + 1 and values n, fences them and arrives at `full`: all wait for that before
// the products of chunk n + 1. Behind the products of chunk n it arrives at `empty`: in chunk n + 1 all wait for that before they send keys
// n + 3 and values n + 2, which take the place of keys n and of values n - 1. So no group is a whole chunk ahead of another. Masked chunks,
// in which all threads meet in any case, begin at a barrier of the block, behind which all copies that were sent are there.
#include "warp_tiles_builder.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::min;
using Halide::RDom;

namespace {

class GroupTilesBuilder : public WarpTilesBuilder {
public:
    using WarpTilesBuilder::WarpTilesBuilder;

protected:
    void define_memory() override {
        memory_(thread()) = device_call("shared_memory", {bytes_.all()});
        base_ = own(memory_);
        add_stage(&s_.before, memory_);
    }

    void divide_chunks() override {
        if (!all_masked_) {
            add_chunk("whole_", f_.inputs().seq_len_kv / k_.keys, whole_(s_.qt, s_.b), Expr(c_), Part::whole);
            add_chunk("last_", 1, 1, whole_end_(s_.qt, s_.b) + c_, Part::last);
        }
        add_masked_chunks();
    }

    void define_chunk(const std::string &kind, const Expr &number, WarpChunk *chunk) override {
        Func ready = func(kind, "ready");
        ready(vars({}, true)) = chunk->part == Part::whole ? wait_for(full, number, c_ * 0) : all_here(c_ * 0);
        add_stage(&chunk->stages, ready);
        const Expr is_ready = ready(at({}, true));
        chunk->acc = func(kind, "acc");
        if (chunk->part == Part::last) {
            chunk->acc(vars({}, true)) = device_call("group_wait", {0}, acc_products(number + k_.chunks - 1, fenced(is_ready)));
            add_stage(&chunk->stages, chunk->acc);
            return;
        }
        const Expr is_sent = chunk->masked() ? send(kind, number, is_ready, chunk)(at({}, true)) : is_ready;
        const Expr scores = score_products(number, fenced(is_sent));
        chunk->scores = func(kind, "scores");
        chunk->scores(vars({}, true)) = chunk->part == Part::whole
                                            ? device_call("group_wait", {1}, acc_products(number + k_.chunks - 1, scores))
                                            : device_call("group_wait", {0}, scores);
        add_stage(&chunk->stages, chunk->scores);
        Func logits = func(kind, "logits");
        chunk->scored = chunk->scores;
        const Func probs_ready = define_softmax(kind, number, logits, chunk);
        if (chunk->masked()) {
            define_lost(kind, value_place(number) + is_ready, chunk);
        }
        const Func row_sums = define_row_sums(kind, probs_ready(at({}, true)), chunk);
        Expr summed = row_sums(at({}, true));
        if (chunk->masked()) {
            summed = device_call("group_wait", {0}, acc_products(number, fenced(summed + min(chunk->lost(at({}, true)), 0))));
        }
        chunk->acc(vars({}, true)) = summed;
        add_stage(&chunk->stages, chunk->acc);
        if (chunk->masked()) {
            define_mended(kind, number, logits, chunk);
        }
    }

    void define_start() override {
        WarpTilesBuilder::define_start();
        if (all_masked_) {
            return;
        }
        Func barriers("barriers"), here("first_here");
        const Expr number = own_piece(0), threads = k_.threads();
        barriers(thread()) = device_call("make_barrier", {barrier(full), threads, number}) +
                             device_call("make_barrier", {barrier(empty), threads, number}, start_);
        add_stage(&s_.before, barriers);
        here(thread()) = device_call("barrier", {}, fenced_copies(1, own(barriers)));
        add_stage(&s_.before, here);
        start_ = own(here);
    }

    // Keys of the second chunk and values of the first.
    int send_more() override {
        if (all_masked_) {
            return 0;
        }
        Func key_copy = copy_keys("second_", 1, start_, false), value_copy = copy_values("first_", 0, start_, false), sent("second_sent");
        const int of_key = copies_of(k_.keys, d_), of_value = copies_of(k_.keys, dv_);
        add_stage(&s_.before, key_copy, {{n_, of_key}});
        add_stage(&s_.before, value_copy, {{n_, of_value}});
        sent(thread()) = device_call("commit", {}, sum_of(key_copy, of_key, at({}, false)) + sum_of(value_copy, of_value, at({}, false)));
        add_stage(&s_.before, sent);
        start_ = own(sent);
        return 1;
    }

    // Values of 0 in the place of the chunk before the first.
    Func first_values() override {
        if (all_masked_) {
            return WarpTilesBuilder::first_values();
        }
        return copies(
            "no_value_copy", k_.keys, f_.problem().head_dim_v, base_ + value_place(k_.chunks - 1), 0, false,
            [](const Expr &) { return Expr(0); },
            [this](const Expr &d, const Expr &row) { return f_.inputs().keys.stored_value(d, row_of(row), kv_head(), s_.b); });
    }

    Expr more_start() const override {
        Expr token = 0;
        for (int word = 0; !all_masked_ && word < key_steps() * k_.product->words_of_a(); word++) {
            token = token + device_call("set_word", {s_.registers.probs + word, Halide::cast<uint32_t>(0)});
        }
        return token;
    }

    void number_registers() override {
        WarpTilesBuilder::number_registers();
        factor_ = s_.registers.unit + 1;
    }

    Expr all_here(const Expr &after) const override { // and what they brought is there for the products
        return device_call("barrier", {}, fenced_copies(0, after));
    }

    // Where acc is under way, its factors are kept until it is there.
    void define_raised(const std::string &kind, const Func &largest, WarpChunk *chunk) override {
        if (chunk->part != Part::whole) {
            WarpTilesBuilder::define_raised(kind, largest, chunk);
            return;
        }
        const int first = s_.registers.reference;
        const Expr largest_0 = largest(at({0, 0}, true)), largest_1 = largest(at({1, 0}, true));
        // Between the maxima and the branch of references: ptxas would move copies down behind the powers.
        const Expr found = Halide::reinterpret<int32_t>(largest_0) + Halide::reinterpret<int32_t>(largest_1);
        const Expr arrived = send_ahead(kind, found, chunk);
        chunk->raised = func(kind, "raised");
        chunk->raised(vars({}, true)) = device_call(f_.softmax().has_integer_references() ? "raise_references" : "raise_natural_references",
                                                    {first, first + 1, factor_, factor_ + 1, largest_0, largest_1}, arrived);
        add_stage(&chunk->stages, chunk->raised);
    }

    // The words of probs and acc belong to the products of the chunk before until all powers have been computed.
    Expr registers_free(const std::string &kind, const Func &probs, WarpChunk *chunk) override {
        if (chunk->part != Part::whole) {
            return 0;
        }
        Func bits = func(kind, "bits_of_probs"), free = func(kind, "acc_before");
        const RDom all(0, 4, 0, score_columns(), kind + "powers");
        bits(vars({}, true)) = 0;
        bits(vars({}, true)) = bits(at({}, true)) | Halide::reinterpret<int32_t>(probs(at({all.x, all.y, 0}, true)));
        chunk->stages.push_back({bits, {}, {all.x, all.y}});
        free(vars({}, true)) =
            device_call("scale", {acc_slot(0, 0), s_.columns_of_acc() * k_.product->sums_of_lane(), factor_, factor_ + 1},
                        device_call("arrive", {barrier(empty)}, device_call("group_wait_behind", {0, bits(at({}, true))})));
        add_stage(&chunk->stages, free);
        return free(at({}, true));
    }

    Expr made_all_finite(const Expr &any) const override { return any + device_call("fence_products", {}, any); }

private:
    int factor_ = 0; // registers: what acc is multiplied by when it is there, for each row

    enum Barrier { full, empty };
    Expr barrier(Barrier which) const { return base_ + (bytes_.tiles() + int(which) * memory_barrier_bytes); }
    // For the phase of the chunk before this one. Before the first chunk there was none, which is as one that is over.
    Expr wait_for(Barrier which, const Expr &chunk, const Expr &after) const {
        return device_call("wait_for_phase", {barrier(which), (chunk + 1) % 2}, after);
    }
    // The copies of this thread, but so many groups of them, are there for the products of all who hear of it.
    static Expr fenced_copies(int under_way, const Expr &after) {
        return device_call("fence_products", {}, device_call("wait", {under_way}, after));
    }

    // What a thread does in a whole chunk for those to come.
    Expr send_ahead(const std::string &kind, const Expr &after, WarpChunk *chunk) {
        Func arrived = func(kind, "arrived"), free = func(kind, "free");
        free(vars({}, true)) = wait_for(empty, c_, after);
        add_stage(&chunk->stages, free);
        const Func sent = send(kind, c_, free(at({}, true)), chunk);
        arrived(vars({}, true)) = device_call("arrive", {barrier(full)}, fenced_copies(1, sent(at({}, true))));
        add_stage(&chunk->stages, arrived);
        return arrived(at({}, true));
    }

    // What is copied in this chunk, after `after`: values of the next one, and keys of the one behind it, or where all chunks are masked of
    // the next one.
    Func send(const std::string &kind, const Expr &number, const Expr &after, WarpChunk *chunk) {
        Func sent = func(kind, "sent");
        Expr copied = 0;
        const auto add_copies = [&](const Func &copy, int count) {
            add_stage(&chunk->stages, copy, {{n_, count}});
            copied = copied + sum_of(copy, count, at({}, true));
        };
        add_copies(copy_keys(kind, number + (all_masked_ ? 1 : 2), after, true), copies_of(k_.keys, d_));
        add_copies(copy_values(kind, number + 1, after, true), copies_of(k_.keys, dv_));
        sent(vars({}, true)) = device_call("commit", {}, copied);
        add_stage(&chunk->stages, sent);
        return sent;
    }

    static Expr fenced(const Expr &after) { return device_call("group_fence", {}, after); }

    // scores = query . key, both along head_dim. A step of a product is 32 bytes of a row; a panel has 4.
    Expr score_products(const Expr &number, Expr after) const {
        const Product &product = *k_.group_product;
        const int bytes_of_step = product.k * 2, of_panel = row_bytes / bytes_of_step;
        const Expr query = descriptor(base_ + s_.w / warps_of_group() * (product.m * row_bytes)),
                   key = descriptor(base_ + key_place(number));
        for (int step = 0; step < steps(); step++) {
            const int panel = step / of_panel, further = step % of_panel * bytes_of_step;
            const GroupOperands operands{query + descriptor_step(panel * k_.rows() * row_bytes + further),
                                         key + descriptor_step(panel * k_.keys * row_bytes + further), true, false};
            after = group_product(product, s_.registers.scores, k_.keys, operands, step == 0, after);
        }
        return device_call("group_commit", {}, after);
    }

    // acc += probs . value, as it lies in memory: a row is a key, and the next 64 entries of all keys are a panel further.
    Expr acc_products(const Expr &number, Expr after) const {
        const Product &product = *k_.group_product;
        const Expr value = descriptor(base_ + value_place(number), k_.keys * row_bytes);
        for (int step = 0; step < key_steps(); step++) {
            const GroupOperands operands{s_.registers.probs + step * product.words_of_a(),
                                         value + descriptor_step(step * product.k * row_bytes), false, true};
            after = group_product(product, s_.registers.acc, dv_, operands, false, after);
        }
        return device_call("group_commit", {}, after);
    }

    int warps_of_group() const { return k_.group_product->holders() / k_.lanes; }
};

} // namespace

void build_group_tiles(const AttentionFormulas &formulas, WarpTilesStages *stages) {
    GroupTilesBuilder(formulas, stages).build();
}

} // namespace polyhead::gen
