// What a kernel's result says. The functions that its assertions call are in assertions.cpp, too.
#ifndef POLYHEAD_RUNTIME_ASSERTIONS_H
#define POLYHEAD_RUNTIME_ASSERTIONS_H

#include <polyhead/c_api.h>

namespace polyhead::runtime {

// The code of the status for a call whose kernel returned this.
polyhead_code code_of_result(int result) noexcept;

} // namespace polyhead::runtime
#endif
