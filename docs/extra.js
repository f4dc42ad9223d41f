// The theme makes these elements when a page is shown. Names tell copy buttons apart for screen readers, and tables and
// pictures that are scrolled sideways can be reached by keyboard.
const narrow = matchMedia("(max-width: 768px)");
function describe() {
  document.querySelectorAll(".md-code__nav").forEach((nav, k) => nav.setAttribute("aria-label", `Code block ${k + 1}`));
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((wrap) => wrap.setAttribute("tabindex", "0"));
  if (narrow.matches)
    document.querySelectorAll('p > img[src$="_1.png"], p > img[src$="_2.png"]').forEach((picture) => picture.parentElement.setAttribute("tabindex", "0"));
}
new MutationObserver(describe).observe(document.documentElement, { childList: true, subtree: true });
describe();
