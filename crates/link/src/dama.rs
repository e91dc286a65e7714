//! Demand-assigned capacity (DAMA), as return channels of geostationary satellites have it (DVB-RCS2, ETSI EN
//! 301 545-2): a terminal sends in frames, asks for as much as it needs, and gets it a round trip later.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Duration, Instant};

use crate::LinkError;

/// Shortest frame; frames of the field take tens of milliseconds.
const SHORTEST_FRAME: Duration = Duration::from_millis(1);
/// Longest time for which requests and grants are kept.
const LONGEST: Duration = Duration::from_secs(60);

/// Parameters of demand assignment. The defaults are fitted to one start of a download over Viasat-2, in which the
/// ACKs came on a grid of 40 ms, at first one in each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct DamaConfig {
    /// Time from one frame to the next: packets that wait leave when a frame begins. At least 1 ms.
    pub frame: Duration,
    /// Wire bytes per frame that the terminal may send without a request.
    pub minimum: Bytes,
    /// Most wire bytes per frame; above 0 B, and at least `minimum`.
    pub maximum: Bytes,
    /// Time from a request to the frame with its grant: a round trip between terminal and hub, and the hub's
    /// processing; at most 60 s.
    pub request_delay: Duration,
    /// Time in which a request would clear the backlog; above 0 s, at most 60 s. If it is much shorter than
    /// `request_delay`, the terminal asks for the same backlog several times, and the queue swings.
    pub drain: Duration,
    /// Time over which a request averages the arrivals, and so the time in which unused capacity goes; above 0 s,
    /// at most 60 s.
    pub window: Duration,
}

impl Default for DamaConfig {
    fn default() -> Self {
        Self {
            frame: Duration::from_millis(40),
            minimum: Bytes::new(66),
            maximum: Bytes::new(40_000),
            request_delay: Duration::from_millis(680),
            drain: Duration::from_millis(720),
            window: Duration::from_secs(6),
        }
    }
}

impl DamaConfig {
    /// Check the parameters.
    ///
    /// # Errors
    /// A parameter has a value that is not allowed.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let Self { frame, minimum, maximum, request_delay, drain, window } = *self;
        let times = [("request_delay", request_delay), ("drain", drain), ("window", window)];
        let fault = if frame < SHORTEST_FRAME {
            format!("frame is {frame}; expected at least {SHORTEST_FRAME}")
        } else if drain == Duration::ZERO {
            "drain is 0 s; expected the time in which a request clears the backlog".to_owned()
        } else if window == Duration::ZERO {
            "window is 0 s; expected the time over which a request averages the arrivals".to_owned()
        } else if let Some((key, time)) = times.into_iter().find(|(_, time)| *time > LONGEST) {
            format!("{key} is {time}; expected at most {LONGEST}")
        } else if maximum == Bytes::ZERO || maximum < minimum {
            format!(
                "maximum is {maximum}; expected more than 0 B, and at least minimum ({minimum})"
            )
        } else {
            return Ok(());
        };
        Err(LinkError::Dama(fault))
    }

    /// Number of frames that `time` lasts, rounded up.
    fn frames(&self, time: Duration) -> u64 {
        time.as_nanos().div_ceil(self.frame.as_nanos())
    }
}

/// Requests, grants and what is left of the current frame. Frames are numbered from the run's start.
#[derive(Debug)]
pub(crate) struct Dama {
    config: DamaConfig,
    delay_frames: u64,
    window_frames: u64,
    /// Number of the next frame to begin.
    next: u64,
    /// Wire bytes that may still leave in the current frame. If negative, they have left already, and count towards
    /// the next frames: a packet leaves as a whole once anything is left for it.
    left: i64,
    /// Wire bytes that have arrived since the current frame began.
    arrived: u64,
    /// Wire bytes that arrived in each of the last frames, within `window`, and their sum.
    arrivals: VecDeque<u64>,
    arrivals_sum: u64,
    /// Requested bytes per frame that are not yet granted, one for each frame of `request_delay`.
    requests: VecDeque<u64>,
}

impl Dama {
    pub(crate) fn new(config: DamaConfig) -> Self {
        Self {
            delay_frames: config.frames(config.request_delay),
            window_frames: config.frames(config.window),
            config,
            next: 0,
            left: 0,
            arrived: 0,
            arrivals: VecDeque::new(),
            arrivals_sum: 0,
            requests: VecDeque::new(),
        }
    }

    /// Count a packet that arrives at `now`, when `backlog` wire bytes wait without it.
    pub(crate) fn arrive(&mut self, now: Instant, wire_size: Bytes, backlog: Bytes) {
        self.begin_frames(now, backlog);
        self.arrived += wire_size.as_u64();
    }

    /// Earliest time at which a packet may leave, at `now` or when a later frame begins; `backlog` wire bytes wait.
    pub(crate) fn opens(&mut self, now: Instant, backlog: Bytes) -> Instant {
        self.begin_frames(now, backlog);
        if self.left > 0 { now } else { self.start_of(self.next) }
    }

    /// Count a packet that leaves, when [`Self::opens`] lets it.
    pub(crate) fn leave(&mut self, wire_size: Bytes) {
        self.left -= as_signed(wire_size.as_u64());
    }

    fn start_of(&self, frame: u64) -> Instant {
        Instant::from_nanos(frame.saturating_mul(self.config.frame.as_nanos()))
    }

    /// Begin all frames up to `now`. Since the last frame began or a packet arrived or left, `backlog` is the same.
    fn begin_frames(&mut self, now: Instant, backlog: Bytes) {
        let current = now.as_nanos() / self.config.frame.as_nanos();
        // After a long pause nothing is requested or granted any more.
        let memory = self.delay_frames + self.window_frames + 1;
        while self.next <= current {
            self.begin(backlog.as_u64());
            let rest = current + 1 - self.next;
            if backlog == Bytes::ZERO && rest > memory {
                (0..memory).for_each(|_| self.begin(0));
                self.skip(rest - memory);
            }
        }
    }

    /// Begin the next frame: ask, receive what was asked for earlier, and allot the frame to what waits. What
    /// arrives during the frame waits for the next one.
    fn begin(&mut self, backlog: u64) {
        self.next += 1;
        let request = self.request(backlog);
        self.requests.push_back(request);
        let is_due = self.requests.len() as u64 > self.delay_frames;
        let granted = if is_due { self.requests.pop_front().unwrap_or(0) } else { 0 };
        let DamaConfig { minimum, maximum, .. } = self.config;
        let allowed = granted.clamp(minimum.as_u64(), maximum.as_u64());
        self.left = self.left.min(0).saturating_add(as_signed(allowed)).min(as_signed(backlog));
    }

    /// Bytes per frame to ask for: enough for the arrivals to go on as they came, and to clear the backlog in time.
    fn request(&mut self, backlog: u64) -> u64 {
        let arrived = std::mem::take(&mut self.arrived);
        self.arrivals.push_back(arrived);
        self.arrivals_sum += arrived;
        if self.arrivals.len() as u64 > self.window_frames {
            self.arrivals_sum -= self.arrivals.pop_front().unwrap_or(0);
        }
        let [frame_ns, drain_ns] =
            [self.config.frame, self.config.drain].map(|time| u128::from(time.as_nanos()));
        let to_drain = (u128::from(backlog) * frame_ns).div_ceil(drain_ns);
        let to_go_on = self.arrivals_sum.div_ceil(self.window_frames);
        to_go_on.saturating_add(u64::try_from(to_drain).unwrap_or(u64::MAX))
    }

    /// Pass `frames` frames in which nothing is asked for, granted or sent.
    fn skip(&mut self, frames: u64) {
        debug_assert!(self.arrivals_sum == 0, "arrivals are forgotten");
        self.next += frames;
        let paid = self.config.minimum.as_u64().saturating_mul(frames);
        self.left = self.left.min(0).saturating_add(as_signed(paid)).min(0);
    }
}

fn as_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
