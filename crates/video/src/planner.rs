//! The exact plan of a few chunks: the sequence of tracks that a QoE values most, as enumerating all of them would find it, but by
//! depth-first search that leaves out what cannot be the best.
//!
//! Sequences whose values differ by no more than [`TIE`] are equal: many are, in exact numbers, and which of them wins must not
//! hang on how sums are rounded.

use crate::Film;
use crate::ahead::Ahead;
use crate::qoe::Qoe;

/// Values that differ by no more than this are equal.
pub const TIE: f64 = 1e-9;
/// Nothing takes longer, in seconds: what never comes has a value, too.
const LONGEST_S: f64 = 1e9;

/// Which of equal sequences wins, in the order of their tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Winner {
    /// The first: lower tracks, as Pensieve's server for browsers.
    First,
    /// The last, as Pensieve's simulator.
    Last,
}

/// What is planned from.
#[derive(Debug, Clone, Copy)]
pub struct Start<'p> {
    /// What is played.
    pub film: &'p Film,
    /// What counts.
    pub qoe: &'p Qoe,
    /// The next chunk.
    pub chunk: usize,
    /// The track of the one before it.
    pub last_track: Option<usize>,
    /// What is left to play.
    pub buffer_s: f64,
    /// Since the session's beginning.
    pub now_s: f64,
}

/// How fast chunks are believed to come.
#[derive(Debug, Clone, Copy)]
pub enum Pace<'p> {
    /// At one rate.
    Steady {
        /// That rate.
        bps: f64,
    },
    /// As somebody claims.
    Claimed {
        /// Who.
        ahead: &'p dyn Ahead,
        /// Rates are divided by this.
        divisor: f64,
        /// Above so much in the buffer the player waits before it asks.
        cap_s: f64,
    },
}

/// The best sequence found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Its first track.
    pub track: usize,
    /// Its value.
    pub value: f64,
}

/// Plans, over and over, for the same film and QoE.
#[derive(Debug, Clone)]
pub struct Planner {
    horizon: usize,
    winner: Winner,
    /// The most that chunks to come can be worth, after a track, without any stall: by how many are left.
    at_most: Vec<Vec<f64>>,
    /// Of the plan at hand, by step: how long each track's chunk takes, and the most that it and the rest can be worth where time that
    /// they take costs what a stall costs.
    takes_s: Vec<Vec<f64>>,
    in_time: Vec<Vec<f64>>,
}

/// A point of a sequence.
#[derive(Debug, Clone, Copy)]
struct Node {
    step: usize,
    last: Option<usize>,
    now_s: f64,
    buffer_s: f64,
    value: f64,
}

/// The search at hand.
struct Search<'s> {
    start: Start<'s>,
    pace: Pace<'s>,
    planner: &'s Planner,
    steps: usize,
    /// Some sequence has at least this value.
    reached: f64,
    best: Option<Plan>,
}

impl Planner {
    /// Plans so many chunks at a time.
    pub fn new(horizon: usize, winner: Winner) -> Self {
        Self {
            horizon: horizon.max(1),
            winner,
            at_most: Vec::new(),
            takes_s: Vec::new(),
            in_time: Vec::new(),
        }
    }

    /// The best sequence from here; the film has the next chunk.
    pub fn plan(&mut self, start: Start<'_>, pace: Pace<'_>) -> Plan {
        let steps = self.horizon.min(start.film.chunks() - start.chunk);
        self.bound_without_stalls(start.qoe, steps);
        if let Pace::Steady { bps } = pace {
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
            search.reach_with(root, track);
        }
        search.descend(root, None);
        search.best.unwrap_or(Plan { track: 0, value: f64::NEG_INFINITY })
    }

    fn bound_without_stalls(&mut self, qoe: &Qoe, steps: usize) {
        let tracks = qoe.qualities().len();
        if self.at_most.is_empty() {
            self.at_most.push(vec![0.0; tracks]);
        }
        while self.at_most.len() <= steps {
            let rest = &self.at_most[self.at_most.len() - 1];
            self.at_most.push(best_after(qoe, rest, |_| 0.0));
        }
    }

    fn bound_in_time(&mut self, start: Start<'_>, steps: usize, bps: f64) {
        let qoe = start.qoe;
        let tracks = qoe.qualities().len();
        self.takes_s.resize(steps, Vec::new());
        self.in_time.resize(steps + 1, Vec::new());
        self.in_time[steps].clear();
        self.in_time[steps].resize(tracks, 0.0);
        for step in (0..steps).rev() {
            let takes_s = &mut self.takes_s[step];
            let sizes = start.film.sizes_of(start.chunk + step);
            takes_s.clear();
            takes_s.extend(sizes.iter().map(|size| (*size as f64 * 8.0 / bps).min(LONGEST_S)));
            let cost = |track: usize| qoe.stall_per_s() * takes_s[track];
            let (before, after) = self.in_time.split_at_mut(step + 1);
            best_after_into(qoe, &after[0], cost, &mut before[step]);
        }
    }
}

/// The most that a chunk and the `rest` after it are worth, by the track before it, where a track costs something itself.
fn best_after(qoe: &Qoe, rest: &[f64], cost: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut best = Vec::new();
    best_after_into(qoe, rest, cost, &mut best);
    best
}

fn best_after_into(qoe: &Qoe, rest: &[f64], cost: impl Fn(usize) -> f64, best: &mut Vec<f64>) {
    let qualities = qoe.qualities();
    best.clear();
    // A change costs no more than its way in smaller steps: what is best from below and from above are two running maxima.
    let worth = |track: usize| qualities[track] - cost(track) + rest[track];
    best.extend((0..qualities.len()).map(worth));
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
    /// What holds of every sequence from here, as far as the same track throughout shows it.
    fn reach_with(&mut self, root: Node, track: usize) {
        let mut node = root;
        while node.step < self.steps {
            node = self.after(node, track);
        }
        self.reached = self.reached.max(node.value);
    }

    /// Tries all sequences that go on from `node`; `first` is their first track.
    fn descend(&mut self, node: Node, first: Option<usize>) {
        if node.step == self.steps {
            self.consider(Plan { track: first.unwrap_or(0), value: node.value });
            return;
        }
        // Whoever of equals is to win comes first, so that the others need not be tried.
        let tracks = self.start.film.tracks.len();
        for place in 0..tracks {
            let track = match self.planner.winner {
                Winner::First => place,
                Winner::Last => tracks - 1 - place,
            };
            let next = self.after(node, track);
            if !self.is_hopeless(next) {
                self.descend(next, first.or(Some(track)));
            }
        }
    }

    /// Where the next chunk of this track leads.
    #[inline]
    fn after(&self, node: Node, track: usize) -> Node {
        let Start { film, qoe, chunk, .. } = self.start;
        let Node { step, last, mut now_s, mut buffer_s, value } = node;
        let takes_s = match self.pace {
            Pace::Steady { .. } => self.planner.takes_s[step][track],
            Pace::Claimed { ahead, divisor, cap_s } => {
                let waits_s = (buffer_s - cap_s).max(0.0);
                (now_s, buffer_s) = (now_s + waits_s, buffer_s - waits_s);
                let bytes = film.size_bytes(chunk + step, track) as f64 * divisor;
                (ahead.arrives_s(now_s, bytes) - now_s).min(LONGEST_S)
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

    /// Whether no sequence through `node` can win.
    #[inline]
    fn is_hopeless(&self, node: Node) -> bool {
        let Some(last) = node.last else { return false };
        let left = self.steps - node.step;
        let mut most = self.planner.at_most[left][last];
        if left > 0 && matches!(self.pace, Pace::Steady { .. }) {
            // What takes longer than the buffer, and what the chunks before the last add to it, stalls.
            let plays_s = node.buffer_s + self.start.film.chunk.as_secs_f64() * (left - 1) as f64;
            let in_time = self.planner.in_time[node.step][last];
            most = most.min(in_time + self.start.qoe.stall_per_s() * plays_s);
        }
        let most = node.value + most;
        let must_exceed = self.best.map_or(f64::NEG_INFINITY, |best| best.value + TIE / 2.0);
        // Sums that were made in another order differ in their last digits.
        let slack = 1e-12 * most.abs();
        most + slack < must_exceed.max(self.reached - 2.0 * TIE)
    }

    fn consider(&mut self, plan: Plan) {
        if self.best.is_none_or(|best| plan.value > best.value + TIE) {
            self.best = Some(plan);
        }
    }
}
