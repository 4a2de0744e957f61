// The names of the contract, as the runtime uses them: without their namespace.
#ifndef POLYHEAD_RUNTIME_CONTRACT_H
#define POLYHEAD_RUNTIME_CONTRACT_H

#include "../contract/apis.h"
#include "../contract/dtypes.h"
#include "../contract/operations.h"
#include "../contract/problem.h"

namespace polyhead::runtime {

using namespace contract;

} // namespace polyhead::runtime
#endif
