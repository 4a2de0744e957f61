// What a kernel calls when one of its assertions fails, in Halide's names: writes a sentence to halide_error() and returns the code that
// the kernel returns then. The runtime checks a call before its kernel starts, so most of them only ever say that it forgot a check.
#include "assertions.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "../kernel_interface.h"

namespace polyhead::runtime {
namespace {

__attribute__((format(printf, 3, 4))) int report(void *user_context, KernelResult result, const char *format, ...) noexcept {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    halide_error(user_context, text);
    return result;
}

} // namespace

// A tensor between two stages that outgrows 2^31 - 1 bytes is too long for the kernel, not an error in it.
polyhead_code code_of_result(int result) noexcept {
    return result == kernel_out_of_memory                                            ? POLYHEAD_OUT_OF_MEMORY
           : result == kernel_buffer_too_large || result == kernel_extents_too_large ? POLYHEAD_UNSUPPORTED
                                                                                     : POLYHEAD_INTERNAL;
}

} // namespace polyhead::runtime

using namespace polyhead::runtime;

// Declares a function under the name that kernels call, and begins its definition.
#define POLYHEAD_ASSERTION(name, ...)                                                                                                      \
    extern "C" int name(void *user_context, __VA_ARGS__) POLYHEAD_CALLED_BY_KERNELS(name);                                                 \
    extern "C" int name(void *user_context, __VA_ARGS__)

POLYHEAD_ASSERTION(halide_error_bounds_inference_call_failed, const char *stage, int result) {
    report(user_context, kernel_failed, "%s: found result %d when it was asked which region it reads, expected 0", stage, result);
    return result;
}

POLYHEAD_ASSERTION(halide_error_extern_stage_failed, const char *stage, int result) {
    report(user_context, kernel_failed, "%s: found result %d, expected 0", stage, result);
    return result;
}

POLYHEAD_ASSERTION(halide_error_explicit_bounds_too_small, const char *func, const char *var, int min, int max, int least, int most) {
    return report(user_context, kernel_bounds_too_small, "%s: %s is within %d..%d, expected %d..%d inside", func, var, min, max, least,
                  most);
}

POLYHEAD_ASSERTION(halide_error_bad_type, const char *tensor, uint32_t given, uint32_t expected) {
    return report(user_context, kernel_bad_type, "%s: found element type %#" PRIx32 ", expected %#" PRIx32, tensor, given, expected);
}

POLYHEAD_ASSERTION(halide_error_bad_dimensions, const char *tensor, int32_t given, int32_t expected) {
    return report(user_context, kernel_bad_rank, "%s: found rank %" PRId32 ", expected %" PRId32, tensor, given, expected);
}

POLYHEAD_ASSERTION(halide_error_access_out_of_bounds, const char *tensor, int dimension, int least, int most, int min, int max) {
    return report(user_context, kernel_out_of_bounds, "%s: dimension %d is read or written at %d..%d, expected within %d..%d", tensor,
                  dimension, least, most, min, max);
}

POLYHEAD_ASSERTION(halide_error_buffer_allocation_too_large, const char *tensor, uint64_t bytes, uint64_t most) {
    return report(user_context, kernel_buffer_too_large, "%s: found %" PRIu64 " bytes, expected %" PRIu64 " at most", tensor, bytes, most);
}

POLYHEAD_ASSERTION(halide_error_buffer_extents_negative, const char *tensor, int dimension, int extent) {
    return report(user_context, kernel_negative_extents, "%s: dimension %d has extent %d, expected at least 0", tensor, dimension, extent);
}

POLYHEAD_ASSERTION(halide_error_buffer_extents_too_large, const char *tensor, int64_t elements, int64_t most) {
    return report(user_context, kernel_extents_too_large, "%s: found %" PRId64 " elements, expected %" PRId64 " at most", tensor, elements,
                  most);
}

POLYHEAD_ASSERTION(halide_error_constraints_make_required_region_smaller, const char *tensor, int dimension, int min, int extent, int least,
                   int needed) {
    return report(user_context, kernel_region_smaller, "%s: dimension %d has min %d and extent %d, expected min %d and extent %d", tensor,
                  dimension, min, extent, least, needed);
}

POLYHEAD_ASSERTION(halide_error_constraint_violated, const char *what, int value, const char *expected, int expected_value) {
    return report(user_context, kernel_constraint_violated, "%s: found %d, expected %s, which is %d", what, value, expected,
                  expected_value);
}

POLYHEAD_ASSERTION(halide_error_param_too_small_i64, const char *name, int64_t value, int64_t least) {
    return report(user_context, kernel_number_too_small, "%s: found %" PRId64 ", expected at least %" PRId64, name, value, least);
}

POLYHEAD_ASSERTION(halide_error_param_too_small_u64, const char *name, uint64_t value, uint64_t least) {
    return report(user_context, kernel_number_too_small, "%s: found %" PRIu64 ", expected at least %" PRIu64, name, value, least);
}

POLYHEAD_ASSERTION(halide_error_param_too_small_f64, const char *name, double, double) {
    return report(user_context, kernel_number_too_small, "%s: found a number below its smallest", name);
}

POLYHEAD_ASSERTION(halide_error_param_too_large_i64, const char *name, int64_t value, int64_t most) {
    return report(user_context, kernel_number_too_large, "%s: found %" PRId64 ", expected %" PRId64 " at most", name, value, most);
}

POLYHEAD_ASSERTION(halide_error_param_too_large_u64, const char *name, uint64_t value, uint64_t most) {
    return report(user_context, kernel_number_too_large, "%s: found %" PRIu64 ", expected %" PRIu64 " at most", name, value, most);
}

POLYHEAD_ASSERTION(halide_error_param_too_large_f64, const char *name, double, double) {
    return report(user_context, kernel_number_too_large, "%s: found a number above its largest", name);
}

POLYHEAD_ASSERTION(halide_error_buffer_argument_is_null, const char *tensor) {
    return report(user_context, kernel_null_buffer, "%s: found null, expected a buffer", tensor);
}

POLYHEAD_ASSERTION(halide_error_unaligned_host_ptr, const char *tensor, int alignment) {
    return report(user_context, kernel_not_aligned, "%s: found an address that is no multiple of %d bytes", tensor, alignment);
}

POLYHEAD_ASSERTION(halide_error_host_is_null, const char *tensor) {
    return report(user_context, kernel_no_host_memory, "%s: found null, expected an address of host memory", tensor);
}

POLYHEAD_ASSERTION(halide_error_bad_fold, const char *func, const char *var, const char *loop) {
    return report(user_context, kernel_bad_fold, "%s: %s cannot be folded in the loop %s", func, var, loop);
}

POLYHEAD_ASSERTION(halide_error_bad_extern_fold, const char *func, int dimension, int min, int extent, int first, int factor) {
    return report(user_context, kernel_bad_extern_fold,
                  "%s: dimension %d is folded by %d from %d on, expected one fold around min %d and extent %d", func, dimension, factor,
                  first, min, extent);
}

POLYHEAD_ASSERTION(halide_error_fold_factor_too_small, const char *func, const char *var, int factor, const char *loop, int needed) {
    return report(user_context, kernel_fold_too_small, "%s: %s is folded by %d in the loop %s, expected at least %d", func, var, factor,
                  loop, needed);
}

POLYHEAD_ASSERTION(halide_error_requirement_failed, const char *condition, const char *message) {
    return report(user_context, kernel_requirement_failed, "%s does not hold: %s", condition, message);
}

POLYHEAD_ASSERTION(halide_error_specialize_fail, const char *message) {
    return report(user_context, kernel_not_specialized, "no case of the kernel serves the call: %s", message);
}

POLYHEAD_ASSERTION(halide_error_device_dirty_with_no_device_support, const char *tensor) {
    return report(user_context, kernel_only_on_device, "%s: newer on a device, expected on the host", tensor);
}

POLYHEAD_ASSERTION(halide_error_storage_bound_too_small, const char *func, const char *var, int provided, int needed) {
    return report(user_context, kernel_storage_too_small, "%s: %s has room for %d, expected %d", func, var, provided, needed);
}

POLYHEAD_ASSERTION(halide_error_split_factor_not_positive, const char *func, const char *loop, const char *, const char *,
                   const char *factor, int value) {
    return report(user_context, kernel_bad_split, "%s: the loop %s is split by %s, found %d, expected at least 1", func, loop, factor,
                  value);
}

POLYHEAD_ASSERTION(halide_error_vscale_invalid, const char *func, int found, int expected) {
    return report(user_context, kernel_bad_vector_scale, "%s: vectors of this machine have scale %d, expected %d", func, found, expected);
}

extern "C" int halide_error_out_of_memory(void *user_context) {
    return report(user_context, kernel_out_of_memory, "memory between two stages could not be allocated");
}
