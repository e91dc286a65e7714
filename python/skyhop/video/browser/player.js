// Plays a film with dash.js and tells the near end's program what became of each chunk.
"use strict";

const began = performance.now();
const now = () => (performance.now() - began) / 1000;
const video = document.getElementById("video");
const seen = { chunks: [], stalls: [], abandoned: [], predicted_bps: {}, started_s: null };
let viewing = null;
let player = null;
let standingSince = null;
let next = 0;
let told = 0;
let loadedTo = 0;
// What has come is in the buffer, though dash.js appends it somewhat later.
const buffer_s = () => Math.max(0, loadedTo * viewing.chunk_s - video.currentTime);

// The rule that asks the near end which track comes next: all of skyhop's controllers are behind it.
function AskingRule() {
  const context = this.context;
  const SwitchRequest = dashjs.FactoryMaker.getClassFactoryByName("SwitchRequest");
  function getSwitchRequest(rules) {
    const request = SwitchRequest(context).create();
    const tracks = rules.getAbrController()
      .getPossibleVoRepresentationsFilteredBySettings(rules.getMediaInfo())
      .sort((one, other) => one.bandwidth - other.bandwidth);
    // A rule has to answer at once; the near end's program is on this machine.
    const asked = new XMLHttpRequest();
    asked.open("POST", "/decide", false);
    const last = seen.chunks.at(-1);
    asked.send(JSON.stringify({
      chunk: next,
      now_s: now(),
      buffer_s: buffer_s(),
      came: seen.chunks.slice(told),
      last_track: last ? last.track : null,
    }));
    told = seen.chunks.length;
    const answer = JSON.parse(asked.responseText);
    seen.predicted_bps[next] = answer.predicted_bps;
    request.representation = tracks[answer.track];
    request.reason = { rule: "skyhop" };
    request.priority = SwitchRequest.PRIORITY ? SwitchRequest.PRIORITY.STRONG : 1;
    return request;
  }
  return { getSwitchRequest };
}
AskingRule.__dashjs_factory_name = "AskingRule";

function settings() {
  const rules = {};
  for (const [name, isActive] of Object.entries(viewing.rules)) rules[name] = { active: isActive };
  const abr = { rules, autoSwitchBitrate: { video: true } };
  if (viewing.start_bps) abr.initialBitrate = { video: viewing.start_bps / 1000 };
  const streaming = { abr, buffer: {} };
  if (viewing.buffer_cap_s) {
    streaming.buffer.bufferTimeDefault = viewing.buffer_cap_s;
    streaming.buffer.bufferTimeAtTopQuality = viewing.buffer_cap_s;
    streaming.buffer.bufferTimeAtTopQualityLongForm = viewing.buffer_cap_s;
  }
  // skyhop's controllers decide once per chunk: what has come stays.
  if (viewing.is_asking) streaming.buffer.fastSwitchEnabled = false;
  return { streaming };
}

function came({ request }) {
  if (request.type !== "MediaSegment") return;
  next = request.index + 1;
  loadedTo = Math.max(loadedTo, next);
  seen.chunks.push({
    chunk: request.index,
    track: Number(request.representation.id),
    size_bytes: request.bytesTotal,
    asked_s: (request.startDate - epoch) / 1000,
    arrived_s: (request.endDate - epoch) / 1000,
    buffer_s: buffer_s(),
  });
}

function plays() {
  if (seen.started_s === null) seen.started_s = now();
  else if (standingSince !== null) seen.stalls.push({ at_s: standingSince, took_s: now() - standingSince });
  standingSince = null;
}

async function tell(how, why) {
  if (standingSince !== null && seen.started_s !== null) plays();
  await fetch("/over", { method: "POST", body: JSON.stringify({ how, why, ...seen }) });
}

let epoch = 0;
async function main() {
  viewing = await (await fetch("/viewing")).json();
  const events = dashjs.MediaPlayer.events;
  player = dashjs.MediaPlayer().create();
  player.updateSettings(settings());
  if (viewing.is_asking) {
    player.addABRCustomRule("qualitySwitchRules", "AskingRule", dashjs.FactoryMaker.getClassFactory(AskingRule));
  }
  player.on(events.FRAGMENT_LOADING_COMPLETED, came);
  player.on(events.FRAGMENT_LOADING_ABANDONED, (event) => {
    const { index, bytesLoaded } = event.request || {};
    seen.abandoned.push({ chunk: index ?? null, received_bytes: bytesLoaded ?? 0, at_s: now() });
  });
  player.on(events.PLAYBACK_WAITING, () => { if (standingSince === null) standingSince = now(); });
  player.on(events.PLAYBACK_PLAYING, plays);
  player.on(events.PLAYBACK_ENDED, () => tell("ended", ""));
  player.on(events.ERROR, (event) => tell("error", String(event.error && event.error.message)));
  // dash.js has times of the wall clock.
  epoch = Date.now() - now() * 1000;
  seen.began_epoch_ms = epoch;
  player.initialize(video, viewing.manifest, true);
}

main().catch((error) => tell("error", String(error)));
