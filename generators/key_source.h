// What stands behind key and value: tensors, projected heads. It owns their extent and what keeps loads inside of it; frames ask it for
// rows and elements.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "storage.h"
#include <Halide.h>

namespace polyhead::gen {

// Which page a row of a batch row lies in.
struct PageTable {
    int page_size;
    Halide::Expr num_pages; // what the table may name
    // The row; of rows behind the last key of the batch row, that key, because a table names no page behind it.
    std::function<Halide::Expr(const Halide::Expr &row, const Halide::Expr &b)> existing;
    // The page of rows first + page_size * index and on.
    std::function<Halide::Expr(const Halide::Expr &index, const Halide::Expr &b)> page;
    Halide::Expr first = 0; // a multiple of page_size

    // The same for the rows from the page of row start on, whose pages were looked up before: pages(slot, indices...), slot < slots.
    PageTable looked_up(const Halide::Func &pages, int slots, const std::vector<Halide::Expr> &indices, const Halide::Expr &start) const {
        PageTable own = *this;
        own.first = start / page_size * page_size;
        own.page = [=, most = num_pages - 1](const Halide::Expr &slot, const Halide::Expr &) {
            std::vector<Halide::Expr> place = {Halide::unsafe_promise_clamped(slot, 0, slots - 1)};
            place.insert(place.end(), indices.begin(), indices.end());
            return Halide::unsafe_promise_clamped(pages(place), 0, most);
        };
        return own;
    }
};

class KeySource {
public:
    using Expr = Halide::Expr;
    using Element = std::function<Expr(const Expr &d, const Expr &row, const Expr &kv_head, const Expr &b)>;

    KeySource() = default;
    // key, value: elements as they are stored; value is null where it is the leading part of key. rows: how many rows there are in memory.
    // A run-time value also where the key length is fixed: against a constant Halide 21 may remove the clamp inside a trimmed loop, and
    // then require one row beyond the end.
    KeySource(Storage storage, Element key, Element value, Expr rows)
        : storage_(std::move(storage)), key_(std::move(key)), value_(std::move(value)), rows_(std::move(rows)) {}

    // The same in pages: key, value and scales take the row of a page, and the page for b.
    KeySource in_pages(PageTable table) const {
        KeySource source = *this;
        source.table_ = std::move(table);
        return source;
    }
    const std::optional<PageTable> &page_table() const { return table_; }
    // Reads `element` at a row, through the page table if there is one.
    Expr at(const Element &element, const Expr &d, const Expr &row, const Expr &kv_head, const Expr &b) const {
        if (!table_) {
            return element(d, row, kv_head, b);
        }
        const Expr place = table_->existing(row, b) - table_->first;
        return element(d, place % table_->page_size, kv_head, table_->page(place / table_->page_size, b));
    }

    // The same with integers for elements: an element counts as its integer times scale d / channels of its row; channels 0: scale 0.
    KeySource scaled(Element key_scale, Element value_scale, int channels) const {
        KeySource source = *this;
        source.key_scale_ = std::move(key_scale);
        source.value_scale_ = std::move(value_scale);
        source.channels_ = channels;
        return source;
    }

    const Expr &rows() const { return rows_; }
    // The row of key kv; of keys behind the last one, the last row.
    Expr row(const Expr &kv) const { return Halide::min(kv, rows_ - 1); }
    // The same of a key that is known to exist, which bounds inference cannot know.
    Expr existing_row(const Expr &kv) const { return Halide::unsafe_promise_clamped(kv, 0, rows_ - 1); }
    // Elements as floats.
    Expr key(const Expr &d, const Expr &row, const Expr &kv_head, const Expr &b) const {
        const Expr number = storage_.load(stored_key(d, row, kv_head, b));
        return is_scaled() ? number * key_scale(d, row, kv_head, b) : number;
    }
    Expr value(const Expr &d, const Expr &row, const Expr &kv_head, const Expr &b) const {
        const Expr number = storage_.load(stored_value(d, row, kv_head, b));
        return is_scaled() ? number * value_scale(d, row, kv_head, b) : number;
    }
    bool is_scaled() const { return bool(key_scale_); }
    // One scale for the whole row.
    bool scales_rows() const { return is_scaled() && channels_ == 0; }
    Expr key_scale(const Expr &d, const Expr &row, const Expr &kv_head, const Expr &b) const {
        return at(key_scale_, channels_ == 0 ? Expr(0) : d / channels_, row, kv_head, b);
    }
    Expr value_scale(const Expr &d, const Expr &row, const Expr &kv_head, const Expr &b) const {
        return at(value_scale_ ? value_scale_ : key_scale_, channels_ == 0 ? Expr(0) : d / channels_, row, kv_head, b);
    }
    // Elements as they are stored.
    Expr stored_key(const Expr &d, const Expr &row, const Expr &kv_head, const Expr &b) const { return at(key_, d, row, kv_head, b); }
    Expr stored_value(const Expr &d, const Expr &row, const Expr &kv_head, const Expr &b) const {
        return at(value_ ? value_ : key_, d, row, kv_head, b);
    }
    const Storage &storage() const { return storage_; }
    bool value_in_key() const { return !value_; }

private:
    Storage storage_;
    Element key_, value_, key_scale_, value_scale_;
    int channels_ = 0;
    Expr rows_;
    std::optional<PageTable> table_;
};

} // namespace polyhead::gen
