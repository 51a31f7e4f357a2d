# The CUDA backend: model/backend/cuda, compiled for the devices of cmake/model.cmake. The
# runtime is linked statically, so that the programs run on machines with and without a GPU.
file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS
  model/backend/cuda/*.cu model/backend/cuda/attention/*.cu model/backend/cuda/matmul/*.cu)
target_sources(outrider_backend_cuda PRIVATE ${CUDA_SOURCES})
set_target_properties(outrider_backend_cuda PROPERTIES
  CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}" CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON)
target_compile_definitions(outrider_backend_open PRIVATE OUTRIDER_CUDA=1)
# The compiler must not fuse a product and a sum, because the order of operations is part of the
# promise.
set_source_files_properties(${CUDA_SOURCES} PROPERTIES COMPILE_OPTIONS
  "--fmad=false;-Werror;all-warnings;-Xcompiler=-Wall,-Wextra")
