// Divides a call into parts and runs them.
#include "call_in_parts.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "../../contract/weight_layout.h"
#include "../memory/scratch.h"
#include "../rules/tensor_rules.h"
#include "../rules/validate_parts.h"
#include "../status.h"
#include "../threads/thread_pool.h"
#include "../threads/threads.h"
#include "call_context.h"
#include "cpu_call.h"
#include "device_call.h"
#include "dispatch.h"
#include "needed_keys.h"
#include "no_keys.h"
#include "scratch_bytes.h"

namespace polyhead::runtime {
namespace {

// The tokens of sequence b. Another thread may change the tensor after it was checked; what is read here stays inside of the total.
Tokens tokens_of(const polyhead_tensor &begins, int64_t b, int64_t total) noexcept {
    const int64_t first = std::clamp<int64_t>(integer_at(begins, b), 0, total);
    return {first, std::clamp<int64_t>(integer_at(begins, b + 1) - first, 0, total - first)};
}

// Says of which sequences a refusal is.
void name_sequences(const Part &part, polyhead_status *status) noexcept {
    const polyhead_status of_part = *status;
    const auto first = static_cast<long long>(part.first), last = static_cast<long long>(part.first + part.count - 1);
    const auto code = static_cast<polyhead_code>(of_part.code);
    if (part.count == 1) {
        refuse(status, code, "sequence %lld: %.200s", first, of_part.message);
    } else {
        refuse(status, code, "sequences %lld to %lld: %.200s", first, last, of_part.message);
    }
}

} // namespace

bool refuse_unfit(const KernelTable &kernel, const Fit &fit, polyhead_status *status) noexcept {
    const polyhead_problem &p = kernel.problem;
    const bool own = attends(p) && !attends_itself(p);
    const char *advice = is_backward(p)     ? by_heads(p) ? "call with some of the heads at a time"
                                                          : "call with some of the rows at a time, and add up the gradients of weight and bias"
                         : !own             ? "project with linear kernels and attend with sdpa, some queries at a time"
                         : fit.queries == 0 ? "split the keys, and merge the states"
                                            : "split the queries";
    return refuse(status, POLYHEAD_UNSUPPORTED,
                  "%s: kernel %s holds %lld bytes of one batch row between its stages, expected less than 2^31: %s", first_tensor_name(p),
                  kernel.name, static_cast<long long>(fit.bytes), advice);
}

bool check_divisible(const KernelTable &kernel, int64_t rows, int64_t most, const char *limit, polyhead_status *status) noexcept {
    return rows <= most || !kernel.reads_batch_row() ||
           refuse(status, POLYHEAD_UNSUPPORTED,
                  "%s: extent %lld of dimension 0, expected at most %lld, the limit %s where the expression uses b otherwise than as the "
                  "index of a dimension b: split the batch",
                  first_tensor_name(kernel.problem), static_cast<long long>(rows), static_cast<long long>(most), limit);
}

// Sequences without results are no part. Neighbours of equal lengths are one part, as one call with a batch is faster than several.
void CallInParts::divide_sequences() noexcept {
    Planned *const parts = parts_;
    const bool batched = can_be_batched(kernel_, args_, shape_);
    for (int64_t b = 0; b < shape_.batch; ++b) {
        Part part{b, 1, shape_.packed_q, shape_.packed_kv, {}, {}};
        part.queries = part.packed_q ? tokens_of(args_.cu_seqlens_q, b, shape_.seq_len_q) : Tokens{0, shape_.seq_len_q};
        part.keys = part.packed_kv ? tokens_of(args_.cu_seqlens_kv, b, shape_.seq_len_kv) : Tokens{0, shape_.seq_len_kv};
        if (!shape_.sums_rows && part.queries.each == 0 && (!shape_.backward || part.keys.each == 0)) {
            continue;
        }
        Part *const last = count_ > 0 ? &parts[count_ - 1].part : nullptr;
        if (batched && last && last->first + last->count == b && last->queries.each == part.queries.each &&
            last->keys.each == part.keys.each) {
            ++last->count;
        } else {
            parts[count_++].part = part;
        }
    }
}

void CallInParts::add_needs(const Planned &planned, const polyhead_args &part) noexcept {
    if (!planned.variant) {
        most_.without_keys = std::max(most_.without_keys, static_cast<int64_t>(bytes_without_keys(kernel_.problem, part)));
        return;
    }
    const CpuBytes bytes = cpu_bytes(kernel_, *planned.variant, part, planned.shape);
    most_.cpu.of_caller = std::max(most_.cpu.of_caller, bytes.of_caller);
    most_.cpu.of_helper = std::max(most_.cpu.of_helper, bytes.of_helper);
    most_.keys = std::max(most_.keys, planned.shape.needed_keys);
}

// Neighbouring sequences that are too large together become two parts, of which the second is planned later.
bool CallInParts::cut_to(const Fit &fit, Planned *planned, polyhead_status *status) noexcept {
    Part &part = planned->part;
    if (fit.rows >= part.count) {
        return true;
    }
    if (fit.rows == 0) {
        return refuse_unfit(kernel_, fit, status);
    }
    Part rest = part;
    rest.first += fit.rows;
    rest.count -= fit.rows;
    rest.queries.first += fit.rows * rest.queries.each;
    rest.keys.first += fit.rows * rest.keys.each;
    part.count = planned->shape.batch = fit.rows;
    parts_[count_++].part = rest; // there is room for a part for each sequence
    return true;
}

bool CallInParts::plan(Planned *planned, polyhead_status *status) noexcept {
    PartOfCall part(kernel_, args_, planned->part);
    planned->variant = nullptr;
    planned->shape = CallShape{};
    bool right = validate(kernel_, part.args(), resources_, &planned->shape, status);
    if (right && !planned->shape.no_pairs()) {
        planned->shape.needed_keys = needed_keys(kernel_, part.args(), planned->shape);
        planned->variant = select_variant(kernel_, part.args(), planned->shape, status);
        right = planned->variant && cut_to(fit_of(kernel_.problem, *planned->variant, part.args(), planned->shape), planned, status);
    }
    if (right) {
        add_needs(*planned, part.args());
    } else {
        name_sequences(planned->part, status);
    }
    return right;
}

bool CallInParts::hold_parts(int64_t most, polyhead_status *status) noexcept {
    const int64_t bytes = most * static_cast<int64_t>(sizeof(Planned));
    parts_ = reinterpret_cast<Planned *>(list_.take(resources_.memory, bytes));
    return parts_ || refuse(status, POLYHEAD_OUT_OF_MEMORY, "kernel %s: %lld bytes for a list of %lld parts could not be allocated",
                            kernel_.name, static_cast<long long>(bytes), static_cast<long long>(most));
}

bool CallInParts::prepare_sequences(polyhead_status *status) noexcept {
    if (!hold_parts(shape_.batch, status)) {
        return false;
    }
    divide_sequences();
    for (int64_t i = 0; i < count_; ++i) { // plan() may add one
        if (!plan(&parts_[i], status)) {
            return false;
        }
    }
    std::sort(parts_, parts_ + count_, [](const Planned &a, const Planned &b) {
        const auto work = [](const CallShape &s) { return double(s.batch) * double(s.seq_len_q) * double(s.needed_keys); };
        return work(a.shape) > work(b.shape);
    });
    return true;
}

// A device launches parts of a batch by itself.
bool CallInParts::prepare(const polyhead_variant *variant, polyhead_status *status) noexcept {
    if (!variant) {
        needed_ = true;
        return prepare_sequences(status);
    }
    const Fit fit = fit_of(kernel_.problem, *variant, args_, shape_);
    if (fits(fit, kernel_.problem, shape_) || (args_.device && fit.rows > 0)) {
        return true;
    }
    needed_ = true;
    return args_.device ? refuse_unfit(kernel_, fit, status) : prepare_rows(*variant, fit, status);
}

// Keys that the whole call needs serve for a part, too.
void CallInParts::add_rows(const polyhead_variant &variant, const Part &part, int64_t queries) noexcept {
    Planned &planned = parts_[count_++];
    planned.part = part;
    planned.shape = shape_;
    planned.variant = &variant;
    const bool linear = !attends(kernel_.problem);
    planned.shape.batch = linear ? 1 : part.count;
    planned.shape.seq_len_q = linear ? part.count : queries;
    PartOfCall of_part(kernel_, args_, part);
    add_needs(planned, of_part.args());
}

bool CallInParts::prepare_rows(const polyhead_variant &variant, const Fit &fit, polyhead_status *status) noexcept {
    constexpr int64_t most_tile = 64; // so that a part begins with a tile of the kernel, as far as it has so many queries
    const bool linear = !attends(kernel_.problem);
    const int64_t rows = linear ? shape_.seq_len_q : shape_.batch;
    if (linear && shape_.backward) { // rows share results
        return refuse_unfit(kernel_, fit, status);
    }
    int64_t each = std::max<int64_t>(fit.rows, 1), queries = shape_.seq_len_q;
    if (fit.rows == 0) {
        queries = fit.queries >= most_tile ? fit.queries / most_tile * most_tile : fit.queries;
        if (linear || queries == 0 || !can_divide_queries(kernel_.problem, args_)) {
            return refuse_unfit(kernel_, fit, status);
        }
    }
    const int64_t of_row = linear ? 1 : (shape_.seq_len_q + queries - 1) / queries, parts = (rows + each - 1) / each;
    if (const char *const sum = rows > each ? summed_result(kernel_, args_, shape_) : nullptr) {
        return refuse(
            status, POLYHEAD_UNSUPPORTED,
            "%s: extent %lld of dimension 0, expected at most %lld, the limit of memory in one piece where %s is a sum over batch "
            "rows: split the batch",
            first_tensor_name(kernel_.problem), static_cast<long long>(rows), static_cast<long long>(each), sum);
    }
    if (!check_divisible(kernel_, rows, each, "of memory in one piece", status) || !hold_parts(parts * of_row, status)) {
        return false;
    }
    for (int64_t first = 0; first < rows; first += each) {
        Part part;
        part.first = first;
        part.count = std::min(each, rows - first);
        part.some_queries = of_row > 1;
        for (int64_t q = 0; q < (linear ? 1 : shape_.seq_len_q); q += queries) {
            part.queries = {q, std::min(queries, shape_.seq_len_q - q)};
            add_rows(variant, part, part.queries.each);
        }
    }
    return true;
}

// How many parts may run at the same time.
int CallInParts::at_once(int workers) const noexcept {
    return args_.device || !shape_.ragged() ? 1 : static_cast<int>(std::min<int64_t>(workers, count_));
}

// For any of them, on the worker that takes it.
int64_t CallInParts::bytes_of_part() const noexcept {
    constexpr int64_t unit = Scratch::alignment;
    return std::max(most_.cpu.of_caller, (most_.without_keys + unit - 1) / unit * unit);
}

int64_t CallInParts::bytes(int workers) const noexcept {
    const int64_t neutral = neutral_row_bytes(kernel_.problem, args_, most_.keys);
    if (args_.device) {
        return most_.without_keys + neutral;
    }
    const int64_t helpers = CpuBytes{0, most_.cpu.of_helper}.of(workers), of_part = bytes_of_part();
    return helpers == INT64_MAX || of_part == INT64_MAX ? INT64_MAX : at_once(workers) * of_part + helpers + neutral;
}

void CallInParts::describe(int64_t scratch_bytes, Text *text) const noexcept {
    text->append("  in %lld parts, scratch %lld bytes\n", static_cast<long long>(count_), static_cast<long long>(scratch_bytes));
    for (int32_t i = 0; i < kernel_.num_variants; ++i) {
        const polyhead_variant &variant = kernel_.variants[i];
        int64_t rows = 0, shortest = INT64_MAX, longest = 0;
        for (const Planned *planned = parts_; planned != parts_ + count_; ++planned) {
            if (planned->variant == &variant) {
                rows += planned->part.count;
                shortest = std::min(shortest, planned->shape.seq_len_q);
                longest = std::max(longest, planned->shape.seq_len_q);
            }
        }
        if (rows > 0) {
            text->append("  runs %s for %lld %s of %lld to %lld queries: target %s, tiling %s\n", variant.name,
                         static_cast<long long>(rows), shape_.ragged() ? "sequences" : "batch rows", static_cast<long long>(shortest),
                         static_cast<long long>(longest), variant.target ? variant.target : "unknown",
                         variant.tiling ? variant.tiling : "unknown");
        }
    }
}

polyhead_status CallInParts::run_here(const Planned &planned, Workers *workers, const CpuMemory &memory) noexcept {
    PartOfCall part(kernel_, args_, planned.part);
    if (!planned.variant) {
        polyhead_status status = success();
        answer_without_keys(kernel_.problem, part.args(), memory.caller, &status);
        return status;
    }
    neutral_.put_into(&part.args(), planned.shape.needed_keys);
    return args_.device ? runtime::run_on_device(kernel_, *planned.variant, part.args(), planned.shape)
                        : run_in_memory(kernel_, *planned.variant, part.args(), planned.shape, workers, memory);
}

// Workers that take parts; each has memory for any of them.
class CallInParts::Parts {
public:
    Parts(CallInParts *call, const CpuMemory &memory) noexcept : call_(call), memory_(memory), status_(success()) {}

    // Those that all workers compute together, one after another, and then the rest.
    polyhead_status run(Workers *workers, int at_once) noexcept {
        for (const int64_t together = workers->of_caller() ? larger_than_share(workers->count()) : 0; next_ < together;) {
            take(0, workers);
        }
        helped_by_ = workers->of_caller() ? nullptr : workers;
        CallContext context(workers, memory_.helpers, static_cast<size_t>(memory_.bytes.of_helper));
        ParallelLoop loop(work, &context, reinterpret_cast<uint8_t *>(this), 0, at_once, &context);
        (void)workers->run(&loop);
        return status_;
    }

private:
    static double work_of(const Planned &part) noexcept {
        return double(part.shape.batch) * double(part.shape.seq_len_q) * double(part.shape.needed_keys);
    }
    // Parts are ordered by their work. Of those behind the large ones, some may be more than a share of what is left, and yet not worth a
    // loop of their own.
    int64_t larger_than_share(int workers) const noexcept {
        constexpr double least = 1.0 / 8; // of a share of the whole
        double all = 0;
        for (int64_t i = 0; i < call_->count_; ++i) {
            all += work_of(call_->parts_[i]);
        }
        int64_t large = 0;
        for (double left = all; workers > 1 && large < call_->count_; ++large) {
            const double work = work_of(call_->parts_[large]) * workers;
            if (work <= left || work < least * all) {
                break;
            }
            left -= work / workers;
        }
        return large;
    }
    // The next part, on this worker. False when none is left.
    bool take(int worker, Workers *workers) noexcept {
        const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
        if (i >= call_->count_) {
            return false;
        }
        const CpuMemory own{memory_.bytes, memory_.caller + worker * call_->bytes_of_part(), memory_.helpers};
        const polyhead_status status = call_->run_here(call_->parts_[i], workers, own);
        if (status.code != POLYHEAD_OK) {
            next_.store(call_->count_, std::memory_order_relaxed); // the others need not start
            if (!failed_.exchange(true)) {
                status_ = status;
            }
        }
        return true;
    }
    static int work(void *, int worker, uint8_t *self) noexcept {
        Parts &all = *reinterpret_cast<Parts *>(self);
        Workers alone{Workers::Alone()};
        while (all.take(worker, all.helped_by_ ? all.helped_by_ : &alone)) {
        }
        return 0;
    }

    CallInParts *const call_;
    const CpuMemory memory_;
    Workers *helped_by_ = nullptr; // null: each worker computes its parts alone
    std::atomic<int64_t> next_{0};
    std::atomic<bool> failed_{false};
    polyhead_status status_;
};

// One part after another: the device has a queue.
polyhead_status CallInParts::run_on_device(const CpuMemory &memory) noexcept {
    polyhead_status status = success();
    for (int64_t i = 0; i < count_ && status.code == POLYHEAD_OK; ++i) {
        status = run_here(parts_[i], nullptr, memory);
    }
    return status;
}

polyhead_status CallInParts::run() noexcept {
    return run_entered(args_.device, [this] { return run_parts(); }); // once for all parts
}

polyhead_status CallInParts::run_parts() noexcept {
    polyhead_status status = success();
    if (count_ == 0 || !neutral_.make(kernel_.problem, args_, most_.keys, resources_.memory, &status)) {
        return status;
    }
    const int workers = resources_.workers->count(), parts = at_once(workers);
    const int64_t all = bytes(workers), neutral = neutral_row_bytes(kernel_.problem, args_, most_.keys);
    CallBlock block;
    if (all == INT64_MAX || (all > neutral && !block.take(resources_.memory, all - neutral))) {
        return failure(POLYHEAD_OUT_OF_MEMORY, "kernel %s: %lld bytes of scratch memory could not be allocated", kernel_.name,
                       static_cast<long long>(all));
    }
    const CpuMemory memory{most_.cpu, block.get(), args_.device ? nullptr : block.get() + parts * bytes_of_part()};
    return args_.device ? run_on_device(memory) : Parts(this, memory).run(resources_.workers, parts);
}

} // namespace polyhead::runtime
