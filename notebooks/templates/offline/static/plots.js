// Each figure is drawn when the reader comes near it, so that a long page opens at once.
function draw(node) {
  if (node.dataset.drawn) return;
  node.dataset.drawn = "yes";
  Bokeh.embed.embed_item(JSON.parse(node.textContent));
}
document.addEventListener("DOMContentLoaded", () => {
  const watch = new IntersectionObserver(
    (seen) => seen.forEach((entry) => {
      if (!entry.isIntersecting) return;
      watch.unobserve(entry.target);
      draw(entry.target.querySelector("script.plot"));
    }),
    { rootMargin: "600px" },
  );
  document.querySelectorAll("div.panel").forEach((panel) => watch.observe(panel));
});
addEventListener("beforeprint", () => document.querySelectorAll("script.plot").forEach(draw));
