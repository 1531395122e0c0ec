# A cross build for arm64: cmake -DCMAKE_TOOLCHAIN_FILE=third_party/arm64.cmake -DCENTO_ARM64_ROOT=FOLDER, where
# arm64-root.sh has filled FOLDER. The compiler and its C library are those of `install-deps.sh --arm`; tests run under
# its emulator, as a processor that has everything the emulator knows.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(CENTO_ARM64_ROOT "" CACHE PATH "Folder filled by arm64-root.sh")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CENTO_ARM64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${CENTO_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${CENTO_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CENTO_ARM64_ROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CENTO_ARM64_ROOT})
# -Wno-psabi: not told that GCC 10 changed how some structures are passed.
set(CMAKE_CXX_FLAGS_INIT "-isystem ${CENTO_ARM64_ROOT}/usr/include -Wno-psabi")

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu)
