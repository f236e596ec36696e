// Colours of capsules and scores. COLOURS, INKS, --for and --against come from explanation/palette.py.

function colourOf(number) {
  return COLOURS[number % COLOURS.length];
}

// The colour of text on a colour of the palette.
function inkOn(colour) {
  return INKS[COLOURS.indexOf(colour)];
}

// Colour of a score between −1 and 1: orange for the class, blue against it.
function paintScore(element, score, property = "fill") {
  const share = Math.round(100 * Math.min(1, Math.abs(score)));
  element.style[property] = `color-mix(in oklab, var(${score < 0 ? "--against" : "--for"}) ${share}%, var(--blank))`;
}

// The legend of everything that is for or against a class.
function sideLegend(forText = "for the class", againstText = "against it") {
  return make("ul", { class: "legend sides" }, [
    make("li", {}, [make("span", { class: "swatch for" }), forText]),
    make("li", {}, [make("span", { class: "swatch against" }), againstText]),
  ]);
}
