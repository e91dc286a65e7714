// Plays a film with dash.js, and reports all chunks, stalls and abandoned requests to the viewer program.
"use strict";

const began = performance.now();
const now = () => (performance.now() - began) / 1000;
const video = document.getElementById("video");
const session = { chunks: [], stalls: [], abandoned: [], predicted_bps: {}, started_s: null };
let viewing = null;
let player = null;
let stalledSince = null;
let next = 0;
let reported = 0;
let loadedTo = 0;
// Loaded chunks count as buffered, although dash.js appends them somewhat later.
const buffer_s = () => Math.max(0, loadedTo * viewing.chunk_s - video.currentTime);

// dash.js rule that asks the viewer program for the next track; all of skyhop's controllers use it.
function AskingRule() {
  const context = this.context;
  const SwitchRequest = dashjs.FactoryMaker.getClassFactoryByName("SwitchRequest");
  function getSwitchRequest(rules) {
    const request = SwitchRequest(context).create();
    const tracks = rules.getAbrController()
      .getPossibleVoRepresentationsFilteredBySettings(rules.getMediaInfo())
      .sort((one, other) => one.bandwidth - other.bandwidth);
    // A rule is synchronous; the viewer program is on this machine.
    const query = new XMLHttpRequest();
    query.open("POST", "/decide", false);
    const last = session.chunks.at(-1);
    query.send(JSON.stringify({
      chunk: next,
      now_s: now(),
      buffer_s: buffer_s(),
      arrived: session.chunks.slice(reported),
      last_track: last ? last.track : null,
    }));
    reported = session.chunks.length;
    const answer = JSON.parse(query.responseText);
    session.predicted_bps[next] = answer.predicted_bps;
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
  // skyhop's controllers decide once per chunk: loaded chunks are never replaced.
  if (viewing.is_asking) streaming.buffer.fastSwitchEnabled = false;
  return { streaming };
}

function onChunkLoaded({ request }) {
  if (request.type !== "MediaSegment") return;
  next = request.index + 1;
  loadedTo = Math.max(loadedTo, next);
  session.chunks.push({
    chunk: request.index,
    track: Number(request.representation.id),
    size_bytes: request.bytesTotal,
    asked_s: (request.startDate - epoch) / 1000,
    arrived_s: (request.endDate - epoch) / 1000,
    buffer_s: buffer_s(),
  });
}

function onPlaying() {
  if (session.started_s === null) session.started_s = now();
  else if (stalledSince !== null) session.stalls.push({ at_s: stalledSince, took_s: now() - stalledSince });
  stalledSince = null;
}

async function finish(how, why) {
  if (stalledSince !== null && session.started_s !== null) onPlaying();
  await fetch("/over", { method: "POST", body: JSON.stringify({ how, why, ...session }) });
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
  player.on(events.FRAGMENT_LOADING_COMPLETED, onChunkLoaded);
  player.on(events.FRAGMENT_LOADING_ABANDONED, (event) => {
    const { index, bytesLoaded } = event.request || {};
    session.abandoned.push({ chunk: index ?? null, received_bytes: bytesLoaded ?? 0, at_s: now() });
  });
  player.on(events.PLAYBACK_WAITING, () => { if (stalledSince === null) stalledSince = now(); });
  player.on(events.PLAYBACK_PLAYING, onPlaying);
  player.on(events.PLAYBACK_ENDED, () => finish("ended", ""));
  player.on(events.ERROR, (event) => finish("error", String(event.error && event.error.message)));
  // Times of dash.js are wall-clock times; this is the wall-clock time of `began`.
  epoch = Date.now() - now() * 1000;
  session.began_epoch_ms = epoch;
  player.initialize(video, viewing.manifest, true);
}

main().catch((error) => finish("error", String(error)));
