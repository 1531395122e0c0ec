# Highway: SIMD with run-time dispatch. Debian 12: libhwy-dev 1.0.3. Used in kernels/simd only.
find_package(PkgConfig REQUIRED)
pkg_check_modules(highway REQUIRED IMPORTED_TARGET libhwy>=1.0)
add_library(cento_highway INTERFACE)
target_link_libraries(cento_highway INTERFACE PkgConfig::highway)
