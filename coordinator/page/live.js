// Live figures: the server's metrics once a second, as long as the page is looked at.
import {PARTS} from "./answer.js";
import {ApiError, getText} from "./api.js";
import {barChart, edgeOf, lineChart, plot, stackChart} from "./chart.js";
import {byId, count, make, milliseconds, number, percent, plural} from "./dom.js";
import {groupsOf, parseMetrics, sampleOf, totalsOf, valueOf} from "./metrics.js";
import {wordsOfParts} from "./rounds.js";

const N_SAMPLES = 120;
const EVERY_MS = 1000;
const AGAIN_MS = 5000; // when the server does not answer

// ---- cards ----

function lastOf(values) {
  return values.findLast((value) => value !== undefined);
}

function mostOf(values, least) {
  return values.reduce((most, value) => Math.max(most, value ?? 0), least);
}

function totalOf(values) {
  return values.reduce((total, value) => total + (value ?? 0), 0);
}

function column(samples, name) {
  return samples.map((sample) => sample[name]);
}

function legendOf(items) {
  return make("ul", {class: "legend"}, ...items.map(([kind, name, value]) =>
    make("li", {}, make("span", {class: `swatch ${kind}`}), `${name} `, make("b", {}, value))));
}

function card(title, value, ...children) {
  return make("section", {class: "card figure"},
    make("h2", {}, title), make("p", {class: "now"}, value), ...children);
}

function small(text) {
  return make("p", {class: "soft small-text"}, text);
}

// The charts begin where the samples do, as soon as there are some.
function slotsOf(samples) {
  return [30, 60, N_SAMPLES].find((n) => samples.length <= n) ?? N_SAMPLES;
}

function timeAxis(n_slots) {
  const begin = n_slots < 60 ? `${n_slots} s ago` : `${n_slots / 60} min ago`;
  return make("p", {class: "axis soft"}, make("span", {}, begin), make("span", {}, "now"));
}

// A value of an axis, without digits that say nothing.
function tick(value) {
  return value.toLocaleString("en", {maximumSignificantDigits: 3});
}

function tickInMs(value) {
  return `${tick(value)} ms`;
}

// The newest value; where the last second had none, an older one, which says so.
function newest(values, show) {
  const last = lastOf(values);
  return values.at(-1) === undefined && last !== undefined ? `last ${show(last)}` : show(last);
}

// A card of one value over time. show: the value as text, with its unit; least: the least upper
// edge; below: more.
function lineCard(title, samples, name, show, least, ...below) {
  const values = column(samples, name), most = edgeOf(mostOf(values, least));
  const now = newest(values, show), n_slots = slotsOf(samples);
  const onAxis = {kv: percent, first: tickInMs}[name] ?? tick;
  const chart = lineChart(`${title}: ${now} now, the axis ends at ${show(most)}`,
    [{kind: "first", values}], n_slots, most);
  return card(title, now, plot(chart, most, onAxis, timeAxis(n_slots)),
    ...below);
}

function inMs(value) {
  return value === undefined ? "–" : `${number(value)} ms`;
}

function firstCard(samples) {
  const queued = lastOf(column(samples, "queue"));
  return lineCard("Time to first token", samples, "first", inMs, 10,
    small(queued === undefined ? "From a request's arrival to its first token. None yet."
      : `Mean of the requests of each second; the queue has ${inMs(queued)} of the last ones.`));
}

// Below each column its guess and, as long as there is room, its value.
function positionAxis(ratios, n_shown) {
  return make("ol", {class: "axis soft"}, ...Array.from({length: n_shown}, (_, i) =>
    make("li", {}, String(i + 1), ratios[i] === undefined || n_shown > 8 ? undefined
      : make("b", {}, number(ratios[i])))));
}

function siblingsWords(samples) {
  const n = totalOf(column(samples, "siblings"));
  if (!n) return "";
  return ` Besides, ${plural(n, "sibling")}: ` +
    `${count(totalOf(column(samples, "siblings_accepted")))} accepted.`;
}

function alphaCard(samples) {
  const tested = [], accepted = [];
  for (const sample of samples) {
    sample.tested.forEach((n, i) => { tested[i] = (tested[i] ?? 0) + n; });
    sample.accepted.forEach((n, i) => { accepted[i] = (accepted[i] ?? 0) + n; });
  }
  const ratios = tested.map((n, i) => n ? accepted[i] / n : undefined);
  const n_shown = Math.max(4, ratios.findLastIndex((ratio) => ratio !== undefined) + 1);
  const words = ratios.filter((ratio) => ratio !== undefined).map(number).join(", ");
  return card("Alpha by position", number(totalOf(accepted) / totalOf(tested)),
    plot(barChart(`Alpha by position: ${words || "no guesses"}`, ratios.slice(0, n_shown), n_shown,
      1), 1, tick, positionAxis(ratios, n_shown)),
    small(words ? "Share of tested guesses that were accepted: 1st guess, 2nd, ..." +
      siblingsWords(samples) : "No guesses yet."));
}

function partsCard(samples) {
  const inMilli = (us) => us === undefined ? undefined : us / 1000;
  const series = PARTS.map((part) => ({
    kind: part, values: samples.map((sample) => inMilli(sample.parts?.[part])),
  }));
  const totals = samples.map((sample) => sample.parts && inMilli(
    PARTS.reduce((sum, part) => sum + sample.parts[part], 0)));
  const most = edgeOf(mostOf(totals, 1)), now = lastOf(column(samples, "parts"));
  const words = PARTS.map((part) => `${part} ${milliseconds(now?.[part])}`).join(", ");
  const n_slots = slotsOf(samples);
  const own = card("Time of a round", newest(totals, inMs),
    plot(stackChart(`Time of a round: ${words}`, series, n_slots, most), most, tickInMs,
      timeAxis(n_slots)),
    legendOf(PARTS.map((part) => [part, part, milliseconds(now?.[part])])),
    small(now ? wordsOfParts(now) : "No rounds yet."));
  own.classList.add("wide"); // its legend is long
  return own;
}

function queueCard(samples) {
  const running = column(samples, "running"), waiting = column(samples, "waiting");
  const most = edgeOf(mostOf([...running, ...waiting], 4)), n_slots = slotsOf(samples);
  const words = `${lastOf(running) ?? 0} running, ${lastOf(waiting) ?? 0} waiting`;
  return card("Requests", words,
    plot(lineChart(`Requests: ${words}, the axis ends at ${most}`,
      [{kind: "first", values: running}, {kind: "second", values: waiting}], n_slots, most),
    most, tick, timeAxis(n_slots)),
    legendOf([["first", "running", String(lastOf(running) ?? 0)],
      ["second", "waiting", String(lastOf(waiting) ?? 0)]]));
}

function row(tag, cells, attributes = {}) {
  const [first, ...others] = cells;
  return make("tr", {}, make("th", {scope: tag === "th" ? "col" : "row"}, first),
    ...others.map((cell) => make(tag, tag === "th" ? {scope: "col"} : attributes, cell)));
}

function groupsCard(groups) {
  const up = groups.filter((group) => group.isUp).length;
  const rows = groups.map((group) => row("td", [`group ${group.name}`,
    !group.isUp ? "not there" : group.isMeasured ? "serves" : "serves, is being measured",
    count(group.running), count(group.waiting), count(group.places)]));
  const own = card("Target groups", `${up} of ${groups.length} serve`,
    make("table", {class: "groups"}, make("thead", {}, row("th", ["group", "state", "running",
      "waiting", "places"])), make("tbody", {}, ...rows)));
  own.classList.add("wide");
  return own;
}

function totalsCard(totals) {
  const ratio = (part, all) => all ? ` (${percent(part / all)})` : "";
  const rows = [["requests answered", count(totals.requests)],
    ["tokens generated", count(totals.tokens)],
    ["tokens of prompts", count(totals.prompt)],
    ["of them reused", `${count(totals.reused)}${ratio(totals.reused, totals.prompt)}`],
    ["guesses checked", count(totals.guesses)],
    ["of them accepted", `${count(totals.accepted)}${ratio(totals.accepted, totals.guesses)}`]];
  return card("Since the start", `${count(totals.tokens)} tokens`,
    make("table", {}, make("tbody", {}, ...rows.map((cells) => row("td", cells)))));
}

function cardsOf(samples, groups, totals) {
  return [
    lineCard("Tokens per second", samples, "rate", number, 10),
    firstCard(samples),
    partsCard(samples),
    alphaCard(samples),
    lineCard("K, guesses a round", samples, "k", number, 4),
    lineCard("Batch, texts in a step", samples, "lanes", number, 2),
    queueCard(samples),
    lineCard("KV blocks in use", samples, "kv", percent, 0.05),
    groups.length ? groupsCard(groups) : undefined,
    totals ? totalsCard(totals) : undefined,
  ].filter(Boolean);
}

// ---- polling ----

export class Live {
  constructor() {
    this.samples = [];
    this.groups = [];
    document.addEventListener("visibilitychange", () => this.wake());
    byId("live-again").addEventListener("click", () => this.start());
    this.show();
  }

  // Begins anew, also after the server has refused.
  start() {
    this.isRefused = false;
    this.wake();
  }

  setShown(isShown) {
    this.isShown = isShown;
    this.show();
  }

  wake() {
    clearTimeout(this.timer);
    if (!document.hidden && !this.isRefused && !this.isAsking) this.poll();
  }

  async poll() {
    this.isAsking = true;
    try {
      this.take(parseMetrics(await getText("metrics")));
    } catch (error) {
      this.fail(error);
    }
    this.isAsking = false;
    this.show();
    if (document.hidden || this.isRefused) return;
    this.timer = setTimeout(() => this.wake(), this.before ? EVERY_MS : AGAIN_MS);
  }

  take(metrics) {
    const now = performance.now();
    this.samples.push(sampleOf(metrics, this.before, (now - this.at) / 1000));
    this.samples.splice(0, this.samples.length - N_SAMPLES);
    this.before = metrics;
    this.at = now;
    this.groups = groupsOf(metrics);
    this.totals = totalsOf(metrics);
    this.setState(`${plural(valueOf(metrics, "places") ?? 0, "place")} for texts`);
  }

  // A refusal is not asked for again every second; silence is.
  fail(error) {
    if (!(error instanceof ApiError)) throw error;
    this.before = undefined;
    this.isRefused = error.status >= 400 && error.status < 500;
    this.setState(this.isRefused
      ? `There are no live figures, because the server refuses /metrics: ${error.message}`
      : `The figures pause. ${error.message}`);
    byId("live-again").hidden = !this.isRefused;
  }

  setState(text) {
    byId("live-again").hidden = true;
    if (byId("live-state").textContent !== text) byId("live-state").textContent = text;
  }

  show() {
    if (!this.isShown) return;
    byId("cards").replaceChildren(...cardsOf(this.samples, this.groups, this.totals));
  }
}
