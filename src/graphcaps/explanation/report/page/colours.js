// Colours of capsules: the Okabe-Ito palette, then lighter variants. Capsules are numbered as well, so colour is not needed.

const COLOURS = [
  "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7A7A7A",
  "#8FB8DE", "#F4C77B", "#7FCFB4", "#E3B8D0", "#A9D8F2", "#EBA27A", "#F7F0A0", "#BDBDBD",
];

function colourOf(number) {
  return COLOURS[number % COLOURS.length];
}

// Black or white, whichever has the higher contrast on the colour.
function inkOn(colour) {
  const part = (at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  const light = 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
  return light > 0.19 ? "#111" : "#fff";
}

// Colour of a score between −1 and 1: one hue for positive, another for negative scores.
function paintScore(element, score, property = "fill") {
  const share = Math.round(100 * Math.min(1, Math.abs(score)));
  element.style[property] = `color-mix(in oklab, var(${score < 0 ? "--against" : "--for"}) ${share}%, var(--blank))`;
}
