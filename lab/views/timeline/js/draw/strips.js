// Boxes as rows of pixels, one row for each place of a lane, stretched to its height: rectangles drawn one by one, tens
// of thousands of them, cost ten times as much.

import { place } from "./layout.js";

export class Strips {
  /** rows: how many; fills: the colour of each category; the one after the last is left for what lies underneath. */
  constructor(context, rows, layout, pixel, fills) {
    Object.assign(this, { layout, pixel });
    this.first = Math.floor(layout.left / pixel);
    this.width = Math.ceil(layout.right / pixel) - this.first + 2; // what begins at the right edge is clipped, not lost
    this.colours = Uint32Array.from(["", ...fills, ""], (fill) => (fill ? packed(context, fill) : 0)); // 0: see-through
    this.image = new ImageData(this.width, rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.under = new Uint8Array(this.width); // by pixel of the row: category + 1 of what is as wide as a pixel
    this.over = new Uint8Array(this.width); // and of what is narrower, which lies on top, or rounding could hide it
    this.share = new Float32Array(this.width); // how much of the pixel that covers
    this.row = [];
  }

  /** Pixels [from, to) of a box; where boxes lie on each other, the later category shows. */
  wide(from, to, kind) {
    const { under, first, width } = this;
    const end = Math.min(to - first, width);
    for (let x = from - first; x < end; x++) if (under[x] <= kind) under[x] = kind + 1;
  }

  narrow(at, share, kind) {
    const x = at - this.first;
    this.over[x] = kind + 1;
    this.share[x] = share;
  }

  /** Ends the row that `group` is drawn from. */
  end(group) {
    const { under, over, share, colours, pixels, width } = this;
    const from = this.row.length * width;
    for (let x = 0; x < width; x++) {
      const below = colours[under[x]];
      pixels[from + x] = over[x] ? mixed(below, colours[over[x]], share[x]) : below;
    }
    under.fill(0);
    over.fill(0);
    this.row.push(group);
  }

  draw(context) {
    const { image, width, first, pixel, layout } = this;
    if (!this.row.length) return;
    const canvas = Object.assign(document.createElement("canvas"), { width, height: image.height });
    canvas.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    this.row.forEach((group, row) => {
      const [y, height] = place(layout, group.lane, group.sub);
      for (const [top, bottom, share] of covered(y / pixel, (y + height) / pixel)) {
        context.globalAlpha = share;
        context.drawImage(canvas, 0, row, width, 1, first * pixel, top * pixel, width * pixel, (bottom - top) * pixel);
      }
    });
    context.globalAlpha = 1;
  }
}

/** [first, last, share] of the pixels between two heights: edges of images are not smoothed as those of boxes are. */
function covered(top, bottom) {
  const [from, to] = [Math.ceil(top - 1e-3), Math.floor(bottom + 1e-3)];
  if (from > to) return [[to, from, bottom - top]]; // within one pixel
  const found = from < to ? [[from, to, 1]] : [];
  if (from - top > 1e-3) found.push([from - 1, from, from - top]);
  if (bottom - to > 1e-3) found.push([to, to + 1, bottom - to]);
  return found;
}

/** A colour as a pixel of an image: its bytes are red, green, blue, alpha. */
function packed(context, colour) {
  context.fillStyle = colour;
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(context.fillStyle.slice(at, at + 2), 16));
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
}

/** What shows where `colour` covers a share of a pixel. */
function mixed(below, colour, share) {
  if (share >= 1) return colour;
  if (!below) return ((colour & 0xffffff) | (Math.round(share * 255) << 24)) >>> 0;
  let found = 0xff000000;
  for (let shift = 0; shift < 24; shift += 8) {
    const from = (below >>> shift) & 255;
    found |= Math.round(from + (((colour >>> shift) & 255) - from) * share) << shift;
  }
  return found >>> 0;
}
