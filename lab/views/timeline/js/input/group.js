// Timelines of one group on a page share their window and cursor. The register is global under a symbol, for each host
// may load a copy of this module for each timeline.

const KEY = Symbol.for("shardlab.timeline");

function register() {
  globalThis[KEY] ??= new Map();
  return globalThis[KEY];
}

/** Joins a group. member: { length(), window(), cursor(), show(window), point(time),
 * resize() }. Returns what there is to do with the rest. */
export function join(name, member) {
  if (!name) return { others: () => [], leave() {}, length: () => member.length() };
  const groups = register();
  if (!groups.has(name)) groups.set(name, new Set());
  const members = groups.get(name);
  members.add(member);
  const others = () => [...members].filter((other) => other !== member);
  return {
    others,
    /** The longest of all, so that what is shown whole in one has the same scale in the others. */
    length: () => Math.max(...[...members].map((each) => each.length())),
    leave() {
      members.delete(member);
      if (!members.size) groups.delete(name);
      for (const other of members) other.resize();
    },
  };
}
