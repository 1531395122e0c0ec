# OpenSSL: TLS to a remote tier. Debian 12: libssl-dev 3.0. Headers stop in kv/tls_stream.cc.
find_package(PkgConfig REQUIRED)
pkg_check_modules(openssl REQUIRED IMPORTED_TARGET openssl>=3.0)
add_library(cento_openssl INTERFACE)
target_link_libraries(cento_openssl INTERFACE PkgConfig::openssl)
