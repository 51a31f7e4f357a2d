FORWARD_TESTS = ["test_forward", "test_forward_tree", "test_forward_window", "test_golden",
                 "test_head_subset", "test_heads", "test_place_heads", "test_block_heads",
                 "test_projection", "test_look_ahead_rows", "test_gguf_model",
                 "test_forward_stored"]
