/* Functions of newer C libraries that the compiler's static libraries call, for wheels: they run on systems without these functions. The
 * linker leads the calls here (--wrap). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE

struct search {
    uintptr_t address;
    struct dl_find_object *found;
};

static int look_into(struct dl_phdr_info *object, size_t size, void *argument) {
    struct search *const search = argument;
    (void)size;
    int inside = 0;
    void *frames = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *const segment = &object->dlpi_phdr[i];
        const uintptr_t begin = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && search->address - begin < segment->p_memsz) {
            inside = 1;
            search->found->dlfo_map_start = (void *)begin;
            search->found->dlfo_map_end = (void *)(begin + segment->p_memsz);
        } else if (segment->p_type == PT_GNU_EH_FRAME) {
            frames = (void *)begin;
        }
    }
    search->found->dlfo_eh_frame = frames;
    return inside && frames;
}

int __wrap__dl_find_object(void *address, struct dl_find_object *found);
int __wrap__dl_find_object(void *address, struct dl_find_object *found) {
    struct search search = {(uintptr_t)address, found};
    found->dlfo_flags = 0;
    found->dlfo_link_map = NULL;
    return dl_iterate_phdr(look_into, &search) ? 0 : -1;
}

#endif

uint32_t __wrap_arc4random(void);
uint32_t __wrap_arc4random(void) {
    uint32_t bits;
    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
        abort();
    }
    return bits;
}
