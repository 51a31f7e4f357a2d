/* The coordinator's metrics, in the order of the page: what kind each is, its name in the source
 * (SIGNAL_...) and on the page, what it means, and its buckets, scale and label. A metric is added
 * by a row here. coordinator/signals/signals_list.h makes names of the rows, and
 * coordinator/signals/signals_table.c the table, so this file is included more than once. The rows
 * before the end of OF_VLLM have the meaning of vLLM's metric of the same name. */
SIGNAL(GAUGE, RUNNING, "num_requests_running",
       "Texts that are being made: sequences that have a place.")
SIGNAL(GAUGE, WAITING, "num_requests_waiting",
       "Requests, and texts that lost their place, that wait for one.")
SIGNAL(GAUGE, KV_USAGE, "kv_cache_usage_perc",
       "Share of the target's KV blocks that are in use, from 0 to 1.", .scale = METRIC_MILLIONTH)
SIGNAL(COUNTER, PREFIX_QUERIES, "prefix_cache_queries_total",
       "Prompt tokens that were looked for in the KV cache.")
SIGNAL(COUNTER, PREFIX_HITS, "prefix_cache_hits_total",
       "Prompt tokens that the target need not compute again.")
SIGNAL(COUNTER, PREEMPTIONS, "num_preemptions_total", "Times that a text lost its place to others.")
SIGNAL(COUNTER, PROMPT_TOKENS, "prompt_tokens_total",
       "Tokens of prompts that were read, cached ones included.")
SIGNAL(COUNTER, GENERATION_TOKENS, "generation_tokens_total", "Tokens that were committed.")
SIGNAL(COUNTER, SUCCESS, "request_success_total",
       "Requests that had a place and have ended, by reason.", BY("finished_reason", reasons))
SIGNAL(HISTOGRAM, FIRST_TOKEN_TIME, "time_to_first_token_seconds",
       "From a request's arrival to its first token.", TIMES(first_token_us))
SIGNAL(HISTOGRAM, INTER_TOKEN_TIME, "inter_token_latency_seconds",
       "Time for each further token of a text: that of a round over the tokens that "
       "it committed.",
       TIMES(token_us))
SIGNAL(HISTOGRAM, TOTAL_TIME, "e2e_request_latency_seconds",
       "From a request's arrival to the end of its answer.", TIMES(request_us))
SIGNAL(HISTOGRAM, QUEUE_TIME, "request_queue_time_seconds",
       "From a request's arrival to its place.", TIMES(request_us))
SIGNAL(HISTOGRAM, PREFILL_TIME, "request_prefill_time_seconds",
       "From a request's place to its first token.", TIMES(request_us))
SIGNAL(HISTOGRAM, DECODE_TIME, "request_decode_time_seconds",
       "From a request's first token to the end of its answer.", TIMES(request_us))
SIGNAL(HISTOGRAM, REQUEST_PROMPT, "request_prompt_tokens", "Tokens of a request's prompt.",
       SIZES(sizes))
SIGNAL(HISTOGRAM, REQUEST_GENERATION, "request_generation_tokens",
       "Tokens of a request's answer, all of its texts.", SIZES(sizes))
SIGNAL(COUNTER, DRAFTS, "spec_decode_num_drafts_total",
       "Times that guesses of a text were checked.")
SIGNAL(COUNTER, DRAFT_TOKENS, "spec_decode_num_draft_tokens_total", "Guesses that were checked.")
SIGNAL(COUNTER, ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total", "Guesses that stayed.")
SIGNAL(COUNTER, ACCEPTED_AT, "spec_decode_num_accepted_tokens_per_pos_total",
       "Guesses that stayed, by position in their round.", BY_POSITION)

SIGNALS_END(OF_VLLM)

SIGNAL(COUNTER, TESTED_AT, "spec_decode_num_tested_tokens_per_pos_total",
       "Guesses whose predecessors stayed, by position: accepted over tested is alpha.",
       BY_POSITION)
SIGNAL(GAUGE, ALPHA, "planner_acceptance_ratio",
       "The planner's estimate of alpha, by position; 0 where it knows nothing.",
       .scale = METRIC_MILLIONTH, BY_POSITION)
SIGNAL(COUNTER, DRAFTER_TOKENS, "drafter_tokens_total",
       "Guesses that were checked, by who made them: the draft model, or a name of --lookup.",
       BY("drafter", drafters))
SIGNAL(COUNTER, DRAFTER_ACCEPTED, "drafter_accepted_tokens_total",
       "Guesses that stayed, by who made them.", BY("drafter", drafters))
SIGNAL(COUNTER, SIBLING_TOKENS, "sibling_tokens_total",
       "Siblings that were checked, and other guesses for a place besides the one that "
       "drafter_tokens_total counts, by who made them.",
       BY("drafter", drafters))
SIGNAL(COUNTER, SIBLING_ACCEPTED, "sibling_accepted_tokens_total",
       "Of those, the guesses that stayed, by who made them.", BY("drafter", drafters))
SIGNAL(HISTOGRAM, DRAFT_LENGTH, "draft_length_tokens",
       "K: guesses of a text in a round, 0 included.", SIZES(draft_lengths))
SIGNAL(HISTOGRAM, ROUND_TIME, "round_seconds", "Time of a round, from its plan to its commit.",
       TIMES(round_us))
SIGNAL(HISTOGRAM, ROUND_PART_TIME, "round_part_seconds",
       "Time of a round's parts. verify is the slowest rank's computing, wire what "
       "the step takes beyond its ranks.",
       TIMES(round_us), BY("part", part_names))
SIGNAL(COUNTER, PREDICTED_TIME, "planner_predicted_seconds_total",
       "Time that the planner expected of the rounds that it planned, by whether they had "
       "guesses.",
       .scale = METRIC_US, BY("guesses", has_guesses))
SIGNAL(COUNTER, PLANNED_TIME, "planner_planned_seconds_total",
       "Time that these rounds took. planner_predicted_seconds_total over it is far from 1 "
       "where the planner chooses by wrong prices.",
       .scale = METRIC_US, BY("guesses", has_guesses))
SIGNAL(HISTOGRAM, STEP_TOKENS, "step_tokens",
       "Tokens that a step feeds: prompts, last tokens, guesses.", SIZES(step_sizes))
SIGNAL(HISTOGRAM, STEP_ROWS, "step_rows", "Rows of logits that a step asks for.", SIZES(step_sizes))
SIGNAL(HISTOGRAM, STEP_LANES, "step_lanes", "Batch size: texts that share a step.",
       SIZES(step_sizes))
SIGNAL(COUNTER, STEP_BYTES, "step_bytes_total", "Bytes of steps to and from all ranks.",
       BY("direction", directions))
SIGNAL(COUNTER, FEATURE_BYTES, "feature_bytes_total",
       "Bytes of the target's features that came with steps, of step_bytes_total.")
SIGNAL(COUNTER, FEATURE_TIME, "feature_seconds_total",
       "Time in which rank 0 has read them, a part of its computing.", .scale = METRIC_US)
SIGNAL(COUNTER, DRAFT_PREFIX_HITS, "draft_prefix_cache_hits_total",
       "Prompt tokens that the draft need not compute again.")
SIGNAL(COUNTER, ENDS, "job_ends_total", "Requests that have ended, refused ones included, by end.",
       BY("end", job_end_names))
SIGNAL(GAUGE, TARGET_UP, "target_up",
       "1 while a request would be served, 0 while there is no group.")
SIGNAL(COUNTER, TARGET_CONNECTS, "target_connects_total",
       "Times that a group was connected; more than one means that one was lost.")
SIGNAL(GAUGE, PLACES, "places", "Texts that can be made at a time with this group.")
SIGNAL(GAUGE, WAITING_AGAIN, "sequences_waiting_again",
       "Texts that wait for a place and whose request has had one.")
SIGNAL(GAUGE, KV_BLOCKS, "kv_blocks",
       "The target's KV blocks. Cached ones can be taken and keep a prefix until then.",
       BY("state", block_states))
SIGNAL(GAUGE, DRAFT_KV_BLOCKS, "draft_kv_blocks", "The draft's KV blocks.",
       BY("state", block_states))
SIGNAL(GAUGE, QUEUE_CAPACITY, "queue_capacity", "Requests that may wait, as --queue says.")
SIGNAL(GAUGE, QUEUE_BYTES, "queue_bytes", "Memory that requests occupy while they wait or run.")
SIGNAL(GAUGE, QUEUE_BYTES_LIMIT, "queue_bytes_limit",
       "What they may occupy, as --queue-bytes says.")
SIGNAL(GAUGE, STORED_JOBS, "stored_jobs", "Submitted jobs that are kept, ended or not.")
SIGNAL(GAUGE, STORED_BYTES, "stored_jobs_bytes", "Memory that they and their answers occupy.")
SIGNAL(COUNTER, LOST_LINES, "log_lines_lost_total",
       "Lines about jobs that were left out because nobody reads the log fast enough.")
SIGNAL(COUNTER, UNAUTHENTICATED, "unauthenticated_requests_total",
       "Requests that were refused because they had no API key, or one that is not known.")
