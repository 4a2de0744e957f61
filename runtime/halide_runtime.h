// Halide's runtime as this library has it: in ELF objects its names begin with polyhead_halide_ (tools/elf_symbols.h), so that they do not
// meet those of another Halide in the program. Code of this library that defines or calls one of them includes this file.
#ifndef POLYHEAD_RUNTIME_HALIDE_RUNTIME_H
#define POLYHEAD_RUNTIME_HALIDE_RUNTIME_H

#include <HalideRuntime.h>

#ifdef __ELF__
#define POLYHEAD_OWN_HALIDE(name) decltype(name) name __asm__("polyhead_" #name)
#else
#define POLYHEAD_OWN_HALIDE(name) decltype(name) name
#endif

extern "C" {
POLYHEAD_OWN_HALIDE(halide_copy_to_device);
POLYHEAD_OWN_HALIDE(halide_copy_to_host);
POLYHEAD_OWN_HALIDE(halide_device_free);
POLYHEAD_OWN_HALIDE(halide_device_malloc);
POLYHEAD_OWN_HALIDE(halide_device_sync_global);
POLYHEAD_OWN_HALIDE(halide_do_par_for);
POLYHEAD_OWN_HALIDE(halide_error);
POLYHEAD_OWN_HALIDE(halide_error_out_of_memory);
POLYHEAD_OWN_HALIDE(halide_free);
POLYHEAD_OWN_HALIDE(halide_get_num_threads);
POLYHEAD_OWN_HALIDE(halide_malloc);
POLYHEAD_OWN_HALIDE(halide_set_custom_print);
POLYHEAD_OWN_HALIDE(halide_set_num_threads);
POLYHEAD_OWN_HALIDE(halide_shutdown_thread_pool);
}

#endif
