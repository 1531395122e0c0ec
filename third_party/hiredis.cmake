# hiredis: the Redis protocol of the remote tier, its reader and its formatting of commands; the sockets are ours, for
# deadlines and TLS. Debian 12: libhiredis-dev 0.14.1, which has no TLS. Header stops in kv/redis_line.cc.
find_package(PkgConfig REQUIRED)
pkg_check_modules(hiredis REQUIRED IMPORTED_TARGET hiredis>=0.14)
add_library(cento_hiredis INTERFACE)
target_link_libraries(cento_hiredis INTERFACE PkgConfig::hiredis)
