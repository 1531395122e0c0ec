# libsodium: BLAKE2b content hashes, the store's encryption. Debian 12: libsodium-dev 1.0.18. Header stops in base/hash.cc and kv/cipher.cc.
find_package(PkgConfig REQUIRED)
pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium>=1.0.18)
add_library(cento_sodium INTERFACE)
target_link_libraries(cento_sodium INTERFACE PkgConfig::sodium)
