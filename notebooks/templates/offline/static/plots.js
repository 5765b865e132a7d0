// Figures are drawn as soon as the page is there, one after the other; those of a closed chapter when it is opened.
const drawn = new Map();
async function draw(node) {
  if (drawn.has(node)) return;
  drawn.set(node, []);
  const text = await unpacked(node.textContent);
  const views = await Bokeh.embed.embed_item(fitted(text, node.parentElement.clientWidth - 40));
  drawn.set(node, views);
  for (const view of views) await placeEvents(view);
}
// Names of events stand within the frame and apart from each other, however narrow it is: after their line or before it,
// and one below the other, for which the axis has as much more room.
const NAME = 0.07, LINE = 17;  // of the frame's height as it comes, and in pixels
async function placeEvents(view) {
  const {model} = view, labels = (model.center ?? []).filter((one) => one.type === "Label" && one.x_offset);
  if (!labels.length) return;
  // A frame beside names of any length may be left without a width.
  for (let waits = 0; !view.frame.bbox.width; waits += 1) {
    if (waits === 100) return;
    await new Promise((done) => requestAnimationFrame(done));
  }
  const tiers = [], {frame} = view, {width, height} = frame.bbox, {y_range} = model;
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const places = labels.map((label) => {
    const at = frame.x_scale.compute(label.x) - frame.bbox.left, full = pen.measureText(label.text.text).width;
    const size = Math.min(12, Math.floor((12 * width) / (full + 2))), wide = (full * size) / 12 + 2;
    const start = at + 4 + wide <= width ? at + 4 : Math.max(0, at - 4 - wide);
    const free = tiers.findIndex((ends) => ends.every(([from, to]) => to < start || start + wide < from));
    const tier = free < 0 ? tiers.push([]) - 1 : free;
    tiers[tier].push([start, start + wide]);
    return {label, tier, options: {text_align: "left", x_offset: start - at, text_font_size: `${size}px`}};
  });
  const [scaled, value] = model.y_scale.type === "LogScale" ? [Math.log, Math.exp] : [(one) => one, (one) => one];
  const low = scaled(y_range.start), share = (y) => (scaled(y) - low) / (scaled(y_range.end) - low);
  const reserved = Math.round((1 - Math.min(...labels.map((label) => share(label.y)))) / NAME + 0.5);
  const line = Math.min(Math.max(NAME, LINE / height), 0.5 / tiers.length);
  const more = Math.max(1, (1 - NAME * reserved) / (1 - line * tiers.length));
  y_range.end = value(low + (scaled(y_range.end) - low) * more);
  const middle = (tier) => value(low + (scaled(y_range.end) - low) * (1 - line * (tier + 0.5)));
  for (const {label, tier, options} of places) label.setv({...options, y: middle(tier)});
}
// A window of another width has other lines in the names of rows: its figures are drawn anew.
let width = innerWidth, waiting;
function redraw() {
  if (innerWidth === width) return;
  width = innerWidth;
  for (const views of drawn.values()) {
    for (const view of views) {
      Bokeh.documents.splice(Bokeh.documents.indexOf(view.model.document), 1);
      view.remove();
    }
  }
  drawn.clear();
  drawAll(document);
}
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 200);
});
// Names of rows and of a legend are broken into lines where a panel is narrower than they are, and these are as much
// higher; a legend has only as many columns as fit.
const pen = document.createElement("canvas").getContext("2d");
function fitted(text, width) {
  let rows = 0, lines = 1, legend = 0;
  return JSON.parse(text, (_, part) => {
    if (part?.name === "LabelSet") {
      const names = Object.fromEntries(part.attributes.source.attributes.data.entries).text;
      names.forEach((name, row) => (names[row] = broken(name, width - 4)));
      lines = Math.max(...names.map((name) => name.split("\n").length));
      rows = names.length;
    }
    if (part?.name === "Legend" && part.attributes.ncols) {
      const {items, ncols} = part.attributes, labels = items.map((item) => item.attributes.label);
      labels.forEach((label) => (label.value = broken(label.value, width - 100)));
      const columns = columnsOf(labels.map((label) => label.value), ncols, width - 50);
      legend = 20 * (Math.ceil(items.length / columns) - Math.ceil(items.length / ncols));
      legend += 15 * labels.reduce((sum, {value}) => sum + value.split("\n").length - 1, 0);
      part.attributes.ncols = columns;
    }
    // Bokeh leaves out a height that is its default.
    const higher = 30 * (lines - 1) * rows + legend;
    if (part?.name === "Figure") part.attributes.height = (part.attributes.height ?? 600) + higher;
    return part;
  });
}
// Beside its text, each label has its mark and a gap.
function columnsOf(labels, most, width) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const wide = labels.map((label) => Math.max(...label.split("\n").map((line) => pen.measureText(line).width)) + 46);
  for (let columns = most; columns > 1; columns -= 1) {
    const widest = Array(columns).fill(0);
    wide.forEach((one, place) => (widest[place % columns] = Math.max(widest[place % columns], one)));
    if (widest.reduce((sum, one) => sum + one) <= width) return columns;
  }
  return 1;
}
function broken(text, width) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const lines = [""];
  for (const word of text.split(/(?<=[ _/-])/)) {
    const last = lines.length - 1;
    if (lines[last] && pen.measureText(lines[last] + word).width > width) lines.push(word);
    else lines[last] += word;
  }
  return lines.map((line) => line.trim()).join("\n");
}
function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}
async function drawAll(part) {
  for (const node of part.querySelectorAll("script.plot")) {
    if (!node.closest("details:not([open])")) await draw(node);
  }
}
// The pictures for paper, which are there from the start: a page may be printed before it is read.
async function inflate(picture) {
  picture.src = "data:image/svg+xml," + encodeURIComponent(await unpacked(picture.dataset.svg));
}
// A link to something within a closed chapter opens it.
function reveal() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target.scrollIntoView();
}
// Numbers are sorted by size, all else as text; a second click turns the order round.
const units = {ns: 1e-9, "µs": 1e-6, ms: 1e-3};
function sort(head) {
  const table = head.closest("table"), column = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute("aria-sort") === "ascending";
  head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.children[column].textContent;
  const number = (text) => {
    const [, digits, unit] = text.replace(/,/g, "").match(/(-?[\d.]+)(?: ([nµm]s)(?!\S))?/) ?? [];
    const size = parseFloat(digits) * (units[unit] ?? 1);
    return text.includes("× as fast") ? 1 / size : size;
  };
  const order = (a, b) => {
    const [x, y] = [number(key(a)), number(key(b))];
    return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) || key(a).localeCompare(key(b)) : x - y;
  };
  const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? -1 : 1) * order(a, b));
  table.tBodies[0].append(...rows);
}
document.addEventListener("DOMContentLoaded", () => {
  document.addEventListener("toggle", (event) => drawAll(event.target), true);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.copy");
    if (button) navigator.clipboard.writeText(button.dataset.copy).then(() => (button.textContent = "copied"));
    const head = event.target.closest("thead th");
    if (head) sort(head);
  });
  // What is sorted or scrolled is within reach of keys.
  document.querySelectorAll("thead th, pre").forEach((part) => (part.tabIndex = 0));
  document.addEventListener("keydown", (event) => {
    const head = event.target.closest("thead th");
    if (!head || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    sort(head);
  });
  document.getElementById("code")?.addEventListener("change", (event) =>
    document.body.classList.toggle("with-code", event.target.checked));
  document.querySelectorAll("img.paper").forEach(inflate);
  reveal();
  drawAll(document);
});
addEventListener("hashchange", reveal);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
