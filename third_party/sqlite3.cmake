# SQLite with FTS5: the catalogue and the text index. Debian 12: libsqlite3-dev 3.40. Header stops in kv/sqlite.cc.
find_package(PkgConfig REQUIRED)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3>=3.40)
add_library(cento_sqlite3 INTERFACE)
target_link_libraries(cento_sqlite3 INTERFACE PkgConfig::sqlite3)
