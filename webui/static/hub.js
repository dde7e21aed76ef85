// How a page asks the hub: again and again, never in a hurry, and not while nobody looks.

const GIVE_UP_MS = 5000;

/**
 * One answer of the API: `{kind: "fresh"|"blind"|"error"|"gone", body}`.
 * `blind` is the hub without sight of the cluster; `gone` is no hub at all.
 */
export async function ask(path) {
  let response;
  let body;
  try {
    response = await fetch(path, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(GIVE_UP_MS) });
    body = await response.json();
  } catch {
    return { kind: "gone", body: null };
  }
  if (response.ok) return { kind: "fresh", body };
  if (response.status === 401) {
    // The session ended: the page in its place says how to sign in.
    location.reload();
  }
  return { kind: body?.error?.code === "redis_unavailable" ? "blind" : "error", body };
}

/** Runs `look` every `everyMs` while the page is visible, and at once when it becomes visible. */
export function keepLooking(look, everyMs) {
  let timer = 0;
  let looking = false;
  const turn = async () => {
    clearTimeout(timer);
    if (looking || document.hidden) return;
    looking = true;
    try {
      await look();
    } finally {
      looking = false;
      timer = setTimeout(turn, everyMs);
    }
  };
  document.addEventListener("visibilitychange", turn);
  void turn();
}
