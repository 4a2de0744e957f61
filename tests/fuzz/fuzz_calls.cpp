// Fuzzes polyhead_run, explain, scratch_bytes and pack: a correct call in which bytes change anything. A call is ok or refused with one
// sentence, both ways of asking agree, kernels see only memory of the caller, and out is untouched unless the call is ok.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "contract/weight_layout.h"
#include "edits.h"
#include "instruments/calls/call_tensors.h"
#include "memory.h"
#include "runtime/call/call_tensors.h"
#include "runtime/rules/tensor_rules.h"

namespace polyhead::fuzz {
namespace {

constexpr double most_outputs = 1 << 16, most_elements = 1 << 18;
constexpr int num_outputs = static_cast<int>(test::output_tensors.size() + test::cache_tensors.size());
constexpr int64_t rope_rows = 40, pages = 3;
constexpr size_t edited_bytes = 256 * sizeof(int32_t); // of an integer tensor

void check_status(const polyhead_status &status) {
    const size_t length = strnlen(status.message, sizeof status.message);
    if (length == sizeof status.message || (status.code == POLYHEAD_OK) != (length == 0)) {
        fail("status %d with a message of %zu bytes", status.code, length);
    }
    for (size_t i = 0; i < length; ++i) {
        if (status.message[i] < 0x20) {
            fail("status %d: a message of more than one line: %s", status.code, status.message);
        }
    }
}

polyhead_tensor polyhead_args::*output_at(int number) {
    const auto n = static_cast<size_t>(number), outputs = test::output_tensors.size();
    return n < outputs ? test::output_tensors[n].tensor : test::cache_tensors[n - outputs].tensor;
}

int output_number(polyhead_tensor polyhead_args::*tensor) {
    int number = 0;
    for (; output_at(number) != tensor; ++number) {
    }
    return number;
}

// One correct call, with every tensor at a place of its own.
struct Call {
    // packed: the queries and keys are those of `sequences` sequences, where the kernel takes such calls.
    Call(Subject *subject, Devices *devices, int64_t batch, int64_t queries, int64_t keys, bool packed);
    void edit(Bytes *bytes);
    bool affordable() const;
    void edit_numbers(Bytes *bytes);
    void write_begins() const;

    static constexpr int64_t sequences = 3;
    Subject &subject;
    Devices &devices;
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    polyhead_weights weights{};
    void *first_weight = nullptr; // edits move weights.data from here
    polyhead_tensor expression_tensors[contract::most_expression_tensors]{};
    std::vector<Place> places;
    std::vector<char> packed;

private:
    void add(polyhead_tensor *tensor, char *first, int32_t dtype, std::vector<int64_t> extents);
    void add_row(int *place, const contract::TensorRow &row, const runtime::CallShape &shape, const polyhead_problem &p);
    void add_expression_tensors(int *place, const runtime::CallShape &shape, const polyhead_problem &p);
    void add_weights(const polyhead_problem &p);
    int64_t batch_of(const int32_t *declared, int32_t rank, const runtime::CallShape &shape) const;
    void edit_weights(Bytes *bytes);
    void edit_values(Bytes *bytes);
};

void Call::add(polyhead_tensor *tensor, char *first, int32_t dtype, std::vector<int64_t> extents) {
    tensor->data = first;
    tensor->dtype = dtype;
    tensor->rank = static_cast<int32_t>(extents.size());
    int64_t step = 1;
    for (size_t i = extents.size(); i-- > 0;) {
        tensor->shape[i] = extents[i];
        tensor->stride[i] = step;
        step *= std::max<int64_t>(extents[i], 1);
    }
    places.push_back({tensor, first});
}

// Tensors with a packed dimension have a batch of 1.
int64_t Call::batch_of(const int32_t *declared, int32_t rank, const runtime::CallShape &shape) const {
    return std::any_of(declared, declared + rank, [&](int32_t d) { return runtime::is_packed(d, shape); }) ? 1 : shape.batch;
}

// The first sequence has half of the tokens, the second one none.
void Call::write_begins() const {
    for (const polyhead_tensor *begins : {&args.cu_seqlens_q, &args.cu_seqlens_kv}) {
        if (begins->data) {
            const auto total = static_cast<int32_t>((begins == &args.cu_seqlens_q ? args.query : args.key).shape[2]);
            const int32_t values[sequences + 1] = {0, total / 2, total / 2, total};
            std::memcpy(begins->data, values, sizeof values);
        }
    }
}

void Call::add_row(int *place, const contract::TensorRow &row, const runtime::CallShape &given, const polyhead_problem &p) {
    int32_t what[4] = {};
    std::transform(row.extents, row.extents + row.rank, what, [&](int32_t extent) { return contract::counted(extent, p); });
    runtime::CallShape shape = given;
    shape.batch = row.place == contract::Place::host ? given.batch : batch_of(what, row.rank, given);
    int64_t full[4];
    runtime::full_extents(row, p, shape, full);
    for (int i = 0; i < row.rank; ++i) {
        full[i] = full[i] != runtime::any_extent ? full[i] : row.extents[i] == contract::extent_blocks ? pages : rope_rows;
    }
    const bool result = row.place == contract::Place::result;
    char *const first = result ? Memory::get().output(output_number(row.tensor)) : Memory::get().input((*place)++);
    add(&(args.*row.tensor), first, row.dtype(p), {full, full + row.rank});
}

void Call::add_expression_tensors(int *place, const runtime::CallShape &given, const polyhead_problem &p) {
    runtime::CallShape shape = given;
    for (int i = 0; i < subject.table.num_declarations; ++i) {
        const polyhead_declaration &declared = subject.table.declarations[i];
        shape.batch = batch_of(declared.extents, declared.rank, given);
        std::vector<int64_t> extents(static_cast<size_t>(std::max(declared.rank, 1)), 1);
        for (int32_t dim = 0; dim < declared.rank; ++dim) {
            const int64_t extent = runtime::extent_of(declared.extents[dim], p, shape);
            extents[static_cast<size_t>(dim)] = extent == runtime::any_extent ? 7 : extent;
        }
        add(&expression_tensors[i], Memory::get().input((*place)++), declared.dtype, extents);
    }
    args.expression_tensors = expression_tensors;
    args.num_expression_tensors = subject.table.num_declarations;
}

void Call::add_weights(const polyhead_problem &p) {
    const size_t bytes = contract::weight_layout(p).bytes;
    packed.resize(bytes + 64 + 256); // edits move it by a byte's worth
    first_weight = packed.data();
    size_t space = packed.size();
    std::align(64, bytes, first_weight, space);
    weights = {first_weight, bytes, contract::weight_layout_id(p), POLYHEAD_WEIGHT_PANEL, p.dtype, nullptr};
    args.weights = &weights;
}

Call::Call(Subject *subject_, Devices *devices_, int64_t batch, int64_t queries, int64_t keys, bool packed)
    : subject(*subject_), devices(*devices_) {
    const polyhead_problem p = contract::with_heads(contract::with_defaults(subject.table.problem), 4, 2);
    queries = p.seq_len_q > 0 ? p.seq_len_q : queries;
    keys = p.cache ? queries + keys : contract::attends_itself(p) ? queries : p.seq_len_kv > 0 ? p.seq_len_kv : keys;
    keys = p.page_size > 0 ? (keys + p.page_size - 1) / p.page_size * p.page_size : keys;
    args.op = p.op;
    runtime::CallShape shape{batch, queries, keys};
    if (packed && contract::by_heads(p)) {
        shape.batch = sequences;
        shape.packed_q = true;
        shape.packed_kv = p.page_size == 0;
    }
    int place = 0;
    for (const contract::TensorRow &row : contract::tensors) {
        if (takes(p, row) && (row.place != contract::Place::host || shape.packed_q)) {
            add_row(&place, row, shape, p);
        }
    }
    add_expression_tensors(&place, shape, p);
    if (contract::has_weights(p)) {
        add_weights(p);
    }
    args.softcap = p.softcap ? 30.0f : 0.0f;
}

void Call::edit_weights(Bytes *bytes) {
    switch (bytes->below(8)) {
    case 0:
        args.weights = args.weights ? nullptr : &weights;
        break;
    case 1:
        weights.data = nullptr;
        break;
    case 2:
        weights.data = weights.data ? static_cast<const char *>(first_weight) + bytes->byte() : nullptr;
        break;
    case 3:
        weights.bytes = static_cast<size_t>(bytes->number());
        break;
    case 4:
        weights.layout = bytes->word();
        break;
    case 5:
        weights.panel = static_cast<int32_t>(bytes->number());
        break;
    case 6:
        weights.dtype = static_cast<int32_t>(bytes->number());
        break;
    default:
        weights.device = bytes->below(2) ? &devices.cuda : nullptr;
    }
}

// What an integer tensor holds.
void Call::edit_values(Bytes *bytes) {
    const Place &place = places[static_cast<size_t>(bytes->byte()) % places.size()];
    const size_t at = bytes->byte();
    const auto value = static_cast<int32_t>(bytes->number());
    if (Memory::get().is_input(place.first, place.first)) {
        std::memcpy(place.first + at * sizeof value, &value, sizeof value);
    }
}

void Call::edit_numbers(Bytes *bytes) {
    const uint8_t what = bytes->byte();
    int32_t *const integers[] = {&args.op,           &args.has_softmax_scale,     &args.alignment, &args.has_window, &args.window_left,
                                 &args.window_right, &args.num_expression_tensors};
    float *const reals[] = {&args.softmax_scale, &args.softcap};
    switch (what % 7) {
    case 0:
    case 1:
        *integers[bytes->byte() % std::size(integers)] = static_cast<int32_t>(bytes->number());
        // EXCLUDED: more expression tensors than there can be: the caller's array must be as long as the count (c_api.h)
        args.num_expression_tensors = std::min(args.num_expression_tensors, contract::most_expression_tensors);
        break;
    case 2: {
        const uint32_t bits = bytes->word();
        std::memcpy(reals[what / 6 % 2], &bits, sizeof bits);
        break;
    }
    case 3:
        args.expression_tensors = args.expression_tensors ? nullptr : expression_tensors;
        break;
    case 4: {
        polyhead_device *const all[] = {nullptr, &devices.cuda, &devices.opencl};
        args.device = all[bytes->below(3)];
        break;
    }
    case 5:
        // EXCLUDED: more bytes than there are: the struct is as long as its size (c_api.h)
        args.size = std::min(args.size ^ bytes->byte(), static_cast<uint32_t>(sizeof args));
        args.scratch = bytes->below(2) ? &args : nullptr;
        break;
    default:
        edit_weights(bytes);
    }
}

void Call::edit(Bytes *bytes) {
    switch (bytes->below(8)) {
    case 0:
    case 1:
        edit_numbers(bytes);
        break;
    case 2:
        edit_values(bytes);
        break;
    case 3: { // of the kernel
        polyhead_variant &v = subject.variants[bytes->below(3)];
        int32_t *const facts[] = {&v.alignment,    &v.min_seq_len_q,    &v.max_seq_len_q, &v.capability,
                                  &v.shared_bytes, &v.capability_exact, &v.few_blocks_of, &subject.table.num_variants};
        *facts[bytes->byte() % std::size(facts)] = static_cast<int32_t>(bytes->number());
        // EXCLUDED: more variants than the table has: the generated table is as long as its count (c_api.h)
        subject.table.num_variants = std::min(std::max(subject.table.num_variants, 0), 3);
        v.abi = bytes->below(8) ? v.abi : 0u;
        break;
    }
    default:
        edit_tensor(bytes, places, &devices);
    }
    if (subject.real) {
        args.device = nullptr;
    }
}

// Memory is there for what a call may be accepted with, and it ends soon. Results may not go to memory for reading.
bool Call::affordable() const {
    for (const Place &place : places) {
        const bool slow = subject.real || args.device || place.tensor->dtype == POLYHEAD_I32;
        if (!fuzz::affordable(*place.tensor, slow ? most_elements : INT32_MAX) || !lies_in_memory(*place.tensor)) {
            return false;
        }
    }
    for (int number = 0; number < num_outputs; ++number) {
        const polyhead_tensor &t = args.*output_at(number);
        const char *first = static_cast<const char *>(t.data);
        if (!fuzz::affordable(t, most_outputs) || (first && !t.device && Memory::get().is_input(first, first))) {
            return false;
        }
    }
    const double pairs = double(args.query.rank > 2 ? args.query.shape[2] : 1) * double(args.key.rank > 2 ? args.key.shape[2] : 1);
    return !subject.real || pairs <= most_elements;
}

// Every key that an accepted call on the host names is there: its length fits, and its page is one of the pool (c_api.h).
void expect_keys_exist(const Call &call) {
    const polyhead_args &args = call.args;
    const polyhead_problem p = contract::with_defaults(call.subject.table.problem);
    if (args.device || p.op == POLYHEAD_LINEAR || args.cu_seqlens_kv.data || elements_of(args.out) == 0) {
        return;
    }
    const bool sdpa = p.op == POLYHEAD_SDPA;
    const polyhead_tensor &lengths = p.cache ? args.cache_lengths : args.kv_lengths, &stored = p.cache ? args.key_cache : args.key;
    const polyhead_tensor &query = args.query, &begins = args.cu_seqlens_q;
    const int64_t capacity = p.page_size > 0                 ? args.page_table.shape[1] * p.page_size
                             : !sdpa && !p.cross && !p.cache ? query.shape[1]
                                                             : stored.shape[stored.rank - 2];
    const int64_t rows = begins.data ? begins.shape[0] - 1 : query.shape[0], added = p.cache ? query.shape[1] : 0;
    for (int64_t b = 0; b < rows; ++b) {
        if (begins.data && integer(begins, b) == integer(begins, b + 1)) {
            // EXCLUDED: keys of sequences without queries: no kernel is called for them, so nothing of theirs is read (c_api.h)
            continue;
        }
        const int64_t length = lengths.data ? integer(lengths, b) + added : capacity;
        if (length < added || length > capacity) {
            fail("accepted with a length of %lld, where %lld keys have room", static_cast<long long>(length),
                 static_cast<long long>(capacity));
        }
        for (int64_t n = 0; p.page_size > 0 && n * p.page_size < length; ++n) {
            const int64_t page = integer(args.page_table, b, n);
            if (page < 0 || page >= stored.shape[0]) {
                fail("accepted with page %lld of %lld", static_cast<long long>(page), static_cast<long long>(stored.shape[0]));
            }
        }
    }
}

void run(Call *call) {
    const Memory &memory = Memory::get();
    const OutputWatch watch(num_outputs);
    memory.let_write_inputs(false);
    char text[4096];
    std::memset(text, 1, sizeof text);
    polyhead_status scratch{};
    const polyhead_status explained = polyhead_explain(&call->subject.table, &call->args, text, sizeof text);
    const int64_t bytes = polyhead_scratch_bytes(&call->subject.table, &call->args, &scratch);
    check_status(explained);
    check_status(scratch);
    watch.expect_untouched("explain");
    if (strnlen(text, sizeof text) == sizeof text || bytes < 0 || call->subject.calls != 0) {
        fail("explain: text without an end, %lld bytes of scratch memory, or %d calls", static_cast<long long>(bytes), call->subject.calls);
    }
    call->subject.args = &call->args;
    const polyhead_status status = polyhead_run(&call->subject.table, &call->args);
    memory.let_write_inputs(true);
    check_status(status);
    if (explained.code != scratch.code || (explained.code != POLYHEAD_OK && explained.code != status.code)) {
        fail("explain says %d, scratch_bytes %d, run %d: %s", explained.code, scratch.code, status.code, status.message);
    }
    if (call->devices.cuda.attached != 0 || call->devices.opencl.attached != 0) {
        fail("buffers stay behind on the device");
    }
    if (status.code != POLYHEAD_OK) {
        return watch.expect_untouched(status.message);
    }
    expect_keys_exist(*call);
    const polyhead_tensor *outputs[num_outputs];
    for (int i = 0; i < num_outputs; ++i) {
        outputs[i] = &(call->args.*output_at(i));
    }
    watch.expect_only(outputs, num_outputs);
}

void fuzz_run(Bytes *bytes, int number, bool packed) {
    static const int64_t lengths[] = {3, 0, 1, 5, 16, 17, 33, 2};
    Subject subject(number);
    static Devices devices;
    const int64_t batch = 2 - bytes->below(3), queries = lengths[bytes->below(8)];
    Call call(&subject, &devices, batch, queries, lengths[bytes->below(8)], packed);
    for (int place = 0; place < Memory::places; ++place) {
        std::memset(Memory::get().input(place), 0, edited_bytes);
    }
    call.write_begins();
    while (!bytes->empty()) {
        call.edit(bytes);
    }
    if (call.affordable()) {
        run(&call);
    }
}

} // namespace

// tests/fuzz/fuzz_pack.cpp
void fuzz_pack(Bytes *bytes, int number);

} // namespace polyhead::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace polyhead::fuzz;
    polyhead_set_num_threads(1);
    Bytes bytes(data, size);
    const uint8_t first = bytes.byte();
    first & 0x80 ? fuzz_pack(&bytes, first & 0x7F) : fuzz_run(&bytes, (first & 0x3F) % num_subjects, (first & 0x40) != 0);
    return 0;
}
