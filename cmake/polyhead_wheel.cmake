# Where everything lies in a wheel: the folder of the package is a prefix, too, with libraries, headers, generator and CMake package for C++.
# Halide is not inside: the generator finds that of Halide's own wheel beside the package.
set(CMAKE_INSTALL_BINDIR polyhead/bin)
set(CMAKE_INSTALL_LIBDIR polyhead/lib)
set(CMAKE_INSTALL_INCLUDEDIR polyhead/include)
set(POLYHEAD_WHEEL_HALIDE_RPATH "$ORIGIN/../../halide/lib64")
set(POLYHEAD_INSTALL_HALIDE OFF)
