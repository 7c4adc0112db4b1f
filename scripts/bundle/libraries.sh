# shellcheck shell=bash disable=SC2154
# How each part of the bundle comes into the prefix. Libraries are static, so the program needs no prefix to run. Read by
# use.sh, which sets parts, prefix and jobs.

# Configures, builds and installs one source folder; what it says goes to a log of its own.
build_library() { # name, cmake options
  local name=$1 log=$deps/bundle-$1.log
  shift
  {
    cmake -G Ninja -S "$parts/$name" -B "$parts/$name/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
      -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF \
      -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON "$@" &&
      cmake --build "$parts/$name/build" -j "$jobs" && cmake --install "$parts/$name/build"
  } >"$log" 2>&1 || {
    say "$name did not build (log: $log): $(grep -i -m 1 -A 2 error "$log" | tr '\n' ' ')"
    return 1
  }
}

build_hdf5() {
  # Debian's copy lacks a Windows resource that CMake lists on every system and compiles on none but Windows.
  mkdir -p "$parts/zlib/win32"
  touch "$parts/zlib/win32/zlib1.rc"
  build_library zlib || return 1
  # The static one alone, or programs would need the prefix's libz.so to run.
  rm -f "$prefix"/lib/libz.so*
  # HDF5 1.10 reads what its probes wrote in the build folder; CMake from 3.25 on runs probes elsewhere unless told.
  sed -i 's/RUN_OUTPUT_VARIABLE OUTPUT_VAR/& WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/' "$parts/hdf5/config/cmake/ConfigureChecks.cmake"
  build_library hdf5 -DHDF5_BUILD_TOOLS=OFF -DHDF5_BUILD_UTILS=OFF -DHDF5_BUILD_EXAMPLES=OFF -DHDF5_BUILD_HL_LIB=OFF \
    -DHDF5_BUILD_DOC=OFF -DHDF5_ENABLE_PARALLEL=OFF -DHDF5_ENABLE_SZIP_SUPPORT=OFF -DHDF5_ENABLE_Z_LIB_SUPPORT=ON \
    -DZLIB_INCLUDE_DIR="$prefix/include" -DZLIB_LIBRARY="$prefix/lib/libz.a" -DONLY_SHARED_LIBS=OFF \
    -DHDF5_EXTERNALLY_CONFIGURED=OFF
}

build_spdlog() {
  build_library fmtlib -DFMT_DOC=OFF -DFMT_TEST=OFF &&
    build_library spdlog -DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF -DSPDLOG_BUILD_TESTS=OFF
}

build_cli11() { build_library cli11 -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_DOCS=OFF -DCLI11_BUILD_EXAMPLES=OFF; }
build_googletest() { build_library googletest; }
build_benchmark() { build_library benchmark -DBENCHMARK_ENABLE_TESTING=OFF -DBENCHMARK_ENABLE_WERROR=OFF -DBENCHMARK_INSTALL_DOCS=OFF; }

# They do not wait for one another: most of their time is configuring, which uses one core each.
build_libraries() {
  local name process processes=()
  mkdir -p "$prefix/bin" "$prefix/openmpi"
  cp -a "$parts/cmake/." "$prefix/"
  cp -a "$parts/ninja/." "$prefix/bin/"
  cp -a "$parts/openmpi/." "$prefix/openmpi/"
  chmod 755 "$prefix/bin/"* "$prefix/openmpi/bin/"*
  cp -a "$parts/libtomlplusplus-dev/." "$parts/nlohmann-json3-dev/." "$prefix/"
  PATH=$prefix/bin:$PATH
  hash -r
  for name in hdf5 spdlog cli11 googletest benchmark; do
    "build_$name" &
    processes+=("$! $name")
  done
  for process in "${processes[@]}"; do
    wait "${process% *}" || need "${process#* } of the bundle: what went wrong stands above"
  done
}
