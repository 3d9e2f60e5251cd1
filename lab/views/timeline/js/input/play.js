// Moves the cursor through the window by itself; in jumps for readers who asked for less motion.

const SECONDS = 8; // for a whole window
const JUMP_MS = 500;

/** move(time): sets the cursor; whole(): the last time there is; told(on): whether it plays. */
export function player(move, whole, told) {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let handle = 0;

  function stop() {
    if (!handle) return;
    cancelAnimationFrame(handle);
    handle = 0;
    told(false);
  }

  function start(cursor, [from, to]) {
    const end = Math.min(to, whole());
    const begin = cursor === null || cursor < from || cursor >= end ? from : cursor;
    const began = performance.now();
    const frame = (now) => {
      const passed = still.matches ? Math.floor((now - began) / JUMP_MS) * JUMP_MS : now - began;
      const time = Math.min(begin + (Math.max(passed, 0) / 1000 / SECONDS) * (to - from), end);
      move(time);
      if (time >= end) stop();
      else handle = requestAnimationFrame(frame);
    };
    told(true);
    handle = requestAnimationFrame(frame);
  }

  return { stop, toggle: (cursor, window) => (handle ? stop() : start(cursor, window)) };
}
