# shardmark_add_test and shardmark_add_script_test: the one place that says how tests are built, launched and limited.
# Launcher flags live in scripts/launch.sh; this file passes the MPI that was configured.

# The Python of the scripts and their tests: SHARDMARK_PYTHON, or the environment that scripts/setup.sh made.
set(SM_PYTHON "$ENV{SHARDMARK_PYTHON}")
if(NOT SM_PYTHON)
  set(sm_deps "$ENV{SHARDMARK_DEPS}")
  if(NOT sm_deps)
    set(sm_deps ${CMAKE_SOURCE_DIR}/.deps)
  endif()
  set(SM_PYTHON ${sm_deps}/venv/bin/python)
endif()
if(NOT EXISTS "${SM_PYTHON}")
  message(FATAL_ERROR "no Python for the tests at ${SM_PYTHON}: run scripts/setup.sh, set SHARDMARK_PYTHON to one that has "
                      "h5py, numpy, pandas and pytest, or build without tests by -DSM_TESTS=OFF")
endif()

# What every test sees. Root may start ranks, one thread a rank; so ranks do not fight for cores.
set(SM_TEST_ENVIRONMENT
  SHARDMARK_BINARY=${CMAKE_BINARY_DIR}/shardmark
  SHARDMARK_SOURCE=${CMAKE_SOURCE_DIR}
  SHARDMARK_BUILD=${CMAKE_BINARY_DIR}
  SHARDMARK_LAUNCH=${CMAKE_SOURCE_DIR}/scripts/launch.sh
  SHARDMARK_PYTHON=${SM_PYTHON}
  OMP_NUM_THREADS=1
  PYTHONDONTWRITEBYTECODE=1)
if(MPIEXEC_EXECUTABLE)
  list(APPEND SM_TEST_ENVIRONMENT SHARDMARK_MPIEXEC=${MPIEXEC_EXECUTABLE})
endif()
set(sm_suppressions ${CMAKE_SOURCE_DIR}/tests/support)
if(SM_SANITIZE MATCHES "address")
  list(APPEND SM_TEST_ENVIRONMENT
    LSAN_OPTIONS=suppressions=${sm_suppressions}/leaks.supp:print_suppressions=0
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1)
elseif(SM_SANITIZE MATCHES "thread")
  list(APPEND SM_TEST_ENVIRONMENT TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)
endif()
# Open MPI keeps memory until the process ends and Python is not instrumented: no leak check there.
set(SM_TEST_ENVIRONMENT_NO_LEAKS ${SM_TEST_ENVIRONMENT})
if(SM_SANITIZE MATCHES "address")
  list(APPEND SM_TEST_ENVIRONMENT_NO_LEAKS ASAN_OPTIONS=detect_leaks=0:abort_on_error=0)
endif()

# shardmark_add_test(name SOURCES ... [DEPS libraries] [RANKS 1 2 3 4] LABEL label [TIMEOUT s] [ARGS ...]
#                    [ENVIRONMENT NAME=value ...] [TORCH])
# Builds one GoogleTest program and registers it: once without RANKS (gtest's main), else once per rank count as
# name.npN under the launcher (the program brings its own main). No test is registered if SOURCES is empty.
function(shardmark_add_test name)
  cmake_parse_arguments(ARG "TORCH" "LABEL;TIMEOUT" "SOURCES;DEPS;RANKS;ARGS;ENVIRONMENT" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_LABEL)
    message(FATAL_ERROR "shardmark_add_test(${name}): LABEL is missing, or unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_SOURCES)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sm_flags ${ARG_DEPS} GTest::gtest GTest::gmock)
  target_compile_definitions(${name} PRIVATE SM_TEST_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(ARG_TORCH)
    shardmark_use_torch(${name})
  endif()

  if(NOT ARG_RANKS)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
    set(environment ${SM_TEST_ENVIRONMENT} ${ARG_ENVIRONMENT})
    if(ARG_TORCH)
      set(environment ${SM_TEST_ENVIRONMENT_NO_LEAKS} ${ARG_ENVIRONMENT})
    endif()
    set_tests_properties(${name} PROPERTIES PROCESSORS 1 TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABEL}"
                         ENVIRONMENT "${environment}")
    return()
  endif()

  foreach(num_ranks IN LISTS ARG_RANKS)
    set(test ${name}.np${num_ranks})
    add_test(NAME ${test} COMMAND ${CMAKE_SOURCE_DIR}/scripts/launch.sh ${num_ranks} $<TARGET_FILE:${name}> ${ARG_ARGS})
    set_tests_properties(${test} PROPERTIES PROCESSORS ${num_ranks} TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABEL}"
                         ENVIRONMENT "${SM_TEST_ENVIRONMENT_NO_LEAKS};${ARG_ENVIRONMENT}")
  endforeach()
endfunction()

# shardmark_add_script_test(name COMMAND ... LABEL label [label ...] [TIMEOUT s] [PROCESSORS n] [LOCK name]
#                           [ENVIRONMENT NAME=value ...])
# Registers a script (Python, bash, a build target) as one test.
function(shardmark_add_script_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PROCESSORS;LOCK" "COMMAND;LABEL;ENVIRONMENT" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_LABEL OR NOT ARG_COMMAND)
    message(FATAL_ERROR "shardmark_add_script_test(${name}): COMMAND or LABEL is missing, or unknown arguments: "
                        "${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES PROCESSORS ${ARG_PROCESSORS} TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABEL}"
                       RESOURCE_LOCK "${ARG_LOCK}" ENVIRONMENT "${SM_TEST_ENVIRONMENT_NO_LEAKS};${ARG_ENVIRONMENT}")
endfunction()
