# The CUDA backend: .cu files of model/, compiled for sm_80 and sm_90 with PTX for what comes later. The
# runtime is linked statically, so that one program runs on machines with and without a GPU.
set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
enable_language(CUDA)
file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS model/backend_cuda*.cu)
list(FILTER CUDA_SOURCES EXCLUDE REGEX "_ceilings\\.cu$") # of bench_ceilings
target_sources(outrider_model PRIVATE ${CUDA_SOURCES})
set_target_properties(outrider_model PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}"
  CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON)
target_compile_definitions(outrider_model PRIVATE OUTRIDER_CUDA=1)
# No fused steps but those that are written: the order of every sum is part of the promise.
set_source_files_properties(${CUDA_SOURCES} PROPERTIES COMPILE_OPTIONS
  "--fmad=false;-Werror;all-warnings;-Xcompiler=-Wall,-Wextra")
