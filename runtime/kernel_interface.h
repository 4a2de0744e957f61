// What generated code and this library share: a tensor as the code reads it, the results of a kernel, and the functions that kernels call.
// All of it is as Halide 21 lays it out, of which nothing is included here: kernels on CPUs need no part of Halide's runtime.
// tests/runtime_interface.cpp compares it with Halide's header.
#ifndef POLYHEAD_RUNTIME_KERNEL_INTERFACE_H
#define POLYHEAD_RUNTIME_KERNEL_INTERFACE_H

#include <cstddef>
#include <cstdint>

// In ELF objects the symbols of functions that kernels call begin with polyhead_ (tools/elf_symbols.h), so that they do not meet those of
// Halide code in the program. Written behind a declaration.
#ifdef __ELF__
#define POLYHEAD_CALLED_BY_KERNELS(name) __asm__("polyhead_" #name)
#else
#define POLYHEAD_CALLED_BY_KERNELS(name)
#endif

namespace polyhead::runtime {

struct ElementType {
    enum Code : uint8_t { signed_integer = 0, unsigned_integer = 1, real = 2 };

    uint8_t code, bits;
    uint16_t lanes;

    constexpr int bytes() const noexcept { return (bits + 7) / 8; }
    friend constexpr bool operator==(const ElementType &a, const ElementType &b) noexcept {
        return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
    }
};

struct KernelDimension {
    int32_t min, extent, stride; // in elements
    uint32_t flags;              // none are defined
};

// A tensor of a kernel, dimensions innermost first.
struct KernelBuffer {
    static constexpr uint64_t newer_on_host = 1, newer_on_device = 2;

    uint64_t device;              // a handle of device_interface
    const void *device_interface; // Halide's halide_device_interface_t
    uint8_t *host;                // of the element at the minima
    uint64_t flags;
    ElementType type;
    int32_t dimensions;
    KernelDimension *dim;
    void *padding;

    // An extern stage is asked which region it reads.
    bool is_bounds_query() const noexcept { return !host && device == 0; }
    bool host_dirty() const noexcept { return (flags & newer_on_host) != 0; }
    bool device_dirty() const noexcept { return (flags & newer_on_device) != 0; }
    void set_host_dirty(bool dirty = true) noexcept { flags = dirty ? flags | newer_on_host : flags & ~newer_on_host; }
    void set_device_dirty(bool dirty = true) noexcept { flags = dirty ? flags | newer_on_device : flags & ~newer_on_device; }
};

// What entries and the functions below return.
enum KernelResult : int {
    kernel_success = 0,
    kernel_failed = -1, // no other word for it
    kernel_bounds_too_small = -2,
    kernel_bad_type = -3,
    kernel_out_of_bounds = -4,
    kernel_buffer_too_large = -5,
    kernel_extents_too_large = -6,
    kernel_region_smaller = -7,
    kernel_constraint_violated = -8,
    kernel_number_too_small = -9,
    kernel_number_too_large = -10,
    kernel_out_of_memory = -11,
    kernel_null_buffer = -12,
    kernel_not_aligned = -24,
    kernel_bad_fold = -25,
    kernel_fold_too_small = -26,
    kernel_requirement_failed = -27,
    kernel_negative_extents = -28,
    kernel_device_error = -29,
    kernel_not_specialized = -31,
    kernel_no_host_memory = -34,
    kernel_bad_extern_fold = -35,
    kernel_bad_rank = -43,
    kernel_only_on_device = -44,
    kernel_storage_too_small = -45,
    kernel_bad_split = -46,
    kernel_bad_vector_scale = -47,
};

// One iteration of a parallel loop.
using KernelTask = int (*)(void *user_context, int index, uint8_t *closure);

} // namespace polyhead::runtime

// What an assertion of a kernel calls when it fails is in helpers/assertions.cpp.
extern "C" {
int halide_do_par_for(void *user_context, polyhead::runtime::KernelTask task, int min, int size, uint8_t *closure)
    POLYHEAD_CALLED_BY_KERNELS(halide_do_par_for);
void halide_error(void *user_context, const char *text) POLYHEAD_CALLED_BY_KERNELS(halide_error);
int halide_error_out_of_memory(void *user_context) POLYHEAD_CALLED_BY_KERNELS(halide_error_out_of_memory);
void halide_free(void *user_context, void *block) POLYHEAD_CALLED_BY_KERNELS(halide_free);
void *halide_malloc(void *user_context, size_t bytes) POLYHEAD_CALLED_BY_KERNELS(halide_malloc);
void halide_shutdown_thread_pool() POLYHEAD_CALLED_BY_KERNELS(halide_shutdown_thread_pool);
}

#endif
