//! A player, sans IO: which chunk it asks for in which track and when, what is in its buffer, and when the picture stands still.
//!
//! Whoever drives it (virtual time over a rate, TCP, a browser) asks [`Session::poll`] what it does now, and tells it what has come.
//! The picture moves once the first chunk is there. It stands still whenever its buffer is empty, until the next chunk is there.

mod abandon;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::PlayerCompat;
use skyhop_units::{Duration, Instant};

use crate::ahead::{Ahead, Made};
use crate::controllers::{Come, Controller, ControllerChoice, View};
use crate::qoe::Qoe;
use crate::{ChunkRow, Film};
use abandon::Abandoning;

/// How a player plays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Playing {
    /// The first chunk's track, counted from 0; the highest where there are fewer.
    pub start_track: u32,
    /// Above so much in its buffer the player waits before it asks for more.
    pub buffer_cap: Duration,
    /// It waits in whole steps of this; exactly as long as it has to where this is 0 s.
    pub wait_step: Duration,
    /// Whether it gives up chunks that come too slowly, for a lower track (dash.js's AbandonRequestsRule).
    pub abandon: bool,
}

impl Default for Playing {
    /// As Pensieve's player: 60 s of buffer, steps of 500 ms, and the second track at first.
    fn default() -> Self {
        Self {
            start_track: 1,
            buffer_cap: Duration::from_secs(60),
            wait_step: Duration::from_millis(500),
            abandon: false,
        }
    }
}

impl Playing {
    /// How long the steps are in which a player waits for room in its buffer, where nothing else is said of it.
    pub const fn wait_step_of(compat: PlayerCompat) -> Duration {
        match compat {
            PlayerCompat::None => Duration::ZERO,
            // DRAIN_BUFFER_SLEEP_TIME of its env.py.
            PlayerCompat::Pensieve => Duration::from_millis(500),
        }
    }

    /// What cannot be: the key and why.
    ///
    /// # Errors
    /// The buffer's cap is out of range.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let hour = Duration::from_secs(3600);
        if self.buffer_cap < Duration::from_millis(100) || self.buffer_cap > hour {
            return Err(("buffer_cap", format!("is {}; expected 100 ms to 1 h", self.buffer_cap)));
        }
        if self.wait_step > Duration::from_secs(60) {
            return Err(("wait_step", format!("is {}; expected at most 60 s", self.wait_step)));
        }
        Ok(())
    }
}

/// What the player does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Asks for a chunk.
    Ask(Request),
    /// Drops the request that is out.
    Abandon,
    /// Nothing until then; [`Instant::NEVER`]: until something comes.
    Wait(Instant),
    /// Nothing any more: all chunks are there.
    Done,
}

/// A chunk that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Which.
    pub chunk: usize,
    /// In which track.
    pub track: usize,
    /// How large it is.
    pub size_bytes: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Session {
    film: Arc<Film>,
    qoe: Arc<Qoe>,
    controller: Box<dyn Controller>,
    ahead: Option<Arc<dyn Ahead>>,
    made: Option<Made>,
    playing: Playing,
    /// When it began: times count from here.
    began: Instant,
    state: State,
    /// When the buffer will be empty; `None` before the picture moves.
    plays_until: Option<Instant>,
    chunk: usize,
    last_track: Option<usize>,
    rows: Vec<ChunkRow>,
}

/// What is known of the next chunk's request before it is made.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    track: usize,
    believed_bps: Option<u64>,
}

#[derive(Debug)]
enum State {
    /// There may be no room for the next chunk yet.
    Ready {
        since: Instant,
        /// What had come of it, if a request for it has failed.
        failed_bytes: Option<u64>,
    },
    /// The controller wants to wait.
    Pausing {
        since: Instant,
        until: Instant,
        waited_for_room: Duration,
        chosen: Chosen,
    },
    /// A request is out.
    Waiting(Pending),
    /// It is to be dropped, and the chunk asked for in this track.
    Dropping {
        pending: Pending,
        track: usize,
    },
    /// It has been dropped.
    Again {
        chosen: Chosen,
        waited: [Duration; 2],
        abandoned_bytes: u64,
    },
    Done,
}

#[derive(Debug, Clone)]
struct Pending {
    request: Request,
    asked: Instant,
    received: u64,
    /// What the player had waited because its buffer was full, and in all.
    waited_for_room: Duration,
    waited: Duration,
    believed_bps: Option<u64>,
    abandoned_bytes: u64,
    abandoning: Abandoning,
}

impl Session {
    /// One that begins at `began`; whatever its controller draws follows from the seed.
    pub fn new(
        film: Arc<Film>,
        qoe: Arc<Qoe>,
        controller: &ControllerChoice,
        playing: Playing,
        began: Instant,
        seed: u64,
    ) -> Self {
        let controller = controller.build(&film, &qoe, seed);
        Self {
            rows: Vec::with_capacity(film.chunks()),
            film,
            qoe,
            controller,
            ahead: None,
            made: None,
            playing,
            began,
            state: State::Ready { since: began, failed_bytes: None },
            plays_until: None,
            chunk: 0,
            last_track: None,
        }
    }

    /// What lies ahead, for controllers that want to know it.
    pub fn look_ahead(&mut self, ahead: Arc<dyn Ahead>) {
        self.ahead = Some(ahead);
    }

    /// Predictions by when they were made, likewise: before each choice the last that were made by then.
    pub fn look_ahead_by(&mut self, made: Made) {
        self.made = Some(made);
    }

    /// What it plays.
    pub fn film(&self) -> &Film {
        &self.film
    }

    /// The chunks that have come.
    pub fn rows(&self) -> &[ChunkRow] {
        &self.rows
    }

    /// What is left to play.
    pub fn buffer(&self, now: Instant) -> Duration {
        self.plays_until.map_or(Duration::ZERO, |until| until.saturating_since(now))
    }

    /// Whether it may give up chunks.
    pub const fn gives_up(&self) -> bool {
        self.playing.abandon
    }

    /// Whether a request is out, and not to be dropped.
    pub const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// What it does now. Asked again after everything but [`Step::Wait`].
    pub fn poll(&mut self, now: Instant) -> Step {
        match &self.state {
            State::Ready { since, failed_bytes } => {
                let (since, failed_bytes) = (*since, *failed_bytes);
                match self.room_at(since) {
                    Some(at) if now < at => Step::Wait(at),
                    _ => self.choose(now, since, failed_bytes),
                }
            }
            State::Pausing { until, .. } if now < *until => Step::Wait(*until),
            State::Pausing { since, waited_for_room, chosen, .. } => {
                let (waited, room, chosen) =
                    (now.saturating_since(*since), *waited_for_room, *chosen);
                self.ask(now, [room, waited], chosen, 0)
            }
            State::Waiting(_) => Step::Wait(Instant::NEVER),
            State::Dropping { pending, track } => {
                let chosen = Chosen { track: *track, believed_bps: pending.believed_bps };
                let abandoned_bytes = pending.abandoned_bytes + pending.received;
                let waited = [pending.waited_for_room, pending.waited];
                self.state = State::Again { chosen, waited, abandoned_bytes };
                Step::Abandon
            }
            State::Again { chosen, waited, abandoned_bytes } => {
                let (chosen, waited, abandoned_bytes) = (*chosen, *waited, *abandoned_bytes);
                self.ask(now, waited, chosen, abandoned_bytes)
            }
            State::Done => Step::Done,
        }
    }

    /// So many bytes more have come of what was asked for.
    pub fn on_bytes(&mut self, now: Instant, bytes: u64) {
        let State::Waiting(pending) = &mut self.state else { return };
        pending.received += bytes;
        if pending.received >= pending.request.size_bytes {
            let pending = pending.clone();
            self.on_chunk(now, &pending);
        } else if self.playing.abandon {
            self.may_abandon(now);
        }
    }

    /// The request that was out has failed: the chunk is asked for again.
    pub fn on_failed(&mut self, now: Instant) {
        if let State::Waiting(pending) | State::Dropping { pending, .. } = &self.state {
            let failed_bytes = Some(pending.abandoned_bytes + pending.received);
            self.state = State::Ready { since: now, failed_bytes };
        }
    }

    /// When there is room for the next chunk, if that is later.
    fn room_at(&self, since: Instant) -> Option<Instant> {
        let over = self.buffer(since).saturating_sub(self.playing.buffer_cap);
        let step_ns = self.playing.wait_step.as_nanos();
        let waits_ns = match step_ns {
            0 => over.as_nanos(),
            _ => over.as_nanos().div_ceil(step_ns) * step_ns,
        };
        (waits_ns > 0).then(|| since + Duration::from_nanos(waits_ns))
    }

    fn choose(&mut self, now: Instant, since: Instant, failed_bytes: Option<u64>) -> Step {
        let abandoned_bytes = failed_bytes.unwrap_or(0);
        let waited = now.saturating_since(since);
        if self.last_track.is_none() {
            // No controller knows anything yet.
            let start_track = self.playing.start_track as usize;
            let track = failed_bytes.map_or(start_track.min(self.film.top()), |_| 0);
            return self.ask(
                now,
                [waited; 2],
                Chosen { track, believed_bps: None },
                abandoned_bytes,
            );
        }
        let now_s = now.saturating_since(self.began).as_secs_f64();
        if let Some(last) = self.made.as_ref().and_then(|made| made.by(now_s)) {
            self.ahead = Some(Arc::new(last));
        }
        let view = View {
            film: &self.film,
            qoe: &self.qoe,
            chunk: self.chunk,
            last_track: self.last_track,
            buffer_s: self.buffer(now).as_secs_f64(),
            now_s,
            cap_s: self.playing.buffer_cap.as_secs_f64(),
            ahead: self.ahead.as_deref(),
        };
        let choice = self.controller.choose(&view);
        let believed_bps = choice.believed_bps.map(|bps| bps as u64);
        let chosen = Chosen { track: choice.track, believed_bps };
        // Nobody waits with what has failed already.
        if choice.wait_s > 0.0 && failed_bytes.is_none() {
            let until = now + Duration::from_secs_f64(choice.wait_s);
            self.state = State::Pausing { since, until, waited_for_room: waited, chosen };
            return self.poll(now);
        }
        self.ask(now, [waited; 2], chosen, abandoned_bytes)
    }

    fn ask(
        &mut self,
        now: Instant,
        [waited_for_room, waited]: [Duration; 2],
        chosen: Chosen,
        abandoned_bytes: u64,
    ) -> Step {
        let Chosen { track, believed_bps } = chosen;
        let size_bytes = self.film.size_bytes(self.chunk, track);
        let request = Request { chunk: self.chunk, track, size_bytes };
        self.state = State::Waiting(Pending {
            request,
            asked: now,
            received: 0,
            waited_for_room,
            waited,
            believed_bps,
            abandoned_bytes,
            abandoning: Abandoning::default(),
        });
        Step::Ask(request)
    }

    fn on_chunk(&mut self, now: Instant, pending: &Pending) {
        let Request { chunk, track, size_bytes } = pending.request;
        let stall = self.plays_until.map_or(Duration::ZERO, |until| now.saturating_since(until));
        let plays_from = self.plays_until.map_or(now, |until| until.max(now));
        self.plays_until = Some(plays_from + self.film.chunk);
        let since_began = |at: Instant| at.saturating_since(self.began).as_nanos();
        self.rows.push(ChunkRow {
            chunk: chunk as u32,
            track: track as u32,
            bitrate_bps: self.film.bitrate_bps(track),
            size_bytes,
            asked_ns: since_began(pending.asked),
            arrived_ns: since_began(now),
            stall_ns: stall.as_nanos(),
            buffer_ns: self.buffer(now).as_nanos(),
            waited_ns: pending.waited.as_nanos(),
            abandoned_bytes: pending.abandoned_bytes,
            predicted_bps: pending.believed_bps,
        });
        let took = now.saturating_since(pending.asked).max(Duration::from_nanos(1));
        self.controller.on_chunk(&Come {
            chunk,
            track,
            bytes: size_bytes as f64,
            took_s: took.as_secs_f64(),
            waited_s: pending.waited_for_room.as_secs_f64(),
        });
        self.last_track = Some(track);
        self.chunk += 1;
        self.state = if self.chunk == self.film.chunks() {
            State::Done
        } else {
            State::Ready { since: now, failed_bytes: None }
        };
    }

    fn may_abandon(&mut self, now: Instant) {
        let buffer = self.buffer(now);
        let State::Waiting(pending) = &mut self.state else { return };
        let elapsed = now.saturating_since(pending.asked);
        let (request, received) = (pending.request, pending.received);
        let track = pending.abandoning.rather(&self.film, request, elapsed, received, buffer);
        if let Some(track) = track {
            let pending = pending.clone();
            self.state = State::Dropping { pending, track };
        }
    }
}
