// Where the bytes of an access stand: every address is looked up.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_ACCESS_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_ACCESS_H

#include "warp.h"

namespace polyhead::cuda_driver {

struct Access {
    uint64_t address[lanes];
    char *host[lanes]; // where the bytes of a lane stand; of a lane that is not active, in `nowhere`
    int bytes = 0;     // of all elements of one lane
    bool write = false;
    char nowhere[64] = {};
};

// "thread (3, 0, 0), lane 3, writes 4 bytes at 0x10".
std::string described(const Warp &warp, const Access &access, int lane);

// The addresses of all lanes: a base of 4 or 8 bytes and a displacement. No lane has a place of the host yet.
void find_addresses(const Warp &warp, const Operand &base, int64_t displacement, Access &access);

// Set access.host[lane], or fail with a sentence. `value` is what a store is going to write.
bool lookup_global(Warp &warp, const Instruction &instruction, Access &access, int lane, const void *value);
bool lookup_shared(Warp &warp, const Instruction &instruction, Access &access, int lane, uint64_t offset);
bool lookup_local(Warp &warp, const Instruction &instruction, Access &access, int lane, uint64_t offset);

bool misaligned(Warp &warp, const Instruction &instruction, const Access &access, int lane);
bool race_in_shared(Warp &warp, const Instruction &instruction, const Access &access, int lane, int other);

} // namespace polyhead::cuda_driver
#endif
