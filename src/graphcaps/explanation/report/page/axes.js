// Axes for small charts.

const CHART = { width: NARROW.matches ? 340 : 480, height: 236, left: 64, right: 26, top: 12, bottom: 40 };

// About `about` round numbers from low to high.
function ticks(low, high, about = 5) {
  const rough = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-6; k += 1) values.push(Number((k * step).toPrecision(6)));
  return values;
}

class Axes {
  constructor(x, y, { xName, yName, xText = String, yText = String }) {
    Object.assign(this, { x, y });
    this.parts = [];
    const { width, height, left, right, top, bottom } = CHART;
    for (const value of ticks(...y)) {
      const at = this.down(value);
      this.parts.push(draw("line", { x1: left, x2: width - right, y1: at, y2: at, class: "grid" }));
      this.parts.push(draw("text", { x: left - 7, y: at, dy: "0.35em", class: "tick end" }, yText(value)));
    }
    for (const value of ticks(...x)) {
      this.parts.push(draw("text", { x: this.across(value), y: height - bottom + 16, class: "tick middle" }, xText(value)));
    }
    this.parts.push(draw("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" }));
    this.parts.push(draw("text", { x: (left + width - right) / 2, y: height - 4, class: "tick middle name" }, xName));
    const turn = `rotate(-90 12 ${(top + height - bottom) / 2})`;
    this.parts.push(draw("text", { x: 12, y: (top + height - bottom) / 2, transform: turn, class: "tick middle name" }, yName));
  }

  across(value) {
    const [low, high] = this.x;
    return CHART.left + ((value - low) / (high - low || 1)) * (CHART.width - CHART.left - CHART.right);
  }

  down(value) {
    const [low, high] = this.y;
    return CHART.height - CHART.bottom - ((value - low) / (high - low || 1)) * (CHART.height - CHART.top - CHART.bottom);
  }

  line(points, name) {
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${this.across(x).toFixed(1)} ${this.down(y).toFixed(1)}`).join("");
    this.parts.push(draw("path", { d, class: `curve ${name}` }));
  }

  add(...parts) {
    this.parts.push(...parts);
  }

  svg(label) {
    return picture(CHART.width, CHART.height, label, this.parts, "chart");
  }
}

function legend(entries) {
  return make("ul", { class: "legend" }, entries.map(([name, text]) => make("li", {}, [make("span", { class: `swatch ${name}` }), text])));
}
