//! Exact plan for the next few chunks: the sequence of tracks with the highest QoE. It is the same sequence
//! that an enumeration would find, but it is found by depth-first search with pruning (branch and bound).
//!
//! Sequences whose values differ by at most [`TIE`] count as equal: many are equal in exact arithmetic, and
//! the choice among them must not depend on rounding.

use crate::Film;
use crate::forecast::RateForecast;
use crate::qoe::Qoe;

/// Largest difference of values that count as equal.
pub const TIE: f64 = 1e-9;
/// Upper limit of the duration of a transfer in seconds, so that chunks that never arrive have a
/// finite value too.
const LONGEST_S: f64 = 1e9;

/// Choice among sequences of equal value, in lexicographic order of their tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TieBreak {
    /// The first sequence, which has lower tracks; Pensieve's server for browsers chooses it.
    First,
    /// The last sequence, which has higher tracks; Pensieve's simulator chooses it.
    Last,
}

/// State from which a plan starts.
#[derive(Debug, Clone, Copy)]
pub struct PlanStart<'p> {
    /// Film that is played.
    pub film: &'p Film,
    /// Quality of experience to maximize.
    pub qoe: &'p Qoe,
    /// Number of the next chunk.
    pub chunk: usize,
    /// Track of the chunk before the next one; `None` before the first.
    pub last_track: Option<usize>,
    /// Playback time in the buffer, in seconds.
    pub buffer_s: f64,
    /// Seconds since the session's start.
    pub now_s: f64,
}

/// Expected rate at which chunks will arrive.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedRate<'p> {
    /// The same rate throughout.
    Constant {
        /// The rate in bits per second.
        bps: f64,
    },
    /// Rates of a forecast.
    Forecast {
        /// The forecast to use.
        forecast: &'p dyn RateForecast,
        /// Divisor of the forecast's rates.
        divisor: f64,
        /// Buffer level in seconds above which the player waits before a request.
        cap_s: f64,
    },
}

/// Best sequence of tracks that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// First track of the sequence.
    pub track: usize,
    /// Value of the sequence: the sum of its rewards.
    pub value: f64,
}

/// Planner for one film and QoE, reused from chunk to chunk.
#[derive(Debug, Clone)]
pub struct Planner {
    horizon: usize,
    winner: TieBreak,
    /// Upper bound of the value of the remaining chunks if there are no stalls, by their number and the
    /// track before them.
    stall_free_bound: Vec<Vec<f64>>,
    /// Bounds of the current plan, by step: duration of the transfer in each track, and upper bound of the
    /// value of that step's chunk and those after it if all transfer time costs as much as a stall.
    takes_s: Vec<Vec<f64>>,
    time_bound: Vec<Vec<f64>>,
}

/// Node of the search tree: a prefix of a sequence.
#[derive(Debug, Clone, Copy)]
struct Node {
    step: usize,
    last: Option<usize>,
    now_s: f64,
    buffer_s: f64,
    value: f64,
}

/// State of the current search.
struct Search<'s> {
    start: PlanStart<'s>,
    pace: ExpectedRate<'s>,
    planner: &'s Planner,
    steps: usize,
    /// Highest value that a sequence is known to reach.
    reached: f64,
    best: Option<Plan>,
}

impl Planner {
    /// Create a planner that plans `horizon` chunks at a time.
    pub fn new(horizon: usize, winner: TieBreak) -> Self {
        Self {
            horizon: horizon.max(1),
            winner,
            stall_free_bound: Vec::new(),
            takes_s: Vec::new(),
            time_bound: Vec::new(),
        }
    }

    /// Return the best sequence from `start`. The film must have a next chunk.
    pub fn plan(&mut self, start: PlanStart<'_>, pace: ExpectedRate<'_>) -> Plan {
        let steps = self.horizon.min(start.film.chunks() - start.chunk);
        self.bound_without_stalls(start.qoe, steps);
        if let ExpectedRate::Constant { bps } = pace {
            self.bound_in_time(start, steps, bps);
        }
        let mut search =
            Search { start, pace, planner: self, steps, reached: f64::NEG_INFINITY, best: None };
        let root = Node {
            step: 0,
            last: start.last_track,
            now_s: start.now_s,
            buffer_s: start.buffer_s,
            value: 0.0,
        };
        for track in 0..start.film.tracks.len() {
            search.bound_by_constant_track(root, track);
        }
        search.descend(root, None);
        search.best.unwrap_or(Plan { track: 0, value: f64::NEG_INFINITY })
    }

    fn bound_without_stalls(&mut self, qoe: &Qoe, steps: usize) {
        let tracks = qoe.qualities().len();
        if self.stall_free_bound.is_empty() {
            self.stall_free_bound.push(vec![0.0; tracks]);
        }
        while self.stall_free_bound.len() <= steps {
            let rest = &self.stall_free_bound[self.stall_free_bound.len() - 1];
            self.stall_free_bound.push(best_after(qoe, rest, |_| 0.0));
        }
    }

    fn bound_in_time(&mut self, start: PlanStart<'_>, steps: usize, bps: f64) {
        let qoe = start.qoe;
        let tracks = qoe.qualities().len();
        self.takes_s.resize(steps, Vec::new());
        self.time_bound.resize(steps + 1, Vec::new());
        self.time_bound[steps].clear();
        self.time_bound[steps].resize(tracks, 0.0);
        for step in (0..steps).rev() {
            let takes_s = &mut self.takes_s[step];
            let sizes = start.film.sizes_of(start.chunk + step);
            takes_s.clear();
            takes_s.extend(sizes.iter().map(|size| (*size as f64 * 8.0 / bps).min(LONGEST_S)));
            let cost = |track: usize| qoe.stall_per_s() * takes_s[track];
            let (before, after) = self.time_bound.split_at_mut(step + 1);
            best_after_into(qoe, &after[0], cost, &mut before[step]);
        }
    }
}

/// Upper bound of the value of a chunk and those after it, by the track before the chunk. `rest` is the
/// bound of the chunks after it by the chunk's track; `cost` is an additional cost of each track.
fn best_after(qoe: &Qoe, rest: &[f64], cost: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut best = Vec::new();
    best_after_into(qoe, rest, cost, &mut best);
    best
}

fn best_after_into(qoe: &Qoe, rest: &[f64], cost: impl Fn(usize) -> f64, best: &mut Vec<f64>) {
    let qualities = qoe.qualities();
    best.clear();
    // A change over several tracks costs at most as much as its steps together, so that two running
    // maxima, from below and from above, suffice to find the best track.
    let value = |track: usize| qualities[track] - cost(track) + rest[track];
    best.extend((0..qualities.len()).map(value));
    for track in 1..qualities.len() {
        let change = qoe.change() * (qualities[track] - qualities[track - 1]).abs();
        best[track] = best[track].max(best[track - 1] - change);
    }
    for track in (1..qualities.len()).rev() {
        let change = qoe.change() * (qualities[track] - qualities[track - 1]).abs();
        best[track - 1] = best[track - 1].max(best[track] - change);
    }
}

impl Search<'_> {
    /// Raise `reached` to the value of the sequence that keeps one track throughout, if that is higher.
    fn bound_by_constant_track(&mut self, root: Node, track: usize) {
        let mut node = root;
        while node.step < self.steps {
            node = self.after(node, track);
        }
        self.reached = self.reached.max(node.value);
    }

    /// Try all sequences that continue from `node`; `first` is their first track.
    fn descend(&mut self, node: Node, first: Option<usize>) {
        if node.step == self.steps {
            self.consider(Plan { track: first.unwrap_or(0), value: node.value });
            return;
        }
        // Sequences that win ties are tried first, so that later ones of equal value can be pruned.
        let tracks = self.start.film.tracks.len();
        for place in 0..tracks {
            let track = match self.planner.winner {
                TieBreak::First => place,
                TieBreak::Last => tracks - 1 - place,
            };
            let next = self.after(node, track);
            if !self.can_prune(next) {
                self.descend(next, first.or(Some(track)));
            }
        }
    }

    /// Node after the next chunk in this track.
    #[inline]
    fn after(&self, node: Node, track: usize) -> Node {
        let PlanStart { film, qoe, chunk, .. } = self.start;
        let Node { step, last, mut now_s, mut buffer_s, value } = node;
        let takes_s = match self.pace {
            ExpectedRate::Constant { .. } => self.planner.takes_s[step][track],
            ExpectedRate::Forecast { forecast, divisor, cap_s } => {
                let waits_s = (buffer_s - cap_s).max(0.0);
                (now_s, buffer_s) = (now_s + waits_s, buffer_s - waits_s);
                let bytes = film.size_bytes(chunk + step, track) as f64 * divisor;
                (forecast.arrives_s(now_s, bytes) - now_s).min(LONGEST_S)
            }
        };
        let quality = qoe.quality(track);
        let change = last.map_or(0.0, |last| (quality - qoe.quality(last)).abs());
        let stall_s = (takes_s - buffer_s).max(0.0);
        Node {
            step: step + 1,
            last: Some(track),
            now_s: now_s + takes_s,
            buffer_s: (buffer_s - takes_s).max(0.0) + film.chunk.as_secs_f64(),
            value: value + qoe.reward(quality, stall_s, change),
        }
    }

    /// Whether no sequence through `node` can be the result, so that the node need not be searched.
    #[inline]
    fn can_prune(&self, node: Node) -> bool {
        let Some(last) = node.last else { return false };
        let left = self.steps - node.step;
        let mut most = self.planner.stall_free_bound[left][last];
        if left > 0 && matches!(self.pace, ExpectedRate::Constant { .. }) {
            // Transfer time is stall if it exceeds the buffer and the playback time that the chunks
            // before the last add to it.
            let plays_s = node.buffer_s + self.start.film.chunk.as_secs_f64() * (left - 1) as f64;
            let time_bound = self.planner.time_bound[node.step][last];
            most = most.min(time_bound + self.start.qoe.stall_per_s() * plays_s);
        }
        let most = node.value + most;
        let must_exceed = self.best.map_or(f64::NEG_INFINITY, |best| best.value + TIE / 2.0);
        // Tolerance for rounding: sums computed in different orders differ in their last digits.
        let slack = 1e-12 * most.abs();
        most + slack < must_exceed.max(self.reached - 2.0 * TIE)
    }

    fn consider(&mut self, plan: Plan) {
        if self.best.is_none_or(|best| plan.value > best.value + TIE) {
            self.best = Some(plan);
        }
    }
}
