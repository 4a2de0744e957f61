// Tensors of PyTorch on a device by their attributes: a tenth of the time of DLPack, which PyTorch hands out by a function in Python.
#pragma once

#include <nanobind/nanobind.h>

#include "arrays.h"

namespace polyhead::python {

// False where it is no such tensor on this device, or one that must be read in another way; no error of Python stays. The caller keeps the
// object while it uses the memory.
bool read_torch(nb::handle object, const OpenDevice &device, polyhead_tensor *tensor, Element *element);

} // namespace polyhead::python
