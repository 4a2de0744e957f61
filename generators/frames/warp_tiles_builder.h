// What makes the stages of the frame "warp tiles": the tile of a block, the products of a chunk, the values that are not finite.
#pragma once

#include "../../plan/frames/warp_tiles.h"
#include "warp_tiles.h"

namespace polyhead::gen {

// What another instruction than that of one warp makes otherwise is virtual (group_tiles.cpp).
class WarpTilesBuilder {
public:
    static constexpr int eight = warp_tiles_eight, row_bytes = warp_tiles_row_bytes;

    using Expr = Halide::Expr;
    using Func = Halide::Func;
    using Var = Halide::Var;
    using Part = WarpChunk::Part;

    WarpTilesBuilder(const AttentionFormulas &formulas, WarpTilesStages *stages)
        : f_(formulas), s_(*stages), k_(stages->blocking), d_(padded(formulas.problem().head_dim)), dv_(stages->padded_head_dim_v()),
          bytes_(warp_tiles_bytes(k_.rows(), k_.keys, d_, dv_, k_.chunks, k_.product->element_bytes(),
                                  k_.group_product ? group_tiles_barriers : 0)) {}
    virtual ~WarpTilesBuilder() = default;

    void build();

protected:
    using Vars = std::vector<Var>;
    using Exprs = std::vector<Expr>;

    const AttentionFormulas &f_;
    WarpTilesStages &s_;
    const WarpTilesBlocking &k_;
    int d_, dv_; // padded: whole steps of products
    WarpTilesBytes bytes_;
    bool all_masked_ = false; // no chunk is seen as a whole
    Var i_{"i"}, nt_{"nt"}, mt_{"mt"}, q2_{"q2"}, word_{"word"}, kt_{"kt"}, n_{"n"}, c_{"c"};
    Func memory_{"memory"}, first_chunk_{"first_chunk"}, whole_end_{"whole_end"}, whole_{"whole"}, masked_{"masked"}, length_{"valid_keys"};
    Func query_at_{"query_at"}, key_at_{"key_at"}, value_at_{"value_at"};
    Expr start_, base_;

    int padded(int head_dim) const { return s_.padded(head_dim); }
    int depth() const { return k_.product->k; }
    int steps() const { return d_ / depth(); }
    int key_steps() const { return k_.keys / depth(); }
    int score_columns() const { return k_.keys / eight; }
    int piece() const { return warp_tiles_copy / k_.product->element_bytes(); } // elements of a copy
    int pieces_of(int columns) const { return columns / piece(); }
    int sixteens_of_panel() const { return row_bytes / k_.product->element_bytes() / (2 * eight); }
    bool splits() const { return k_.product->parts() > 1; }
    // The operands of two products along columns, in parts.
    Expr split_pair(int to, const Expr &loaded) const { return split(s_.registers.stored, k_.product->stored_words_of_b(), 2, to, loaded); }

    Vars thread() const { return {s_.lane, s_.w, s_.qt, s_.h, s_.b}; }
    template <typename T> std::vector<T> placed(std::vector<T> first, bool of_chunk) const {
        if (of_chunk) {
            first.emplace_back(c_);
        }
        return of_thread(std::move(first), thread());
    }
    Vars vars(Vars first, bool of_chunk) const { return placed(std::move(first), of_chunk); }
    Exprs at(Exprs first, bool of_chunk) const { return placed(std::move(first), of_chunk); }
    // Where a piece of a row lies in a tile of so many rows. The pieces of a row are exchanged, so that 8 rows lie on different banks.
    static Expr place_of(const Expr &row, const Expr &x, int rows) {
        return x / eight * (rows * row_bytes) + row * row_bytes + ((x % eight) ^ (row % eight)) * warp_tiles_copy;
    }
    Expr own(const Func &f) const { return f(at({}, false)); }

    // Row of the tile of the block that a lane has as row q2 of tile mt.
    Expr half_row(const Expr &q2, const Expr &mt) const { return (s_.w * k_.tiles + mt) * k_.product->m + s_.lane / 4 + q2 * 8; }
    // Rows beyond the last query repeat it.
    Expr query_of(const Expr &row) const { return Halide::min(s_.qt * k_.rows() + row, f_.inputs().seq_len_q - 1); }
    Expr kv_head() const { return s_.h / f_.group_size(); }

    virtual void number_registers();

    // The largest score of a row is that of its largest logit.
    bool scores_keep_order() const { return !all_masked_ && f_.logits().plain(); }
    Expr own_piece(const Expr &n) const { return n * k_.threads() + s_.w * k_.lanes + s_.lane; } // of what the threads share out

    int acc_slot(int mt, int column) const { return s_.registers.acc + (mt * s_.columns_of_acc() + column) * k_.product->sums_of_lane(); }

    void define_tile(); // what its rows see of the keys, in chunks

    virtual void define_memory();

    // Copies of a tile of rows, shared out to the threads: token (n, [c,] thread). What pads a row of head_dim entries is 0. The last piece
    // is copied several times where they do not come out even.
    using Element = std::function<Expr(const Expr &d, const Expr &row)>;
    Func copies(const std::string &name, int rows, int head_dim, const Expr &to, const Expr &after, bool of_chunk,
                const std::function<Expr(Expr)> &bytes, const Element &element);
    int copies_of(int rows, int head_dim) const { return (rows * pieces_of(head_dim) + k_.threads() - 1) / k_.threads(); }

    Expr key_place(const Expr &chunk) const { return bytes_.query + chunk % k_.chunks * bytes_.key; }
    Expr value_place(const Expr &chunk) const { return bytes_.query + k_.chunks * bytes_.key + chunk % k_.chunks * bytes_.value; }
    bool one_chunk() const { return k_.chunks == 1; } // values of a chunk arrive with its scores, the next keys with its products

    // Keys behind the length are not read: they are 0.
    Expr bytes_of(const Expr &key) const { return Halide::select(key < length_(s_.qt, s_.b), 16, 0); }
    // Of a chunk. kind: of the Func's name. exist: all keys of it do.
    Func copy_keys(const std::string &kind, const Expr &chunk, const Expr &after, bool of_chunk);
    Func copy_values(const std::string &kind, const Expr &chunk, const Expr &after, bool of_chunk, bool exist = false);
    Func copy_chunk(const std::string &name, int head_dim, const Expr &to, const Expr &chunk, const Expr &after, bool of_chunk, bool exist,
                    const KeySource::Element &stored);
    Expr existing(const Expr &key) const { return Halide::max(f_.inputs().keys.row(key), 0); }
    // The row of a key of which no byte may be read. A page table is read for it.
    Expr row_of(const Expr &key) const { return f_.inputs().keys.page_table() ? existing(key) : f_.inputs().keys.existing_row(key); }
    // How many keys of a chunk, at most these, lie one behind the other in memory.
    int keys_of_a_page(int most) const {
        const int page = f_.problem().page_size;
        return page == 0 || (page % most == 0 && k_.keys % most == 0) ? most : warp_tiles_page;
    }

    virtual void define_start();
    // Copies of values before the first chunk, and what else comes before it.
    virtual Func first_values() { return copy_values("first_", first_chunk_(s_.qt, s_.b), 0, false); }
    virtual Expr more_start() const { return 0; }
    // Copies that are sent behind those of the first chunk; returns how many groups of them may be under way when that is there.
    virtual int send_more() { return 0; }
    Expr two_ones() const {
        const uint32_t one = k_.product->a == Number::bf16 ? 0x3f80 : 0x3c00;
        return Halide::Internal::make_const(Halide::UInt(32), int64_t(one | one << 16));
    }

    void define_signed(int under_way);
    void keep_query();
    Expr load_query(const Expr &step, const Expr &mt, const Expr &number, const Expr &after);
    virtual void divide_chunks();
    void add_masked_chunks();
    void add_chunk(const std::string &kind, const Expr &most, const Expr &count, const Expr &number, Part part);
    Func func(const std::string &kind, const char *name) const { return Func(kind + name); }

    virtual Expr all_here(const Expr &after) const { // the copies of all threads
        return device_call("barrier", {}, device_call("wait", {0}, after));
    }
    virtual void define_chunk(const std::string &kind, const Expr &number, WarpChunk *chunk);

    void define_scores(const std::string &kind, const Expr &keys, const Expr &is_sent, WarpChunk *chunk);
    Expr score_key(const Expr &number) const { return number * k_.keys + nt_ * eight + s_.lane % 4 * 2 + i_ % 2; }

    void define_logits(Func logits, const Expr &number, const Func &scores, const Func &unit, bool masked);
    Func define_softmax(const std::string &kind, const Expr &number, Func logits, WarpChunk *chunk);
    virtual void define_raised(const std::string &kind, const Func &largest, WarpChunk *chunk);
    // What must have happened before the words of probs and the exact sums are written.
    virtual Expr registers_free(const std::string &, const Func &, WarpChunk *) { return 0; }
    // After values were made finite in shared memory.
    virtual Expr made_all_finite(const Expr &any) const { return any; }
    Func define_row_sums(const std::string &kind, const Expr &after, WarpChunk *chunk);
    Func define_probs(const std::string &kind, const Func &probs, WarpChunk *chunk);
    void define_acc(const std::string &kind, const Expr &values, const Expr &after, WarpChunk *chunk);
    void define_lost(const std::string &kind, const Expr &values, WarpChunk *chunk);
    void define_mended(const std::string &kind, const Expr &number, const Func &logits, WarpChunk *chunk);
};

// The same by products of four warps.
void build_group_tiles(const AttentionFormulas &formulas, WarpTilesStages *stages);

} // namespace polyhead::gen
