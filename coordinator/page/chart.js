// Small charts as SVG. Values run from the left to the right and the last one is at the right edge;
// where one is missing there is a gap. Axes and numbers are text beside the chart.
import {make, makeSvg} from "./dom.js";

const WIDTH = 240, HEIGHT = 64;

function frame(label, ...children) {
  return makeSvg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": label, class: "chart",
  }, makeSvg("path", {class: "grid", d: `M0 0.5H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}`}),
  makeSvg("path", {class: "base", d: `M0 ${HEIGHT - 0.5}H${WIDTH}`}), ...children);
}

// The upper edge for values up to this: 1, 2, 4 or 5 times a power of ten, so that half of it is
// round, too.
export function edgeOf(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 4, 5, 10].find((step) => value <= step * power * 1.0001);
}

// A chart with its upper edge, the half and 0 to the left of it, and an axis below.
export function plot(chart, most, show, axis) {
  const ticks = [most, most / 2, 0].map((value) => make("span", {}, show(value)));
  return make("div", {class: "plot"}, make("p", {class: "ticks soft"}, ...ticks), chart, axis);
}

function xOf(i, n_slots, n) {
  return WIDTH - (n - 1 - i) * WIDTH / (n_slots - 1);
}

function yOf(value, most) {
  return HEIGHT - 1 - (HEIGHT - 2) * Math.min(value / most, 1);
}

// Runs of neighbouring values that are there: [[i, value], ...] each.
function runsOf(values) {
  const runs = [];
  values.forEach((value, i) => {
    if (value === undefined) return;
    if (i === 0 || values[i - 1] === undefined) runs.push([]);
    runs.at(-1).push([i, value]);
  });
  return runs;
}

function linePath(values, n_slots, most) {
  return runsOf(values).map((run) => run.map(([i, value], at) =>
    `${at ? "L" : "M"}${xOf(i, n_slots, values.length).toFixed(1)} ${yOf(value, most).toFixed(1)}`)
    .join("") + (run.length === 1 ? "h-4" : "")).join("");
}

// The band between two lines that have the same gaps.
function bandPath(low, high, n_slots, most) {
  return runsOf(high).map((run) => {
    const point = (values) => ([i]) =>
      `${xOf(i, n_slots, high.length).toFixed(1)} ${yOf(values[i], most).toFixed(1)}`;
    const there = run.map(point(high)), back = run.map(point(low)).reverse();
    return `M${[...there, ...back].join("L")}Z`;
  }).join("");
}

// series: [{kind, values}]; most: the value at the upper edge.
export function lineChart(label, series, n_slots, most) {
  return frame(label, ...series.flatMap(({kind, values}, i) => {
    const line = makeSvg("path", {class: `line ${kind}`, d: linePath(values, n_slots, most)});
    const zeros = values.map((value) => value === undefined ? undefined : 0);
    const band = bandPath(zeros, values, n_slots, most);
    const area = makeSvg("path", {class: `area ${kind}`, d: band});
    return i ? [line] : [area, line];
  }));
}

// Bands upon each other, the first one at the bottom.
export function stackChart(label, series, n_slots, most) {
  let low = series[0].values.map((value) => value === undefined ? undefined : 0);
  return frame(label, ...series.map(({kind, values}) => {
    const high = values.map((value, i) => value === undefined ? undefined : low[i] + value);
    const band = makeSvg("path", {class: `band ${kind}`, d: bandPath(low, high, n_slots, most)});
    low = high;
    return band;
  }));
}

// A column for each value.
export function barChart(label, values, n_slots, most) {
  const step = WIDTH / n_slots;
  return frame(label, ...values.map((value, i) => value === undefined ? undefined
    : makeSvg("rect", {
      class: "column", x: (i * step + 0.15 * step).toFixed(1), width: (0.7 * step).toFixed(1),
      y: yOf(value, most).toFixed(1), height: (HEIGHT - 1 - yOf(value, most)).toFixed(1),
    })));
}
