// What a view hears of its model, so that it can stop hearing it when it goes.

/** {on(names, call), stop()}: calls `call` when any of these traits changes, until `stop`. */
export function listener(model) {
  const heard = [];
  return {
    on(names, call) {
      for (const name of names) {
        model.on(`change:${name}`, call);
        heard.push([`change:${name}`, call]);
      }
    },
    stop: () => heard.forEach(([event, call]) => model.off(event, call)),
  };
}
