# Where everything lies in a wheel: the folder of the package is a prefix, too, with libraries, headers, generator and CMake package for C++.
# Halide is not inside: the generator finds that of Halide's own wheel beside the package.
set(CMAKE_INSTALL_BINDIR polyhead/bin)
set(CMAKE_INSTALL_LIBDIR polyhead/lib)
set(CMAKE_INSTALL_INCLUDEDIR polyhead/include)
set(POLYHEAD_WHEEL_HALIDE_RPATH "$ORIGIN/../../halide/lib64")
set(POLYHEAD_INSTALL_HALIDE OFF)

# The C++ library of the build is newer than a system's may be, so it is inside. What it calls of a newer C library is, too.
function(polyhead_for_older_systems target)
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/python/src/older_systems.c")
    target_link_options(
        ${target}
        PRIVATE -static-libstdc++ LINKER:--wrap=_dl_find_object,--wrap=arc4random
    )
endfunction()
