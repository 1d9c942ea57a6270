"use strict";
// Update the page of a run that is being recorded. Without script, the page shows the record as it was.
(() => {
  const EVERY = 2000;
  const AGAIN = 10000;
  // Multiples of the time that an answer takes, so that an open page leaves most of the server's time to others.
  const REST = 4;
  const REST_OF_PAGE = 20;
  const bar = document.getElementById("strata-bar");
  if (!bar || !bar.dataset.live) return;
  const line = document.getElementById("strata-live");
  const loaded = Date.now();
  let touched = 0;
  for (const kind of ["keydown", "pointerdown", "wheel", "touchstart"]) addEventListener(kind, () => { touched = Date.now(); }, { passive: true });
  // Do not take a page away from somebody who types, selects or moves in it.
  const busy = () => Date.now() - touched < EVERY || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "") || String(getSelection()) !== "";
  const tick = async () => {
    let live = true;
    const asked = Date.now();
    let took = 0;
    try {
      const answer = await fetch(bar.dataset.state);
      if (answer.ok) {
        const state = await answer.json();
        took = Date.now() - asked;
        live = state.state === "recording";
        line.textContent = `${state.outcome}: ${state.headline}`;
        const changed = state.mark !== bar.dataset.mark;
        if (changed && !busy() && (!live || Date.now() - loaded > Math.max(AGAIN, REST_OF_PAGE * took))) { location.reload(); return; }
        live = live || changed;
      } else if (answer.status === 404) {
        line.textContent = "This run has been removed.";
        live = false;
      }
    } catch { /* the server has ended, or responds to the next request */ }
    if (live) setTimeout(tick, Math.max(EVERY, REST * took));
  };
  setTimeout(tick, EVERY);
})();
