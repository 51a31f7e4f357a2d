# The rooms of model/, from the lowest up.
if(OUTRIDER_CUDA) # sm_80, sm_90a for wgmma, PTX for what comes later; before targets that link it
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
  enable_language(CUDA)
endif()

outrider_room(numerics FOLDERS model/numerics LINK outrider_base)
outrider_room(gguf FOLDERS model/gguf LINK outrider_numerics)
outrider_room(jinja FOLDERS model/jinja LINK outrider_base PkgConfig::JANSSON ${UTF8PROC_LIB})
outrider_room(tokenizer_gguf FOLDERS model/tokenizer/gguf LINK outrider_gguf PkgConfig::JANSSON)
outrider_room(tokenizer FOLDERS model/tokenizer
  LINK outrider_base PkgConfig::JANSSON PkgConfig::PCRE2 PkgConfig::XXHASH ${UTF8PROC_LIB}
  HIDDEN outrider_jinja outrider_tokenizer_gguf)
outrider_room(config FOLDERS model/checkpoint/config LINK outrider_numerics PkgConfig::JANSSON)
outrider_room(checkpoint_gguf FOLDERS model/checkpoint/gguf
  LINK outrider_gguf PkgConfig::JANSSON HIDDEN outrider_tokenizer_gguf)
outrider_room(checkpoint FOLDERS model/checkpoint
  LINK outrider_config outrider_checkpoint_gguf PkgConfig::XXHASH)
outrider_room(logits FOLDERS model/logits LINK outrider_numerics)
outrider_room(export FOLDERS model/export LINK outrider_checkpoint outrider_tokenizer)

# The backends, which fill the table of operations, are above the table; open.c, which chooses,
# above both. The rooms above open.c link the backends through it and see only the table.
outrider_room(backend FOLDERS model/backend EXCLUDE "(open|options)\\.c$"
  LINK outrider_comm outrider_checkpoint outrider_logits PkgConfig::XXHASH)
outrider_room(kernels FOLDERS model/backend/cpu/kernels model/backend/cpu/kernels/quant
  LINK outrider_numerics)
outrider_room(backend_cpu FOLDERS model/backend/cpu LINK outrider_backend
  HIDDEN outrider_kernels)
outrider_room(backend_cuda
  FOLDERS model/backend/cuda model/backend/cuda/attention model/backend/cuda/matmul
  LINK outrider_backend)
outrider_room(backend_open SOURCES model/backend/open.c model/backend/options.c
  LINK outrider_backend HIDDEN outrider_backend_cpu outrider_backend_cuda)
outrider_room(model FOLDERS model LINK outrider_backend_open)

include(cmake/kernels.cmake)
if(OUTRIDER_CUDA)
  include(cmake/cuda.cmake)
endif()
