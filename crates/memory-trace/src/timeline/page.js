(function () {
  var details = document.getElementById("details");
  var said = details.textContent;
  var kept = null;
  function words(target) {
    var shape = target && target.closest ? target.closest("svg *") : null;
    var title = shape ? shape.querySelector(":scope > title") : null;
    return title ? title.textContent : null;
  }
  function keep(target) {
    if (kept) kept.classList.remove("chosen");
    kept = target;
    if (kept) kept.classList.add("chosen");
    details.textContent = words(kept) || said;
  }
  document.addEventListener("mouseover", function (event) {
    if (!kept) details.textContent = words(event.target) || said;
  });
  document.addEventListener("click", function (event) {
    if (details.contains(event.target)) return;
    keep(event.target !== kept && words(event.target) ? event.target : null);
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") keep(null);
  });
})();
