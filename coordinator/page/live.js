// Live figures: the server's metrics once a second, as long as the page is looked at.
import {PARTS} from "./answer.js";
import {ApiError, getText} from "./api.js";
import {barChart, lineChart, stackChart} from "./chart.js";
import {byId, count, make, milliseconds, number, percent, plural} from "./dom.js";
import {parseMetrics, sampleOf, valueOf} from "./metrics.js";
import {PART_NAMES} from "./rounds.js";

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

// edge: what the upper edge of the chart means; axis: what is below it.
function card(title, value, edge, chart, axis, legend) {
  return make("section", {class: "card figure"},
    make("h2", {}, title), make("p", {class: "now"}, value),
    make("p", {class: "edge soft"}, edge), chart, axis, legend);
}

function timeAxis() {
  return make("p", {class: "axis soft"}, make("span", {}, "2 min ago"), make("span", {}, "now"));
}

// The newest value; where the last second had none, an older one, which says so.
function newest(values, show) {
  const last = lastOf(values);
  return values.at(-1) === undefined && last !== undefined ? `last ${show(last)}` : show(last);
}

// A card of one value over time. show: the value as text; least: the least upper edge.
function lineCard(title, samples, name, show, least) {
  const values = column(samples, name), most = mostOf(values, least);
  const now = newest(values, show);
  return card(title, now, `up to ${show(most)}`,
    lineChart(`${title}: ${now} now, at most ${show(most)}`, [{kind: "first", values}], N_SAMPLES,
      most), timeAxis());
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
    `${count(totalOf(column(samples, "siblings_accepted")))} stayed.`;
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
    "up to 1",
    barChart(`Alpha by position: ${words || "no guesses"}`, ratios.slice(0, n_shown), n_shown, 1),
    positionAxis(ratios, n_shown), make("p", {class: "soft small-text"},
      words ? "Share of tested guesses that stayed: 1st guess, 2nd, ..." +
        siblingsWords(samples) : "No guesses yet."));
}

function partsCard(samples) {
  const series = PARTS.map((part) => ({
    kind: part, values: samples.map((sample) => sample.parts?.[part]),
  }));
  const totals = samples.map((sample) => sample.parts &&
    PARTS.reduce((sum, part) => sum + sample.parts[part], 0));
  const most = mostOf(totals, 1), now = lastOf(column(samples, "parts"));
  const words = PARTS.map((part) => `${PART_NAMES[part]} ${milliseconds(now?.[part])}`).join(", ");
  const own = card("Time of a round", newest(totals, milliseconds), `up to ${milliseconds(most)}`,
    stackChart(`Time of a round: ${words}`, series, N_SAMPLES, most), timeAxis(),
    legendOf(PARTS.map((part) => [part, PART_NAMES[part], milliseconds(now?.[part])])));
  own.classList.add("wide"); // its legend is long, and with it the seven cards fill their rows
  return own;
}

function queueCard(samples) {
  const running = column(samples, "running"), waiting = column(samples, "waiting");
  const most = mostOf([...running, ...waiting], 1);
  const words = `${lastOf(running) ?? 0} running, ${lastOf(waiting) ?? 0} waiting`;
  return card("Requests", words, `up to ${most}`,
    lineChart(`Requests: ${words}, at most ${most}`,
      [{kind: "first", values: running}, {kind: "second", values: waiting}], N_SAMPLES, most),
    timeAxis(),
    legendOf([["first", "running", String(lastOf(running) ?? 0)],
      ["second", "waiting", String(lastOf(waiting) ?? 0)]]));
}

function cardsOf(samples) {
  return [
    lineCard("Tokens per second", samples, "rate", number, 10),
    partsCard(samples),
    alphaCard(samples),
    lineCard("K, guesses a round", samples, "k", number, 4),
    lineCard("Batch, texts in a step", samples, "lanes", number, 2),
    queueCard(samples),
    lineCard("KV blocks in use", samples, "kv", percent, 0.05),
  ];
}

// ---- polling ----

export class Live {
  constructor() {
    this.samples = [];
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
    if (this.isShown) byId("cards").replaceChildren(...cardsOf(this.samples));
  }
}
