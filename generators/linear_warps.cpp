// The stages of a linear layer whose products are made by warps.
#include "linear_warps.h"

#include "device_calls.h"
#include "linear.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace {

constexpr int linear_panel = POLYHEAD_WEIGHT_PANEL, together = linear_panel / 8; // tiles of columns of a panel

class LinearWarpsBuilder {
public:
    LinearWarpsBuilder(const LinearInputs &in, LinearWarpsStages *stages)
        : in_(in), s_(*stages), k_(stages->blocking), pair_(in.weight.pair), width_(in.inner * in.outer),
          chunks_((width_ + k_.depth - 1) / k_.depth) {}

    void build() {
        number_registers();
        define_memory();
        define_start();
        s_.chunk = RDom(0, chunks_, s_.name + "_chunk");
        define_chunk();
        s_.acc = func("acc");
        s_.acc(thread()) = start_;
        s_.acc(thread()) += s_.products(at({}, s_.chunk.x));
    }

private:
    using Exprs = std::vector<Expr>;
    using Vars = std::vector<Var>;

    const LinearInputs &in_;
    LinearWarpsStages &s_;
    const WarpBlocking &k_;
    int pair_, width_, chunks_; // inputs that lie side by side in the weight, all inputs, chunks of them
    Var n_{"n"}, mt_{"mt"}, group_{"group"}, step_{"step"}, half_{"half"}, c_{"c"};
    Func row_at_, weight_at_;
    Expr base_, start_;

    Func func(const char *stage) const { return Func(s_.name + "_" + stage); }
    Vars thread() const { return {s_.lane, s_.w, s_.x, s_.y, s_.b}; }
    Vars vars(Vars first) const { return of_thread(std::move(first), thread()); }
    Vars chunk_vars(Vars first) const {
        first.push_back(c_);
        return vars(std::move(first));
    }
    Exprs at(Exprs first) const { return of_thread(std::move(first), thread()); }
    Exprs at(Exprs first, const Expr &chunk) const {
        first.push_back(chunk);
        return at(std::move(first));
    }

    int steps() const { return k_.depth / k_.product->k; }
    int piece() const { return WarpBlocking::copy / k_.product->element_bytes(); } // elements of a copy
    bool splits() const { return k_.product->parts() > 1; }
    // A lane's words of the weight are neighbours in its columns. Pairs of inputs and floats are such words as they lie.
    bool turns_weight() const { return pair_ * k_.product->element_bytes() < 4; }
    // Of the weight in a chunk: rows of a panel, bytes of one, and of the panel.
    int weight_rows() const { return k_.depth / pair_; }
    int weight_row_bytes() const { return linear_panel * pair_ * k_.product->element_bytes(); }
    int panel_bytes() const { return weight_rows() * weight_row_bytes(); }
    int block_panels() const { return k_.columns() / linear_panel; }

    void number_registers() {
        LinearWarpsStages::Registers &r = s_.registers;
        r.product = r.acc + k_.row_tiles * k_.column_tiles * k_.product->sums_of_lane();
        r.weight = r.rows + k_.row_tiles * k_.product->words_of_a();
        r.stored = r.weight + together * k_.product->words_of_b();
    }

    // Where a piece of a row lies among rows of a chunk. Pieces are exchanged, so that 8 rows that are read together lie on different
    // banks.
    Expr row_place(const Expr &row, const Expr &x) const {
        constexpr int of_all_banks = 8;
        const int pieces = k_.row_bytes() / WarpBlocking::copy;
        return row * k_.row_bytes() + (x ^ (row * pieces / of_all_banks % pieces)) * WarpBlocking::copy;
    }
    // The same in a panel of the weight. Where words are read one by one, 4 rows are read together, of each two neighbouring pieces.
    Expr weight_place(const Expr &row, const Expr &x) const {
        const Expr exchanged = turns_weight() ? row / 4 % 2 : row / 2 % 2 * 2;
        return row * weight_row_bytes() + (x ^ exchanged) * WarpBlocking::copy;
    }
    Expr slot_place(const Expr &chunk) const { return chunk % k_.chunks * k_.bytes(); }

    void define_memory() {
        Func memory = func("memory");
        memory(thread()) = device_call("shared_memory", {k_.chunks * k_.bytes()});
        add_stage(&s_.before, memory);
        base_ = memory(at({}));
        row_at_ = func("row_at");
        weight_at_ = func("weight_at");
        const Expr lane = s_.lane, first_row = s_.w % k_.row_warps * (k_.row_tiles * k_.product->m),
                   first_panel = s_.w / k_.row_warps * (k_.column_tiles * k_.product->n / linear_panel);
        // A lane's part of the addresses of matrices: 8 rows of each of 4.
        row_at_(vars({n_})) = base_ + row_place(first_row + lane / 8 % 2 * 8 + lane % 8, n_ * 2 + lane / 16);
        add_stage(&s_.before, row_at_, {{n_, steps()}});
        const Expr of_panel = turns_weight() ? weight_place(lane / 8 % 2 * 8 + lane % 8, lane / 16)
                                             : weight_place(lane % 4, n_ * 2 + lane / 16) + lane / 4 % 4 * 4;
        weight_at_(vars({n_})) = base_ + k_.rows_bytes() + first_panel * panel_bytes() + of_panel;
        add_stage(&s_.before, weight_at_, {{n_, turns_weight() ? 1 : together}});
    }

    // The number of a piece among those that the threads share out.
    Expr own_piece(const Expr &n) const { return n * k_.threads() + s_.w * k_.lanes + s_.lane; }
    int copies_of(int pieces) const { return (pieces + k_.threads() - 1) / k_.threads(); }
    // What is not there is 0: nothing is read.
    static Expr bytes_if(const Expr &exists) { return select(exists, WarpBlocking::copy, 0); }

    int row_copies() const { return copies_of(k_.rows() * k_.row_bytes() / WarpBlocking::copy); }
    int weight_copies() const { return copies_of(block_panels() * panel_bytes() / WarpBlocking::copy); }

    Expr copy_of_rows(const Expr &chunk, const Expr &after) const {
        const int of_row = k_.row_bytes() / WarpBlocking::copy, pieces = k_.rows() * of_row;
        const Expr own = pieces % k_.threads() == 0 ? own_piece(n_) : min(own_piece(n_), pieces - 1);
        const Expr row = own / of_row, x = own % of_row, m = s_.y * k_.rows() + row, k = chunk * k_.depth + x * piece();
        const Expr input = existing(k, width_ - piece());
        return device_call("copy", {base_ + slot_place(chunk) + row_place(row, x) + after,
                                    in_.stored_rows(input % in_.inner, input / in_.inner, existing(m, s_.num_rows - 1), s_.b),
                                    bytes_if(m < s_.num_rows && k < width_)});
    }

    Expr copy_of_weight(const Expr &chunk, const Expr &after) const {
        const int of_panel = panel_bytes() / WarpBlocking::copy, of_row = weight_row_bytes() / WarpBlocking::copy;
        const int pieces = block_panels() * of_panel;
        const Expr own = pieces % k_.threads() == 0 ? own_piece(n_) : min(own_piece(n_), pieces - 1);
        const Expr panel = own / of_panel, row = own % of_panel / of_row, x = own % of_row;
        const Expr all_panels = s_.x * block_panels() + panel, k = chunk * k_.depth + row * pair_;
        return device_call("copy",
                           {base_ + slot_place(chunk) + k_.rows_bytes() + panel * panel_bytes() + weight_place(row, x) + after,
                            in_.weight.stored(x * (piece() / pair_), existing(k, width_ - pair_), existing(all_panels, in_.panels - 1)),
                            bytes_if(all_panels < in_.panels && k < width_)});
    }

    // A copy of 0 bytes may have any address, so an index that does not exist needs no clamp.
    static Expr existing(const Expr &index, const Expr &last) { return Halide::unsafe_promise_clamped(index, 0, last); }

    void define_start() {
        Expr token = 0;
        for (int chunk = 0; chunk + 1 < k_.chunks; chunk++) {
            const std::string number = std::to_string(chunk);
            Func rows = func(("first_rows_" + number).c_str()), weight = func(("first_weight_" + number).c_str()),
                 sent = func(("first_sent_" + number).c_str());
            rows(vars({n_})) = copy_of_rows(chunk, token);
            weight(vars({n_})) = copy_of_weight(chunk, token);
            add_stage(&s_.before, rows, {{n_, row_copies()}});
            add_stage(&s_.before, weight, {{n_, weight_copies()}});
            sent(thread()) = device_call("commit", {}, sum_of(rows, row_copies(), at({})) + sum_of(weight, weight_copies(), at({})));
            add_stage(&s_.before, sent);
            token = sent(at({}));
        }
        Func start = func("start");
        const int sums = k_.row_tiles * k_.column_tiles * k_.product->sums_of_lane();
        start(thread()) = token + device_call("zero", {s_.registers.acc, sums});
        add_stage(&s_.before, start);
        start_ = start(at({}));
    }

    void define_chunk() {
        Func ready = func("ready"), rows = func("rows"), weight = func("weight"), sent = func("sent");
        ready(chunk_vars({})) = device_call("barrier", {}, device_call("wait", {k_.chunks - 2}, c_ * 0));
        const Expr is_ready = ready(at({}, c_)), next = c_ + k_.chunks - 1;
        rows(chunk_vars({n_})) = copy_of_rows(next, is_ready);
        weight(chunk_vars({n_})) = copy_of_weight(next, is_ready);
        sent(chunk_vars({})) =
            device_call("commit", {}, sum_of(rows, row_copies(), at({}, c_)) + sum_of(weight, weight_copies(), at({}, c_)));
        add_stage(&s_.of_chunk, ready);
        add_stage(&s_.of_chunk, rows, {{n_, row_copies()}});
        add_stage(&s_.of_chunk, weight, {{n_, weight_copies()}});
        add_stage(&s_.of_chunk, sent);
        define_products(slot_place(c_) + sent(at({}, c_)));
    }

    void define_products(const Expr &place) {
        const Product &product = *k_.product;
        const LinearWarpsStages::Registers &r = s_.registers;
        const int words_a = product.words_of_a(), words_b = product.words_of_b();
        s_.row_fragments = func("row_fragments");
        const Expr of_rows = r.rows + mt_ * words_a,
                   loaded_rows = device_call("load_matrices", {splits() ? Expr(r.stored) : of_rows, row_at_(at({step_ % steps()})) + place,
                                                               mt_ * (product.m * k_.row_bytes())});
        s_.row_fragments(chunk_vars({mt_, step_})) =
            splits() ? split(r.stored, product.stored_words_of_a(), 1, of_rows, loaded_rows) : loaded_rows;
        s_.weight_fragments = func("weight_fragments");
        const int at_once = splits() ? 1 : together; // tiles of columns; parts take twice the registers
        const Expr of_group = group_ * at_once / together * panel_bytes() + step_ * (product.k / pair_ * weight_row_bytes());
        const int words = product.stored_words_of_b(), first = splits() ? r.stored : r.weight;
        Expr loaded = 0;
        if (turns_weight()) {
            loaded = device_call("load_transposed", {first, weight_at_(at({0})) + place, of_group});
        } else {
            for (int word = 0; word < at_once * words; word++) {
                const Expr address = weight_at_(at({(group_ * at_once + word / words) % together})) + place;
                const int further = word % words * (product.k / pair_ / words * weight_row_bytes());
                loaded = loaded + device_call("load_word", {first + word, address, of_group + further});
            }
        }
        s_.weight_fragments(chunk_vars({group_, step_})) = splits() ? split(first, words, at_once, r.weight, loaded) : loaded;
        const RDom d({{0, k_.row_tiles}, {0, at_once}, {0, k_.column_tiles / at_once}, {0, steps()}}, s_.name + "_of_chunk");
        s_.products = func("products");
        s_.products(chunk_vars({})) = 0;
        const Expr sums = r.acc + (d[0] * k_.column_tiles + d[2] * at_once + d[1]) * product.sums_of_lane();
        const Expr multiplied =
            warp_product(product, splits() ? Expr(r.product) : sums, r.rows + d[0] * words_a, r.weight + d[1] * words_b, splits() ? 1 : 0,
                         s_.row_fragments(at({d[0], d[3]}, c_)) + s_.weight_fragments(at({d[2], d[3]}, c_)));
        // A product may cut off what it adds to a sum: within 8 inputs that is less than f32 may err by, over thousands it is not.
        s_.products(chunk_vars({})) += splits() ? device_call("add", {sums, r.product}, multiplied) : multiplied;
        s_.of_chunk.push_back({s_.products, {}, {d[0], d[1], d[2], d[3]}});
        s_.products_of_load = d[2];
        s_.products_of_step = d[3];
    }
};

} // namespace

LinearWarpsStages linear_warps(const std::string &name, const LinearInputs &inputs, const WarpBlocking &blocking) {
    LinearWarpsStages s;
    s.blocking = blocking;
    s.panels = inputs.panels;
    s.num_rows = inputs.num_rows;
    s.name = name;
    s.bias = inputs.weight.bias;
    LinearWarpsBuilder(inputs, &s).build();
    return s;
}

// Behind the loop: sums and bias as out keeps them, (column of two, row of two, tile of columns, tile of rows, thread). Two neighbours of
// 16 bits are rounded by one instruction.
Func LinearWarpsStages::define_kept(const Expr &first_column, const std::function<Expr(Expr)> &store) {
    const WarpBlocking &k = blocking;
    const Var j("j"), nt("nt"), half("half"), mt("mt");
    const std::vector<Var> vars = {j, nt, half, mt, lane, w, x, y, b};
    const auto value_at = [&](const Func &f, const Expr &second) {
        std::vector<Expr> index(vars.begin(), vars.end());
        index[0] = second;
        return f(index);
    };
    Func value(name + "_value"), word(name + "_word"), kept(name + "_kept");
    const Expr ended = end(lane, w, x, y, b);
    Expr sum = device_call("get", {registers.acc + (mt * k.column_tiles + nt) * k.product->sums_of_lane() + half * 2 + j}, ended);
    if (bias) { // read behind the loop, where registers are free
        Func of_bias(name + "_bias");
        of_bias(j, nt, lane, w, x, y, b) = bias(clamp(first_column + nt * k.product->n + j + ended, 0, panels * linear_panel - 1));
        after.push_back({of_bias, {{j, 2}, {nt, k.column_tiles}}, {}});
        sum = of_bias(j, nt, lane, w, x, y, b) + sum;
    }
    const std::vector<std::pair<Var, int>> of_word = {{nt, k.column_tiles}, {half, 2}, {mt, k.row_tiles}};
    std::vector<std::pair<Var, int>> of_sums = of_word;
    of_sums.insert(of_sums.begin(), {j, 2});
    value(vars) = sum;
    after.push_back({value, of_sums, {}});
    if (store(sum).type().bits() == 16) {
        word(std::vector<Var>(vars.begin() + 1, vars.end())) = packed(*k.product, value_at(value, 0), value_at(value, 1));
        after.push_back({word, of_word, {}});
        kept(vars) = Halide::cast<uint16_t>(word(std::vector<Expr>(vars.begin() + 1, vars.end())) >> Halide::cast<uint32_t>(16 * j));
    } else {
        kept(vars) = store(value_at(value, j));
    }
    after.push_back({kept, of_sums, {}});
    return kept;
}

void LinearWarpsStages::write(Func out, const std::vector<Var> &vars, const Expr &batch, int columns, const Arguments &at,
                              const std::function<Expr(Expr)> &store) {
    const WarpBlocking &k = blocking;
    const int block_panels = k.columns() / linear_panel, warp_panels = k.column_tiles * k.product->n / linear_panel;
    const auto first_panel = [&](const Expr &of_warp, const Expr &block) {
        return block * block_panels + of_warp / k.row_warps * warp_panels;
    };
    end = Func(name + "_end");
    end(lane, w, x, y, b) = device_call("wait", {0}, acc(lane, w, x, y, b));
    after = {{end, {}, {}}};
    const Func kept = define_kept(first_panel(w, x) * linear_panel + lane % 4 * 2, store);
    written = RDom({{0, 2},
                    {0, k.column_tiles},
                    {0, 2},
                    {0, k.row_tiles},
                    {0, k.lanes},
                    {0, k.row_warps * k.column_warps},
                    {0, (panels + block_panels - 1) / block_panels},
                    {0, (num_rows + k.rows() - 1) / k.rows()}},
                   out.name() + "_written");
    const Expr j = written[0], nt = written[1], half = written[2], mt = written[3], of_lane = written[4], of_warp = written[5],
               block_x = written[6], block_y = written[7];
    const int tiles_of_panel = linear_panel / k.product->n;
    const Expr panel = first_panel(of_warp, block_x) + nt / tiles_of_panel, first = nt % tiles_of_panel * k.product->n + of_lane % 4 * 2;
    const Expr row = block_y * k.rows() + (of_warp % k.row_warps * k.row_tiles + mt) * k.product->m + of_lane / 4 + half * 8;
    // All threads meet at barriers, also those that write nothing: the end of the loop, which is 0, is part of the conditions.
    const Expr ended = end(of_lane, of_warp, block_x, block_y, batch);
    stores_pairs = columns % 2 == 0;
    written.where(row < num_rows + ended);
    if (columns % k.columns() != 0) {
        written.where(panel * linear_panel + (stores_pairs ? first : first + j) < columns + ended);
    }
    const Expr value = kept(j, nt, half, mt, of_lane, of_warp, block_x, block_y, batch);
    out(vars) = Halide::undef(value.type());
    const auto within = [](const Expr &index, const Expr &count) { return Halide::unsafe_promise_clamped(index, 0, count - 1); };
    out(at(first + j, within(panel, panels), within(row, num_rows))) = value;
}

std::vector<Func> LinearWarpsStages::funcs() const {
    std::vector<Func> all;
    for (const std::vector<ThreadStage> *stages : {&before, &of_chunk, &after}) {
        for (const ThreadStage &s : *stages) {
            all.push_back(s.func);
        }
    }
    for (const Func &f : {row_fragments, weight_fragments, acc}) {
        all.push_back(f);
    }
    return all;
}

} // namespace polyhead::gen
