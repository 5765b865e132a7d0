// Figures are drawn as soon as the page is there, one after the other; those of a closed chapter when it is opened.
function draw(node) {
  if (node.dataset.drawn) return Promise.resolve();
  node.dataset.drawn = "yes";
  return Bokeh.embed.embed_item(JSON.parse(node.textContent));
}
async function drawAll(part) {
  for (const node of part.querySelectorAll("script.plot")) {
    if (!node.closest("details:not([open])")) await draw(node);
  }
}
// A link to something within a closed chapter opens it.
function reveal() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target.scrollIntoView();
}
// Numbers are sorted by size, all else as text; a second click turns the order round.
function sort(head) {
  const table = head.closest("table"), column = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute("aria-sort") === "ascending";
  head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.children[column].textContent;
  const number = (text) => parseFloat(text.replace(/,/g, "").replace(/^[^\d.-]+/, ""));
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
  document.getElementById("code")?.addEventListener("change", (event) =>
    document.body.classList.toggle("with-code", event.target.checked));
  reveal();
  drawAll(document);
});
addEventListener("hashchange", reveal);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
