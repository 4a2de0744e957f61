// Structs of other versions of the headers.
#include "served.h"

#include <algorithm>

#include "../status.h"

namespace polyhead::runtime {

bool check_served(const void *given, uint32_t size, size_t lowest, size_t own, const ServedName &name, polyhead_status *status) noexcept {
    if (size < lowest || size > most_bytes) {
        return refuse(status, POLYHEAD_UNSUPPORTED, "%s: %s of %u bytes, expected %zu: %s polyhead %s", name.subject, name.type, size, own,
                      name.advice, polyhead_version());
    }
    const auto *const bytes = static_cast<const unsigned char *>(given);
    return size <= own || std::all_of(bytes + own, bytes + size, [](unsigned char byte) { return byte == 0; }) ||
           refuse(status, POLYHEAD_UNSUPPORTED,
                  "%s: %s of %u bytes has fields that polyhead %s does not know, expected 0 in them: link a later one", name.subject,
                  name.type, size, polyhead_version());
}

} // namespace polyhead::runtime
