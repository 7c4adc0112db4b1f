# shardmark_library(name [TORCH] [DEPS ...] [LIBS ...]): the library of one folder of src.
# DEPS are folders of ours, exactly the ones the border test allows; LIBS are third-party targets.

add_library(sm_flags INTERFACE)
target_compile_options(sm_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Woverloaded-virtual -Wsuggest-override>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SM_WERROR}>>:-Werror>)
# GCC 12 warns falsely about texts put together by operator+ (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(sm_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-stringop-overflow>)
endif()
target_include_directories(sm_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_definitions(sm_flags INTERFACE $<$<BOOL:${SM_FAULTS}>:SM_FAULTS=1> $<$<BOOL:${SM_WITH_CUDA}>:SM_WITH_CUDA=1>
  $<$<CONFIG:Debug>:SM_DEBUG_CHECKS=1>)
target_link_libraries(sm_flags INTERFACE Threads::Threads)
if(SM_SANITIZE)
  target_compile_options(sm_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SM_SANITIZE} -fno-omit-frame-pointer -Wno-maybe-uninitialized>)
  target_link_options(sm_flags INTERFACE -fsanitize=${SM_SANITIZE})
endif()

# One precompiled header for every target that sees LibTorch: it costs about 14 s a file otherwise.
if(SM_TRAIN)
  # Written only when it changes, or each configuration would compile it anew.
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_pch.cpp CONTENT "// carries the precompiled LibTorch header\n")
  add_library(sm_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
  target_link_libraries(sm_torch_pch PUBLIC sm_flags sm_torch)
  target_precompile_headers(sm_torch_pch PRIVATE <torch/torch.h>)
endif()

function(shardmark_use_torch target)
  target_link_libraries(${target} PUBLIC sm_torch)
  target_precompile_headers(${target} REUSE_FROM sm_torch_pch)
endfunction()

function(shardmark_library name)
  cmake_parse_arguments(ARG "TORCH" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  # nccl_*.cpp and cuda_*.cpp stand on CUDA's headers.
  if(NOT SM_WITH_CUDA)
    list(FILTER sources EXCLUDE REGEX "/(nccl|cuda)_[a-z0-9_]*\\.cpp$")
  endif()
  if(SM_WITH_CUDA)
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  endif()
  add_library(shardmark_${name} STATIC ${sources} ${cuda_sources})
  target_link_libraries(shardmark_${name} PUBLIC sm_flags ${ARG_LIBS})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(shardmark_${name} PUBLIC shardmark_${dep})
  endforeach()
  if(ARG_TORCH)
    shardmark_use_torch(shardmark_${name})
  endif()
  # Compiles each header alone: `cmake --build build --target all_verify_interface_header_sets`.
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.hpp)
  if(NOT SM_WITH_CUDA)
    list(FILTER headers EXCLUDE REGEX "/(nccl|cuda)_[a-z0-9_]*\\.hpp$")
  endif()
  if(headers AND NOT CMAKE_VERSION VERSION_LESS 3.24)
    target_sources(shardmark_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/src FILES ${headers})
    set_target_properties(shardmark_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
endfunction()
