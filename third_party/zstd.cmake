# zstd: compression of KV frames. Debian 12: libzstd-dev 1.5.4. Header stops in kv/zstd_part.cc.
find_package(PkgConfig REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd>=1.5)
add_library(cento_zstd INTERFACE)
target_link_libraries(cento_zstd INTERFACE PkgConfig::zstd)
