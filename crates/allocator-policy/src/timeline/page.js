(function () {
  var told = document.getElementById("told");
  var said = told.textContent;
  function words(target) {
    var shape = target && target.closest ? target.closest("svg *") : null;
    var title = shape ? shape.querySelector(":scope > title") : null;
    return title ? title.textContent : null;
  }
  var fixed = null;
  document.addEventListener("mouseover", function (event) {
    if (!fixed) told.textContent = words(event.target) || said;
  });
  document.addEventListener("click", function (event) {
    if (fixed) fixed.classList.remove("chosen");
    var text = words(event.target);
    fixed = text ? event.target : null;
    if (fixed) fixed.classList.add("chosen");
    told.textContent = text || said;
  });
})();
