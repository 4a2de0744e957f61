# find_package(mean): the library, and what it needs.
include(CMakeFindDependencyMacro)
find_dependency(polyhead)
include("${CMAKE_CURRENT_LIST_DIR}/meanTargets.cmake")
