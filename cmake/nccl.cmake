# Collectives among GPUs. Building needs only the header: libnccl is loaded at run time, so the same
# programs run on machines without it. Without the header the programs have no NCCL.
find_path(NCCL_INCLUDE nccl.h PATHS /usr/local/cuda/include)
find_path(CUDA_RUNTIME_INCLUDE cuda_runtime.h PATHS /usr/local/cuda/include)
if(NCCL_INCLUDE AND CUDA_RUNTIME_INCLUDE)
  outrider_room(comm_nccl SOURCES comm/comm_nccl.c HEADERS comm/comm_nccl.h
    LINK outrider_comm ${CMAKE_DL_LIBS})
  target_include_directories(outrider_comm_nccl SYSTEM
    PRIVATE ${NCCL_INCLUDE} ${CUDA_RUNTIME_INCLUDE})
else()
  message(STATUS "nccl.h or cuda_runtime.h is not found: workers will have no NCCL")
  outrider_room(comm_no_nccl SOURCES comm/comm_nccl_none.c HEADERS comm/comm_nccl.h
    LINK outrider_comm)
endif()
