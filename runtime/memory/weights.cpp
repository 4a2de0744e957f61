// Packs nn.Linear weights into panels of 16 columns (weight_layout.h), in one pass over source and destination.
#include <algorithm>
#include <cstring>

#include "../../contract/weight_layout.h"
#include "../call/call_guard.h"
#include "../call/kernel_table.h"
#include "../call/resources.h"
#include "../rules/served.h"
#include "../rules/tensor_rules.h"
#include "../rules/validate.h"
#include "../status.h"
#include "../threads/floating_point.h"
#include "../threads/for_each_row.h"
#include "stored.h"

namespace polyhead::runtime {
namespace {

constexpr int64_t panel_width = POLYHEAD_WEIGHT_PANEL;

// The rows of a weight [out_features, in_features] and of its bias that one section is packed from; bias is null when there is none. Column
// n of head h is row first + h * of_head + n * step.
struct SourceRows {
    const polyhead_tensor *weight, *bias;
    int64_t first, of_head, step;

    SourceRows(const polyhead_tensor *weight_, const polyhead_tensor *bias_, const WeightSection &section) noexcept
        : weight(weight_), bias(bias_), first(0), of_head(section.head_width), step(1) {}
    SourceRows(const polyhead_tensor *weight_, const polyhead_tensor *bias_, int64_t first_, int64_t of_head_, int64_t step_) noexcept
        : weight(weight_), bias(bias_), first(first_), of_head(of_head_), step(step_) {}
};

template <typename Element> const Element *elements_of(const polyhead_tensor &tensor) noexcept {
    return reinterpret_cast<const Element *>(elements(tensor, sizeof(Element)));
}

// Calls pack(From, To, one) with the types of an element before and after packing, and the function between them. Elements
// that keep their type are moved, others are rounded once.
template <typename Pack> void with_conversion(int32_t from, int32_t to, const Pack &pack) noexcept {
    if (from == to) {
        with_stored(from, [&](auto element) { pack(element, element, [](auto same) { return same; }); });
    } else if (to == POLYHEAD_F32) {
        with_stored(from, [&](auto element) { pack(element, float(), as_float<decltype(element)>); });
    } else {
        with_stored(to, [&](auto element) { pack(float(), element, as_stored<decltype(element)>); });
    }
}

// to[k / pair][0..15][k % pair] = so many rows of the source from first_row on, zeros beyond.
template <typename From, typename To, typename Convert>
void pack_panel(const SourceRows &rows, int64_t first_row, int64_t columns, const WeightSection &section, To *to,
                const Convert &convert) noexcept {
    const polyhead_tensor &weight = *rows.weight;
    constexpr int64_t block = 64 / sizeof(To); // a cache line: each source line is read once, each block of lines written at once
    const int64_t step = weight.stride[1], pair = section.pair, all = section.words() * pair;
    for (int64_t k0 = 0; k0 < all; k0 += block) { // a multiple of pair
        const int64_t k1 = std::min(k0 + block, all);
        if (columns < panel_width || k1 > section.depth) {
            std::fill(to + k0 * panel_width, to + k1 * panel_width, To{}); // 0 in every storage type
        }
        for (int64_t j = 0; j < columns; ++j) {
            const From *row = elements_of<From>(weight) + (first_row + j * rows.step) * weight.stride[0];
            for (int64_t k = k0; k < std::min(k1, section.depth); ++k) {
                to[(k / pair * panel_width + j) * pair + k % pair] = convert(row[k * step]);
            }
        }
    }
}

// Calls pack(row, columns, panel) for every panel of a section: the first row of the source, how many there are, the panel's number.
template <typename Pack>
void for_each_panel(const WeightSection &section, const SourceRows &rows, Workers *workers, const Pack &pack) noexcept {
    const int64_t of_head = (section.head_width + panel_width - 1) / panel_width;
    for_each_row(section.panels(), section.panels() * section.panel_elements() * int64_t(sizeof(float)), workers, [&](int64_t panel) {
        const int64_t column = panel % of_head * panel_width;
        pack(rows.first + panel / of_head * rows.of_head + column * rows.step, std::min(panel_width, section.head_width - column), panel);
    });
}

void pack_section(const WeightSection &section, const SourceRows &from, int32_t dtype, void *memory, Workers *workers) noexcept {
    with_conversion(from.weight->dtype, dtype, [&](auto source, auto packed, const auto &convert) {
        auto *const to = reinterpret_cast<decltype(packed) *>(static_cast<char *>(memory) + section.weight_offset);
        for_each_panel(section, from, workers, [&](int64_t row, int64_t columns, int64_t panel) {
            pack_panel<decltype(source)>(from, row, columns, section, to + panel * section.panel_elements(), convert);
        });
    });
    if (!from.bias) {
        return;
    }
    with_conversion(from.bias->dtype, POLYHEAD_F32, [&](auto source, auto packed, const auto &convert) {
        auto *const to = reinterpret_cast<decltype(packed) *>(static_cast<char *>(memory) + section.bias_offset);
        Workers alone{Workers::Alone()};
        for_each_panel(section, from, &alone, [&](int64_t row, int64_t columns, int64_t panel) {
            for (int64_t j = 0; j < panel_width; ++j) {
                to[panel * panel_width + j] =
                    j < columns ? convert(elements_of<decltype(source)>(*from.bias)[(row + j * from.step) * from.bias->stride[0]])
                                : decltype(packed){};
            }
        });
    });
}

// Sections begin at multiples of some bytes: what lies between them is 0, so that equal weights are equal bytes.
void zero_gaps(const polyhead_problem &p, const WeightLayout &layout, void *memory) noexcept {
    const auto zero_behind = [&](size_t offset, int64_t elements, size_t element) {
        const size_t end = offset + static_cast<size_t>(elements) * element;
        const size_t next = (end + weight_section_alignment - 1) / weight_section_alignment * weight_section_alignment;
        if (end < layout.bytes) {
            std::memset(static_cast<char *>(memory) + end, 0, std::min(next, layout.bytes) - end);
        }
    };
    for (WeightSection WeightLayout::*section : WeightLayout::sections) {
        const WeightSection &s = layout.*section;
        if (s.heads > 0) {
            zero_behind(s.weight_offset, s.panels() * s.panel_elements(), weight_element_bytes(p));
            zero_behind(s.bias_offset, p.bias ? s.panels() * panel_width : 0, bias_element_bytes);
        }
    }
}

// One tensor that may be given, whether it must be, and its shape.
struct Source {
    const char *name;
    const polyhead_tensor *tensor;
    bool wanted;
    const char *why_not; // when not wanted
    int32_t rank;
    int64_t extents[2];
};

bool check_source(const polyhead_problem &p, const Source &source, const MemoryRange &packed, polyhead_status *status) noexcept {
    if (!source.wanted) {
        if (absent(*source.tensor)) {
            return true;
        }
        return refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because %s", source.name, source.why_not);
    }
    if (source.tensor->device) {
        return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: lies on device %s, expected host memory", source.name,
                      source.tensor->device->name);
    }
    const TensorRule rule{source.name, source.tensor, p.dtype, Role::weight, source.rank, {{source.extents[0]}, {source.extents[1]}}, true};
    if (!check_tensor(rule, status)) {
        return false;
    }
    if (overlap(memory_of(*source.tensor), packed)) {
        return refuse(status, POLYHEAD_ALIASED, "memory: shares bytes with %s, expected memory of its own", source.name);
    }
    return true;
}

// Which of the two forms the caller chose for the weights, and for the biases: joined in one tensor or separate. gate: apart from query.
struct Given {
    bool in_proj, in_bias, gate;
};

bool one_input_width(const polyhead_problem &p) noexcept {
    return p.kdim == p.embed_dim && p.vdim == p.embed_dim;
}

Given given_forms(const polyhead_problem &p, const polyhead_weight_tensors &t) noexcept {
    const bool separate_weights = !absent(t.query) || !absent(t.key) || !absent(t.value) || !one_input_width(p);
    const bool separate_biases = !absent(t.query_bias) || !absent(t.key_bias) || !absent(t.value_bias);
    return {!absent(t.in_proj) || !separate_weights, !absent(t.in_bias) || !separate_biases, !absent(t.gate)};
}

bool check_mha_sources(const polyhead_problem &p, const polyhead_weight_tensors &t, const Given &given, const MemoryRange &packed,
                       polyhead_status *status) noexcept {
    const int64_t heads = p.num_heads, gate = heads * gates_of_head(p), query = heads * p.head_dim, out = heads * p.head_dim_v;
    const int64_t key = projects_key(p) ? int64_t(p.num_kv_heads) * p.head_dim : 0;
    const int64_t value = projects_value(p) ? int64_t(p.num_kv_heads) * p.head_dim_v : 0;
    const bool apart = given.gate, with_gate = gate > 0 && !apart && !given.in_proj, bias_with_gate = gate > 0 && !apart && !given.in_bias;
    if (given.in_proj && !one_input_width(p)) {
        return refuse(status, POLYHEAD_WRONG_OPERATION,
                      "in_proj: given, expected query, key and value weights, because kdim %d and vdim %d are not both embed_dim %d",
                      p.kdim, p.vdim, p.embed_dim);
    }
    const char *packed_weight = "in_proj is given", *packed_bias = "in_bias is given", *no_bias = "the kernel was built without biases";
    const char *no_gate = "the kernel was built without gate", *no_key = p.shared_cache ? "another layer writes the cache" : packed_weight;
    const char *no_value = projects_value(p) ? packed_weight : p.shared_cache ? no_key : "value is taken from key";
    const bool bias = p.bias != 0, own = !given.in_proj, own_bias = bias && !given.in_bias;
    const Source sources[] = {
        {"in_proj", &t.in_proj, given.in_proj, nullptr, 2, {query + key + value, p.embed_dim}},
        {"query", &t.query, own, packed_weight, 2, {query + (with_gate ? gate : 0), p.embed_dim}},
        {"key", &t.key, own && key > 0, no_key, 2, {key, p.kdim}},
        {"value", &t.value, own && value > 0, no_value, 2, {value, p.vdim}},
        {"gate", &t.gate, gate > 0 && (apart || given.in_proj), no_gate, 2, {gate, p.embed_dim}},
        {"out_proj", &t.out_proj, true, nullptr, 2, {p.embed_dim, out}},
        {"in_bias", &t.in_bias, bias && given.in_bias, no_bias, 1, {query + key + value, 0}},
        {"query_bias", &t.query_bias, own_bias, bias ? packed_bias : no_bias, 1, {query + (bias_with_gate ? gate : 0), 0}},
        {"key_bias",
         &t.key_bias,
         own_bias && key > 0,
         !bias     ? no_bias
         : key > 0 ? packed_bias
                   : no_key,
         1,
         {key, 0}},
        {"value_bias",
         &t.value_bias,
         own_bias && value > 0,
         !bias       ? no_bias
         : value > 0 ? packed_bias
                     : no_value,
         1,
         {value, 0}},
        {"gate_bias", &t.gate_bias, bias && gate > 0 && (apart || given.in_bias), gate > 0 ? no_bias : no_gate, 1, {gate, 0}},
        {"out_bias", &t.out_bias, bias, no_bias, 1, {p.embed_dim, 0}},
    };
    for (const Source &source : sources) {
        if (!check_source(p, source, packed, status)) {
            return false;
        }
    }
    return true;
}

bool check_linear_sources(const polyhead_problem &p, const polyhead_weight_tensors &t, const MemoryRange &packed,
                          polyhead_status *status) noexcept {
    const char *linear = "the kernel is a linear layer, which takes out_proj and out_bias";
    const Source sources[] = {
        {"in_proj", &t.in_proj, false, linear, 0, {}},
        {"in_bias", &t.in_bias, false, linear, 0, {}},
        {"query", &t.query, false, linear, 0, {}},
        {"key", &t.key, false, linear, 0, {}},
        {"value", &t.value, false, linear, 0, {}},
        {"query_bias", &t.query_bias, false, linear, 0, {}},
        {"key_bias", &t.key_bias, false, linear, 0, {}},
        {"value_bias", &t.value_bias, false, linear, 0, {}},
        {"gate", &t.gate, false, linear, 0, {}},
        {"gate_bias", &t.gate_bias, false, linear, 0, {}},
        {"out_proj", &t.out_proj, true, nullptr, 2, {p.out_features, p.embed_dim}},
        {"out_bias", &t.out_bias, p.bias != 0, "the kernel was built without biases", 1, {p.out_features, 0}},
    };
    for (const Source &source : sources) {
        if (!check_source(p, source, packed, status)) {
            return false;
        }
    }
    return true;
}

void pack_mha(const polyhead_problem &p, const WeightLayout &layout, const polyhead_weight_tensors &t, const Given &given, void *memory,
              Workers *workers) noexcept {
    const int64_t key_row = int64_t(p.num_heads) * p.head_dim, value_row = key_row + int64_t(p.num_kv_heads) * p.head_dim;
    const struct {
        const WeightSection *section;
        const polyhead_tensor *weight, *bias;
        int64_t row_when_joined;
    } parts[] = {{&layout.query, &t.query, &t.query_bias, 0},
                 {&layout.key, &t.key, &t.key_bias, key_row},
                 {&layout.value, &t.value, &t.value_bias, value_row}};
    const int64_t gates = given.gate ? 0 : gates_of_head(p); // among the rows of query
    for (const auto &part : parts) {
        if (part.section->heads == 0) {
            continue;
        }
        // The two forms may be mixed (nn.MultiheadAttention with kdim has separate weights and one bias): cut both to the part's rows.
        polyhead_tensor weight = given.in_proj ? t.in_proj : *part.weight, bias = given.in_bias ? t.in_bias : *part.bias;
        if (given.in_proj) {
            weight.offset += part.row_when_joined * weight.stride[0];
        }
        if (p.bias && given.in_bias) {
            bias.offset += part.row_when_joined * bias.stride[0];
        }
        SourceRows rows(&weight, p.bias ? &bias : nullptr, *part.section);
        rows.of_head += part.section == &layout.query ? gates : 0;
        pack_section(*part.section, rows, weight_dtype(p), memory, workers);
    }
    if (gates > 0) {
        const int64_t of_head = p.head_dim + gates;
        // One number of a head: all heads are one, and a column is the next head.
        const SourceRows rows(&t.query, p.bias ? &t.query_bias : nullptr, p.head_dim, of_head,
                              p.gate == POLYHEAD_GATE_OF_HEADS ? of_head : 1);
        pack_section(layout.gate, rows, weight_dtype(p), memory, workers);
    } else if (given.gate) {
        pack_section(layout.gate, SourceRows(&t.gate, p.bias ? &t.gate_bias : nullptr, layout.gate), weight_dtype(p), memory, workers);
    }
}

bool check_destination(const KernelTable &kernel, const void *memory, const polyhead_weights *packed, polyhead_status *status) noexcept {
    if (!memory) {
        return refuse(status, POLYHEAD_NULL_POINTER, "memory: null pointer, expected %zu bytes", weight_layout(kernel.problem).bytes);
    }
    if (!packed) {
        return refuse(status, POLYHEAD_NULL_POINTER, "packed: null pointer, expected a polyhead_weights to fill");
    }
    if (reinterpret_cast<uintptr_t>(memory) % 64 != 0) {
        return refuse(status, POLYHEAD_BAD_VALUE, "memory: address %p, expected a multiple of 64", memory);
    }
    return true;
}

bool check_takes_weights(const KernelTable &kernel, polyhead_status *status) noexcept {
    if (!has_weights(kernel.problem)) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "weights: given, expected none, because kernel %s computes %s", kernel.name,
                      op_name(kernel.problem.op));
    }
    const int32_t dtype = kernel.problem.dtype;
    if (!stores_floats(dtype)) {
        return refuse(status, POLYHEAD_UNSUPPORTED, "weights: kernel %s stores %s, expected %s", kernel.name, dtype_name(dtype),
                      storage_types);
    }
    return true;
}

} // namespace
} // namespace polyhead::runtime

size_t polyhead_weights_bytes(const polyhead_kernel *kernel) {
    using namespace polyhead::runtime;
    KernelTable table;
    polyhead_status status;
    return table.read(kernel, &status) ? weight_layout(table.problem).bytes : 0;
}

polyhead_status polyhead_pack(const polyhead_kernel *kernel, const polyhead_weight_tensors *tensors, void *memory,
                              polyhead_weights *packed) {
    return polyhead_pack_in(nullptr, kernel, tensors, memory, packed);
}

polyhead_status polyhead_pack_in(const polyhead_workspace *given_workspace, const polyhead_kernel *kernel,
                                 const polyhead_weight_tensors *given_tensors, void *memory, polyhead_weights *packed) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    if (!kernel) {
        return failure(POLYHEAD_NULL_POINTER, "kernel: null pointer, expected a kernel");
    }
    if (!given_tensors) {
        return failure(POLYHEAD_NULL_POINTER, "tensors: null pointer, expected weight tensors");
    }
    polyhead_status status = success();
    KernelTable table;
    polyhead_weight_tensors room;
    GivenWorkspace workspace;
    if (!workspace.read(given_workspace, &status) || !table.read(kernel, &status)) {
        return status;
    }
    const polyhead_weight_tensors *const tensors = served(
        *given_tensors, &room,
        {"tensors", "polyhead_weight_tensors", "begin them with polyhead_weight_tensors_of() and compile with the headers of"}, &status);
    if (!tensors || !check_takes_weights(table, &status) || !check_destination(table, memory, packed, &status)) {
        return status;
    }

    const polyhead_problem &p = table.problem;
    const WeightLayout layout = weight_layout(p);
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
    const MemoryRange range{begin, begin + layout.bytes};
    const Given given = given_forms(p, *tensors);
    const bool mha = attends(p);
    if (!(mha ? check_mha_sources(p, *tensors, given, range, &status) : check_linear_sources(p, *tensors, range, &status))) {
        return status;
    }

    Workers workers(workspace.executor);
    if (mha) {
        pack_mha(p, layout, *tensors, given, memory, &workers);
    }
    pack_section(layout.out, SourceRows(&tensors->out_proj, p.bias ? &tensors->out_bias : nullptr, layout.out), weight_dtype(p), memory,
                 &workers);
    zero_gaps(p, layout, memory);
    say_fault(workers, &status);
    *packed = {memory, layout.bytes, weight_layout_id(p), POLYHEAD_WEIGHT_PANEL, weight_dtype(p), nullptr};
    return status;
}
