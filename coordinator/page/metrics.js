// The page of metrics (Prometheus' text format), and what two of them, a second apart, say about
// that second.

const LINE = /^outrider_([a-z0-9_]+)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;
// Parts of a round as the server names them, and as the page does.
const PART_OF = {
  plan: "rest", draft: "draft", wire: "wire", verify: "verify", collective: "collective",
  accept: "rest",
};

// Name -> [{labels, value}]; buckets are left out, because nothing here looks at them.
export function parseMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = LINE.exec(line);
    if (!match || match[1].endsWith("_bucket")) continue;
    const labels = Object.fromEntries(
      [...(match[2] ?? "").matchAll(LABEL)].map((pair) => [pair[1], pair[2]]));
    if (!found.has(match[1])) found.set(match[1], []);
    found.get(match[1]).push({labels, value: Number(match[3])});
  }
  return found;
}

export function valueOf(metrics, name) {
  return metrics.get(name)?.[0].value;
}

function byLabel(metrics, name, label) {
  return Object.fromEntries((metrics.get(name) ?? []).map((one) => [one.labels[label], one.value]));
}

// By position, from the first guess on.
function differences(now, before, name) {
  const a = byLabel(now, name, "position"), b = byLabel(before, name, "position");
  const n = Object.keys(a).length;
  return Array.from({length: n}, (_, i) => a[i] - (b[i] ?? 0));
}

// The mean of what a histogram has got since; undefined = nothing.
function meanSince(now, before, name) {
  const n = valueOf(now, `${name}_count`) - valueOf(before, `${name}_count`);
  return n > 0 ? (valueOf(now, `${name}_sum`) - valueOf(before, `${name}_sum`)) / n : undefined;
}

function milliseconds(seconds) {
  return seconds === undefined ? undefined : 1000 * seconds;
}

// Over all labels; 0 where a server does not know the metric.
function sumSince(now, before, name) {
  return sumOf(now, name) - sumOf(before, name);
}

// Mean time of each part of a round since, in us.
function partsSince(now, before) {
  const n = valueOf(now, "round_seconds_count") - valueOf(before, "round_seconds_count");
  if (!(n > 0)) return undefined;
  const a = byLabel(now, "round_part_seconds_sum", "part");
  const b = byLabel(before, "round_part_seconds_sum", "part");
  const parts = {};
  for (const [part, own] of Object.entries(PART_OF)) {
    parts[own] = (parts[own] ?? 0) + 1e6 * ((a[part] ?? 0) - (b[part] ?? 0)) / n;
  }
  return parts;
}

// Each target group: {name, isUp, running, waiting, places, isMeasured}.
export function groupsOf(metrics) {
  const of = (name) => byLabel(metrics, `group_${name}`, "group");
  const up = of("up"), running = of("requests_running"), waiting = of("requests_waiting");
  const places = of("places"), measured = of("measured");
  return Object.keys(up).map((name) => ({
    name, isUp: up[name] > 0, running: running[name], waiting: waiting[name],
    places: places[name], isMeasured: measured[name] > 0,
  }));
}

function sumOf(metrics, name) {
  return (metrics.get(name) ?? []).reduce((all, one) => all + one.value, 0);
}

// Counts since the coordinator has started.
export function totalsOf(metrics) {
  return {
    requests: sumOf(metrics, "request_success_total"),
    tokens: valueOf(metrics, "generation_tokens_total"),
    prompt: valueOf(metrics, "prompt_tokens_total"),
    reused: valueOf(metrics, "prefix_cache_hits_total"),
    guesses: valueOf(metrics, "spec_decode_num_draft_tokens_total"),
    accepted: valueOf(metrics, "spec_decode_num_accepted_tokens_total"),
  };
}

function isRestart(now, before) {
  return valueOf(now, "generation_tokens_total") < valueOf(before, "generation_tokens_total");
}

// What happened between two pages. Gauges are those of the later one.
export function sampleOf(now, before, seconds) {
  const gauges = {
    running: valueOf(now, "num_requests_running"), waiting: valueOf(now, "num_requests_waiting"),
    kv: valueOf(now, "kv_cache_usage_perc"),
  };
  if (!before || isRestart(now, before)) return {...gauges, tested: [], accepted: []};
  const tokens = valueOf(now, "generation_tokens_total") -
    valueOf(before, "generation_tokens_total");
  return {
    ...gauges, rate: tokens / seconds, k: meanSince(now, before, "draft_length_tokens"),
    first: milliseconds(meanSince(now, before, "time_to_first_token_seconds")),
    queue: milliseconds(meanSince(now, before, "request_queue_time_seconds")),
    lanes: meanSince(now, before, "step_lanes"), parts: partsSince(now, before),
    tested: differences(now, before, "spec_decode_num_tested_tokens_per_pos_total"),
    accepted: differences(now, before, "spec_decode_num_accepted_tokens_per_pos_total"),
    siblings: sumSince(now, before, "sibling_tokens_total"),
    siblings_accepted: sumSince(now, before, "sibling_accepted_tokens_total"),
  };
}
