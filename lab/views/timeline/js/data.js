// Unpacks what `lab.timeline.timeline_data` packed: columns become typed arrays, boxes are found by lane and time.

const ARRAYS = {
  f32: Float32Array, i32: Int32Array, i16: Int16Array, u16: Uint16Array, u8: Uint8Array,
};

export const IDLE = 7; // the last category
export const COMPUTING = 4; // of the categories, the first
export const COMPUTE = 0; // places within a rank's lane: the compute stream, what blocks it, then a thin lane an axis
export const INSIDE = 1;
export const FIRST_THIN = 2;

/** A packed column as a typed array: base64 text, or bytes in whatever a host wraps them. */
export function column(packed) {
  const { type, data } = packed;
  if (typeof data === "string") {
    return new ARRAYS[type](fromBase64(data).buffer);
  }
  const view = ArrayBuffer.isView(data) ? data : new Uint8Array(data);
  const Type = ARRAYS[type];
  const fits = view.byteOffset % Type.BYTES_PER_ELEMENT === 0; // else only a copy can be read as numbers
  if (fits) return new Type(view.buffer, view.byteOffset, view.byteLength / Type.BYTES_PER_ELEMENT);
  return new Type(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text); // newer browsers: many times as fast
  const decoded = atob(text);
  const bytes = new Uint8Array(decoded.length);
  for (let i = 0; i < decoded.length; i++) bytes[i] = decoded.charCodeAt(i);
  return bytes;
}

/** The whole of a timeline, ready to draw. Without any layer there is nothing to draw. */
export function unpack(data) {
  const layers = (data.layers ?? []).map(unpackLayer);
  const present = (data.categories ?? []).map((_, i) => layers.some((layer) => layer.category.includes(i)));
  return { ...data, layers, present, length: Math.max(0, ...layers.map((layer) => layer.length)) };
}

function unpackLayer(packed) {
  const { length: duration, ...columns } = unpackColumns(packed.columns);
  const { name, step, length, count, texts } = packed;
  return withGroups({ ...columns, duration, name, step, length, count, texts, messages: unpackColumns(packed.messages) });
}

function unpackColumns(columns) {
  return Object.fromEntries(Object.entries(columns).map(([name, packed]) => [name, column(packed)]));
}

/** Adds the ends, and where each lane's boxes lie. Runs once a box before anything shows: no objects, nothing twice. */
function withGroups(layer) {
  const { count, start, duration, lane, sub } = layer;
  const end = new Float32Array(count);
  const latest = new Float32Array(count); // the last end so far in the lane: grows, so it can be searched
  const groups = [];
  for (let from = 0, to = 0; from < count; from = to) {
    const [itsLane, itsSub] = [lane[from], sub[from]];
    let last = -Infinity;
    for (; to < count && lane[to] === itsLane && sub[to] === itsSub; to++) {
      end[to] = start[to] + duration[to];
      if (end[to] > last) last = end[to];
      latest[to] = last;
    }
    groups.push({ lane: itsLane, sub: itsSub, from, to });
  }
  return Object.assign(layer, { end, latest, groups, runs: null });
}

/** The runs of a layer that share one number; looked for when first needed. */
export function runsOf(layer) {
  layer.runs ??= findRuns(layer);
  return layer.runs;
}

/** Neighbouring computations of one category, stage and micro-batch, which get one number together. */
function findRuns(layer) {
  const { category, micro, stage, start, end } = layer;
  const runs = [];
  for (const group of layer.groups) {
    if (group.sub !== COMPUTE) continue;
    let run = null;
    for (let i = group.from; i < group.to; i++) {
      if (category[i] >= COMPUTING) continue;
      const same = run && run.micro === micro[i] && run.stage === stage[i] && run.category === category[i];
      if (!same) {
        run = { lane: group.lane, micro: micro[i], stage: stage[i], category: category[i], first: i, busy: 0, longest: i };
        if (micro[i] >= 0) runs.push(run);
      }
      run.last = i;
      run.busy += end[i] - start[i];
      if (end[i] - start[i] > end[run.longest] - start[run.longest]) run.longest = i;
    }
  }
  for (const run of runs) { // a run with gaps in it is labelled in its longest box
    const whole = run.busy >= 0.9 * (end[run.last] - start[run.first]);
    run.start = start[whole ? run.first : run.longest];
    run.end = end[whole ? run.last : run.longest];
  }
  return runs;
}

/** The box of a row of the step, or -1; looked up in a table that is made when first needed. */
export function boxOfRow(layer, row) {
  if (!layer.boxes) {
    layer.boxes = new Map();
    for (let i = 0; i < layer.count; i++) if (layer.op[i] >= 0) layer.boxes.set(layer.op[i], i);
  }
  return layer.boxes.get(row) ?? -1;
}

/** The first index in [from, to) whose value is above `value`; `to` if there is none. The values must not fall. */
export function firstAbove(values, from, to, value) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle] > value) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** [from, to) of the boxes of a group that may show in the window from `a` to `b`. */
export function inWindow(layer, group, a, b) {
  const from = firstAbove(layer.latest, group.from, group.to, a);
  return [from, firstAbove(layer.start, from, group.to, b)];
}
