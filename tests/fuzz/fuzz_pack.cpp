// Fuzzes polyhead_pack: a correct set of weights in which bytes change anything. Memory is written only when the status is ok, and then no
// further than it reaches.
#include <cstring>
#include <string>

#include "contract/weight_layout.h"
#include "edits.h"
#include "memory.h"

namespace polyhead::fuzz {
namespace {

void add(std::vector<Place> *places, polyhead_tensor *tensor, const polyhead_problem &p, std::vector<int64_t> extents) {
    char *first = Memory::get().input(static_cast<int>(places->size()));
    tensor->data = first;
    tensor->dtype = p.dtype;
    tensor->rank = static_cast<int32_t>(extents.size());
    for (size_t i = 0; i < extents.size(); ++i) {
        tensor->shape[i] = extents[i];
        tensor->stride[i] = i + 1 < extents.size() ? extents.back() : 1;
    }
    places->push_back({tensor, first});
}

// Weights as nn.Linear stores them: joined, or one tensor each.
std::vector<Place> correct(const polyhead_problem &given, bool joined, polyhead_weight_tensors *t) {
    const polyhead_problem p = contract::with_defaults(given);
    std::vector<Place> places;
    const int64_t query = int64_t(p.num_heads) * p.head_dim, key = int64_t(p.num_kv_heads) * p.head_dim;
    const int64_t value = int64_t(p.num_kv_heads) * p.head_dim_v, rows = query + key + value;
    const bool mha = p.op == POLYHEAD_MHA;
    joined = joined && p.kdim == p.embed_dim && p.vdim == p.embed_dim;
    if (mha && joined) {
        add(&places, &t->in_proj, p, {rows, p.embed_dim});
    } else if (mha) {
        add(&places, &t->query, p, {query, p.embed_dim});
        add(&places, &t->key, p, {key, p.kdim});
        add(&places, &t->value, p, {value, p.vdim});
    }
    add(&places, &t->out_proj, p, {mha ? p.embed_dim : p.out_features, mha ? p.num_heads * int64_t(p.head_dim_v) : p.embed_dim});
    if (p.bias) {
        add(&places, &t->out_bias, p, {mha ? p.embed_dim : p.out_features});
    }
    if (mha && p.bias && joined) {
        add(&places, &t->in_bias, p, {rows});
    } else if (mha && p.bias) {
        add(&places, &t->query_bias, p, {query});
        add(&places, &t->key_bias, p, {key});
        add(&places, &t->value_bias, p, {value});
    }
    return places;
}

} // namespace

void fuzz_pack(Bytes *bytes, int number) {
    const int with_weights[] = {6, 7, 8, 9, 10, 1};
    Subject subject(with_weights[number % 6]);
    static Devices devices;
    polyhead_weight_tensors tensors = polyhead_weight_tensors_of();
    const std::vector<Place> places = correct(subject.table.problem, number / 6 % 2 == 0, &tensors);
    const size_t size = polyhead_weights_bytes(&subject.table);
    if (size > size_t(Memory::window)) {
        fail("%zu bytes of weights, more than are looked at", size);
    }
    char *memory = Memory::get().output(0);
    polyhead_weights packed{};
    while (!bytes->empty()) {
        switch (bytes->below(8)) {
        case 0:
            memory = bytes->below(2) ? nullptr : Memory::get().output(0) + bytes->byte();
            break;
        default:
            edit_tensor(bytes, places, &devices);
        }
    }
    for (const Place &place : places) {
        if (!affordable(*place.tensor, INT32_MAX) || !lies_in_memory(*place.tensor)) {
            return;
        }
    }
    const OutputWatch watch(1);
    Memory::get().let_write_inputs(false);
    const polyhead_status status = polyhead_pack(&subject.table, &tensors, memory, &packed);
    Memory::get().let_write_inputs(true);
    const size_t length = strnlen(status.message, sizeof status.message);
    if (length == sizeof status.message || (status.code == POLYHEAD_OK) != (length == 0) ||
        (status.code == POLYHEAD_OK) != (packed.data != nullptr)) {
        fail("pack: status %d with a message of %zu bytes", status.code, length);
    }
    if (status.code != POLYHEAD_OK) {
        return watch.expect_untouched(status.message);
    }
    polyhead_tensor all{};
    all.data = memory;
    all.dtype = POLYHEAD_I8;
    all.rank = 1;
    all.shape[0] = static_cast<int64_t>(size);
    all.stride[0] = 1;
    const polyhead_tensor *const written[] = {&all};
    watch.expect_only(written, 1);
}

} // namespace polyhead::fuzz
