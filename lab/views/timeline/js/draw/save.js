// The timeline as a PNG file: title, legend and what is drawn, as it stands.

const MARGIN = 12; // CSS pixels
const LINE = 22;

export function savePicture(of) {
  const { parts, timeline } = of;
  const style = getComputedStyle(parts.root);
  const [ink, paper] = ["--sl-ink", "--sl-paper"].map((name) => style.getPropertyValue(name));
  const scale = parts.picture.width / parts.picture.clientWidth;
  const [wide, high] = [parts.picture.clientWidth + 2 * MARGIN, parts.picture.clientHeight + 2 * MARGIN + 2 * LINE];
  const page = document.createElement("canvas");
  [page.width, page.height] = [Math.round(wide * scale), Math.round(high * scale)];
  const pen = page.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, wide, high);
  pen.fillStyle = ink;
  pen.textBaseline = "middle";
  pen.font = `600 13px ${style.fontFamily}`;
  pen.fillText(timeline.title ?? "", MARGIN, MARGIN + LINE / 2, wide - 2 * MARGIN);
  pen.font = `12px ${style.fontFamily}`;
  drawLegend(pen, parts, MARGIN + 1.5 * LINE);
  for (const canvas of [parts.picture, parts.overlay]) {
    pen.drawImage(canvas, MARGIN, MARGIN + 2 * LINE, canvas.clientWidth, canvas.clientHeight);
  }
  page.toBlob((blob) => offer(blob, of.options.label || "timeline"), "image/png");
}

/** A sample and a word for each category, as on the page. */
function drawLegend(pen, parts, y) {
  let x = MARGIN;
  for (const item of parts.legend.children) {
    const sample = item.firstElementChild;
    const edge = getComputedStyle(sample);
    const flat = edge.backgroundImage === "none" && edge.backgroundColor !== "rgba(0, 0, 0, 0)";
    const ink = pen.fillStyle;
    pen.fillStyle = edge.backgroundColor;
    if (flat) pen.fillRect(x, y - 6, 14, 12);
    pen.strokeStyle = edge.borderTopColor;
    pen.strokeRect(x + 0.5, y - 5.5, 13, 11);
    pen.fillStyle = ink;
    pen.fillText(item.textContent, x + 19, y);
    x += 33 + pen.measureText(item.textContent).width;
  }
}

function offer(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${name.replace(/[^\w=-]+/g, "-").slice(0, 80)}.png`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
