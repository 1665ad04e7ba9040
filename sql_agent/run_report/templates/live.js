"use strict";
// The page follows its run: what is new is asked for every two seconds while somebody looks.
(function () {
  var EVERY_MS = 2000;
  var now = document.getElementById("now-found");
  var search = document.getElementById("now-search");
  var state = document.getElementById("now-state");
  var shown = "";
  function parsed(text) { return new DOMParser().parseFromString(text, "text/html"); }
  function read(address) {
    return fetch(address, { cache: "no-store" }).then(function (answer) {
      if (!answer.ok) { throw new Error(answer.status + " " + answer.statusText); }
      return answer.text().then(function (text) { return { text: text, page: answer.headers.get("X-Page") }; });
    });
  }
  function unfold(fold) {
    if (!fold.open || !fold.dataset.from || fold.dataset.has) { return; }
    fold.dataset.has = "yes";
    read(fold.dataset.from).then(function (found) {
      fold.querySelector(".case-body").replaceChildren.apply(
        fold.querySelector(".case-body"), parsed(found.text).body.childNodes);
    }, function () { delete fold.dataset.has; });
  }
  // What was there stays, open as it was: transcripts do not change once they are written.
  function keep(fresh) {
    fresh.querySelectorAll("details[id]").forEach(function (fold) {
      var old = document.getElementById(fold.id);
      if (old && now.contains(old) && old.open) { fold.replaceWith(old); }
    });
    now.replaceChildren.apply(now, fresh.body.childNodes);
  }
  function redraw() {
    return read("").then(function (found) {
      var fresh = parsed(found.text);
      document.querySelectorAll("main > section:not(#now)").forEach(function (section) {
        var other = fresh.getElementById(section.id), open = [];
        section.querySelectorAll("details").forEach(function (fold, at) { if (fold.open) { open.push(at); } });
        other.querySelectorAll("details").forEach(function (fold, at) { if (open.indexOf(at) >= 0) { fold.open = true; } });
        section.replaceWith(other);
      });
      document.documentElement.dataset.page = fresh.documentElement.dataset.page;
    });
  }
  function look() {
    return read("now?q=" + encodeURIComponent(search.value)).then(function (found) {
      state.textContent = "follows the run";
      if (found.text !== shown) { keep(parsed(found.text)); shown = found.text; }
      if (found.page !== document.documentElement.dataset.page) { return redraw(); }
    }).catch(function (error) { state.textContent = "no answer (" + error.message + "); trying again"; });
  }
  function follow() {
    (document.hidden ? Promise.resolve() : look()).then(function () { setTimeout(follow, EVERY_MS); });
  }
  var typed;
  search.addEventListener("input", function () { clearTimeout(typed); typed = setTimeout(look, 250); });
  now.addEventListener("toggle", function (event) { unfold(event.target); }, true);
  follow();
})();
