// Where packed weights lie in memory, and the id of that layout. Header only: the generator writes the same id into variants.
#ifndef POLYHEAD_CONTRACT_WEIGHT_LAYOUT_H
#define POLYHEAD_CONTRACT_WEIGHT_LAYOUT_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "dtypes.h"
#include "problem.h"

namespace polyhead::contract {

// Sections begin at multiples of so many bytes: the requirement of OpenCL devices for a part of a buffer (CL_DEVICE_MEM_BASE_ADDR_ALIGN),
// so that every section can be used in its place.
constexpr size_t weight_section_alignment = 512;

// Of packed weights. Packed biases are f32.
inline int32_t weight_dtype(const polyhead_problem &problem) noexcept {
    return problem.f32_weights ? POLYHEAD_F32 : problem.dtype;
}
constexpr size_t bias_element_bytes = dtype_bytes(POLYHEAD_F32);

// Bytes of one packed element of a weight.
inline size_t weight_element_bytes(const polyhead_problem &problem) noexcept {
    return static_cast<size_t>(dtype_bytes(weight_dtype(problem)));
}

// Inputs whose entries of a column lie side by side.
inline int64_t weight_pair(const polyhead_problem &problem) noexcept {
    return fact_of(dtypes, weight_dtype(problem), &DTypeRow::weight_pair, 1);
}

// One weight [panels][words][16][pair] and its bias [panels][16], in f32. Output column n of a head lies in panel head * panels_per_head +
// n / 16, lane n % 16; lanes beyond head_width are zero, and so is what fills the last word. A weight that is not split into heads is one
// head.
struct WeightSection {
    int64_t heads;           // 0: this section does not exist
    int64_t head_width;      // valid columns of a head
    int64_t panels_per_head; // ceil(head_width / 16)
    int64_t depth;           // in_features
    int64_t pair;            // of them in a word
    size_t weight_offset;    // bytes from the start of the packed memory, a multiple of weight_section_alignment
    size_t bias_offset;      // the same; meaningful when the problem has biases

    int64_t panels() const noexcept { return heads * panels_per_head; }
    int64_t words() const noexcept { return (depth + pair - 1) / pair; }
    // Elements of one panel.
    int64_t panel_elements() const noexcept { return words() * pair * POLYHEAD_WEIGHT_PANEL; }
};

struct WeightLayout {
    WeightSection query, key, value, out, gate; // linear: out only
    size_t bytes;                               // 0: the operation takes no weights

    static constexpr WeightSection WeightLayout::*sections[] = {&WeightLayout::query, &WeightLayout::key, &WeightLayout::value,
                                                                &WeightLayout::out, &WeightLayout::gate};
};

inline WeightLayout weight_layout(const polyhead_problem &given) noexcept {
    constexpr int64_t panel = POLYHEAD_WEIGHT_PANEL;
    const polyhead_problem p = with_defaults(given);
    const int64_t pair = weight_pair(p);
    const auto section = [pair](int64_t heads, int64_t width, int64_t depth) {
        return WeightSection{heads, width, (width + panel - 1) / panel, depth, pair, 0, 0};
    };
    WeightLayout layout{section(0, 0, 0), section(0, 0, 0), section(0, 0, 0), section(0, 0, 0), section(0, 0, 0), 0};
    if (p.op == POLYHEAD_MHA) {
        layout.query = section(p.num_heads, p.head_dim, p.embed_dim);
        layout.key = section(projects_key(p) ? p.num_kv_heads : 0, p.head_dim, p.kdim);
        layout.value = section(projects_value(p) ? p.num_kv_heads : 0, p.head_dim_v, p.vdim);
        // One number of a head: all heads lie side by side, as if they were one.
        layout.gate = p.gate == POLYHEAD_GATE_OF_HEADS ? section(1, p.num_heads, p.embed_dim)
                                                       : section(p.gate != POLYHEAD_NO_GATE ? p.num_heads : 0, p.head_dim_v, p.embed_dim);
        layout.out = section(1, p.embed_dim, int64_t(p.num_heads) * p.head_dim_v);
    } else if (p.op == POLYHEAD_LINEAR) {
        layout.out = section(1, p.out_features, p.embed_dim);
    }
    const auto place = [&](int64_t elements, size_t element) { // where a section of so many elements begins
        const size_t offset = (layout.bytes + weight_section_alignment - 1) / weight_section_alignment * weight_section_alignment;
        if (elements > 0) {
            layout.bytes = offset + static_cast<size_t>(elements) * element;
        }
        return offset;
    };
    for (WeightSection WeightLayout::*s : WeightLayout::sections) {
        WeightSection &placed = layout.*s;
        placed.weight_offset = place(placed.panels() * placed.panel_elements(), weight_element_bytes(p));
    }
    for (WeightSection WeightLayout::*s : WeightLayout::sections) {
        (layout.*s).bias_offset = place(p.bias ? (layout.*s).panels() * panel : 0, bias_element_bytes);
    }
    return layout;
}

// Equal for problems whose packed weights are interchangeable, never 0 when there are weights (a hash of what shapes them, FNV-1a by
// words).
inline uint32_t weight_layout_id(const polyhead_problem &given) noexcept {
    if (given.op != POLYHEAD_MHA && given.op != POLYHEAD_LINEAR) {
        return 0;
    }
    const polyhead_problem p = with_defaults(given);
    const bool mha = p.op == POLYHEAD_MHA;
    const int32_t facts[] = {POLYHEAD_WEIGHT_PANEL * static_cast<int32_t>(weight_pair(p)),
                             static_cast<int32_t>(weight_section_alignment),
                             static_cast<int32_t>(bias_element_bytes),
                             p.op,
                             weight_dtype(p),
                             p.bias != 0,
                             p.embed_dim,
                             mha ? p.num_heads : 0,
                             mha ? p.num_kv_heads : 0,
                             mha ? p.head_dim : 0,
                             mha ? p.head_dim_v : 0,
                             mha ? p.kdim : 0,
                             mha ? p.vdim : 0,
                             mha ? 0 : p.out_features};
    uint32_t hash = 2166136261u;
    const auto add = [&hash](int32_t fact) {
        hash = (hash ^ static_cast<uint32_t>(fact)) * 16777619u;
        hash ^= hash >> 15; // the product moves differences upwards only
    };
    for (const int32_t fact : facts) {
        add(fact);
    }
    if (mha && (p.gate != POLYHEAD_NO_GATE || !projects_value(p))) { // weights without these came first, and keep their id
        add(p.gate);
        add(projects_key(p));
        add(projects_value(p));
    }
    return hash != 0 ? hash : 1u;
}

} // namespace polyhead::contract
#endif
