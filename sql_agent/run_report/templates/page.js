"use strict";
// Comfort only: without scripts the page shows the same, in the theme of the system.
(function () {
  var root = document.documentElement;
  var theme = document.getElementById("theme");
  var names = ["auto", "light", "dark"];
  function remember(value) {
    try { return value === undefined ? localStorage.getItem("report-theme") : localStorage.setItem("report-theme", value); }
    catch (error) { return null; }
  }
  function show(name) {
    if (name === "auto") { root.removeAttribute("data-theme"); } else { root.setAttribute("data-theme", name); }
    theme.textContent = "Theme: " + name;
  }
  var current = names.indexOf(remember()) > 0 ? remember() : "auto";
  theme.hidden = false;
  show(current);
  theme.addEventListener("click", function () {
    current = names[(names.indexOf(current) + 1) % names.length];
    remember(current);
    show(current);
  });
  var folding = document.getElementById("folding");
  var cases = document.querySelectorAll("details.case");
  if (folding) {
    folding.hidden = false;
    folding.addEventListener("click", function (event) {
      var what = event.target.getAttribute("data-fold");
      if (what) { cases.forEach(function (one) { one.open = what === "open"; }); }
    });
  }
  window.addEventListener("beforeprint", function () {
    cases.forEach(function (one) { one.open = true; });
  });
})();
