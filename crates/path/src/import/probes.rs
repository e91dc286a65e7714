//! From round trips that were measured to the path that probes over it would measure again.
//!
//! - A round trip is half there and half back, unless the measurement told the ways apart.
//! - Between two probes the path changes once: for what is sent halfway between them, or, where the
//!   round trip falls, a sixth of the fall earlier. That is halfway between the moments at which the
//!   two probes had done a third of their round trip, between the satellite of the way there (a
//!   quarter) and the far end (a half): where in between cannot be known, and with a third, probes at
//!   equal intervals see the distribution that was measured. The way back changes as what was sent
//!   then turns round, so that no packet sees one half of each. A path keeps its order, so that a
//!   fall is as gradual as order demands.
//! - Three or more probes lost in a row are an outage, from when the first of them would have reached
//!   the far end until the next answered one was sent: answers that came are not lost again. Fewer,
//!   and those on less than the way there, are random loss: their share of the probes of each second, or
//!   of the time of twenty probes where that is longer. What is left of the series behind the last
//!   such window counts towards it: of a few probes, one lost would be a blackout.

use skyhop_model::PathEventKind;
use std::collections::BTreeMap;

use skyhop_units::{Duration, Instant, UtcInstant};

use super::lines::ImportError;
use super::{MeasuredOptions, level_shifts, measured_header};
use crate::trace::{Frame, PathEvent, PathTrace};

/// This many lost in a row are an outage.
pub(super) const LOST_IN_A_ROW: u64 = 3;
/// The longest round trip that is believed; ping itself gives up much earlier.
pub(super) const LONGEST_RTT_MS: f64 = 60_000.0;
/// The longest series; what spans more has a broken clock.
const LONGEST_SPAN_NS: u64 = 366 * 86_400 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// A loss ratio is that of so many probes at least: a single lost one is a twentieth.
const PROBES_PER_RATIO: u64 = 20;

/// A probe that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    /// When it was sent, on any clock.
    pub sent_ns: i64,
    /// One-way delay to the far end.
    pub there: Duration,
    /// One-way delay of the answer.
    pub back: Duration,
    /// How many were lost since the answered one before it.
    pub lost_before: u64,
}

impl Probe {
    /// A probe whose round trip is known, but not its two ways.
    pub fn halved(sent_ns: i64, rtt: Duration, lost_before: u64) -> Self {
        let there = rtt / 2;
        Self { sent_ns, there, back: rtt - there, lost_before }
    }

    pub fn rtt(&self) -> Duration {
        self.there + self.back
    }
}

/// A measurement.
pub(super) struct Series {
    /// The answered probes, in the order in which they were sent.
    pub probes: Vec<Probe>,
    /// How many were lost after the last answered one.
    pub lost_after: u64,
    /// Whether every loss is known, so that the others' loss ratio is zero.
    pub losses_known: bool,
    /// Whether `sent_ns` counts from 1970.
    pub unix: bool,
}

impl Series {
    /// The path that answers as it was measured.
    pub fn into_trace(
        mut self,
        format: &str,
        options: &MeasuredOptions,
    ) -> Result<PathTrace, ImportError> {
        keep_order(&mut self.probes);
        let (first, last) = match (self.probes.first(), self.probes.last()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => return Err(ImportError::whole("not a single answered probe")),
        };
        if last.sent_ns.abs_diff(first.sent_ns) > LONGEST_SPAN_NS {
            return Err(ImportError::whole("it spans more than a year; are its times right?"));
        }
        let spacing_ns = typical_spacing_ns(&self.probes).unwrap_or(SECOND_NS);
        let span_ns = last.sent_ns.abs_diff(first.sent_ns);
        let after_ns = spacing_ns.saturating_mul(self.lost_after + 1).min(LONGEST_SPAN_NS);
        let duration = Duration::from_nanos(span_ns + after_ns);
        let start = self.unix.then(|| UtcInstant::from_unix_nanos(first.sent_ns));
        let header =
            measured_header(format, options, start, duration, Duration::from_nanos(spacing_ns));
        let trace = PathTrace { header, frames: self.frames(first, span_ns, spacing_ns) };
        trace.validate()?;
        Ok(trace)
    }

    fn frames(&self, first: Probe, span_ns: u64, spacing_ns: u64) -> Vec<Frame> {
        let mut changes = Changes::beginning_with(first);
        let mut loss = LossPerWindow::new(span_ns, spacing_ns);
        loss.count_answered(0);
        for pair in self.probes.windows(2) {
            let [old, new] = [pair[0], pair[1]];
            let sent_ns = |probe: Probe| probe.sent_ns.abs_diff(first.sent_ns);
            let (from_ns, to_ns) = (sent_ns(old), sent_ns(new));
            loss.count_answered(to_ns);
            let first_lost_ns = from_ns + (to_ns - from_ns) / (new.lost_before + 1);
            let down_ns = first_lost_ns + old.there.as_nanos();
            if new.lost_before >= LOST_IN_A_ROW && down_ns < to_ns {
                changes.outage(down_ns, to_ns, new);
            } else {
                changes.step(from_ns, to_ns, old, new);
                loss.count_lost(first_lost_ns, new.lost_before);
            }
        }
        if let Some(last) = self.probes.last().filter(|_| self.lost_after >= LOST_IN_A_ROW) {
            let first_lost_ns = last.sent_ns.abs_diff(first.sent_ns) + spacing_ns;
            changes.at(first_lost_ns + last.there.as_nanos(), Change::Down);
        }
        for at_ns in level_shifts::on_grid(&self.probes) {
            changes.at(at_ns, Change::Handover);
        }
        if self.losses_known {
            loss.ratios().for_each(|(at_ns, ratio)| changes.at(at_ns, Change::Loss(ratio)));
        }
        changes.into_frames()
    }
}

/// Leaves out probes that do not come after the one before: their times are not that exact.
fn keep_order(probes: &mut Vec<Probe>) {
    probes.sort_by_key(|probe| probe.sent_ns);
    probes.dedup_by(|next, kept| {
        let same = next.sent_ns == kept.sent_ns;
        kept.lost_before += if same { next.lost_before } else { 0 };
        same
    });
    if let Some(first) = probes.first_mut() {
        first.lost_before = 0;
    }
}

/// The median time between two probes.
pub(super) fn typical_spacing_ns(probes: &[Probe]) -> Option<u64> {
    let mut spacings: Vec<u64> =
        probes.windows(2).map(|pair| pair[1].sent_ns.abs_diff(pair[0].sent_ns)).collect();
    if spacings.is_empty() {
        return None;
    }
    let middle = spacings.len() / 2;
    Some((*spacings.select_nth_unstable(middle).1).max(1))
}

/// What changes at a moment.
#[derive(Debug, Clone, Copy)]
enum Change {
    There(Duration),
    Back(Duration),
    Loss(f64),
    Down,
    Up,
    Handover,
}

/// All changes of a path, each with the time at which it takes effect.
struct Changes {
    list: Vec<(u64, Change)>,
    /// When the way back changed last: it changes in the order of the probes.
    last_back_ns: u64,
}

impl Changes {
    fn beginning_with(first: Probe) -> Self {
        let list = vec![(0, Change::There(first.there)), (0, Change::Back(first.back))];
        Self { list, last_back_ns: 0 }
    }

    fn at(&mut self, at_ns: u64, change: Change) {
        self.list.push((at_ns, change));
    }

    /// From what one probe saw to what the next one saw.
    fn step(&mut self, from_ns: u64, to_ns: u64, old: Probe, new: Probe) {
        let fall_ns = old.there.saturating_sub(new.there).as_nanos();
        let halfway_ns = from_ns + (to_ns - from_ns) / 2;
        // A sixth of the round trip's fall, which is twice that of the way there.
        let there_ns = halfway_ns.saturating_sub(fall_ns / 3).max(from_ns + 1);
        let turns_ns = if fall_ns > 0 {
            there_ns + old.there.as_nanos()
        } else {
            there_ns + (old.there.as_nanos() + new.there.as_nanos()) / 2
        };
        self.last_back_ns = self.last_back_ns.max(turns_ns);
        self.at(there_ns, Change::There(new.there));
        self.at(self.last_back_ns, Change::Back(new.back));
    }

    fn outage(&mut self, down_ns: u64, up_ns: u64, new: Probe) {
        self.last_back_ns = self.last_back_ns.max(up_ns);
        self.at(down_ns, Change::Down);
        self.at(up_ns, Change::There(new.there));
        self.at(self.last_back_ns, Change::Back(new.back));
        self.at(up_ns, Change::Up);
    }

    fn into_frames(mut self) -> Vec<Frame> {
        self.list.sort_by_key(|(at_ns, _)| *at_ns);
        let mut state = State { there: Duration::ZERO, back: Duration::ZERO, loss: None, up: true };
        let mut frames: Vec<Frame> = Vec::new();
        for group in self.list.chunk_by(|a, b| a.0 == b.0) {
            let at = Instant::from_nanos(group[0].0);
            let events = group.iter().filter_map(|(_, change)| state.apply(*change, at)).collect();
            let frame = state.frame(at, events);
            if frames.last().is_none_or(|last| differs(last, &frame)) {
                frames.push(frame);
            }
        }
        frames
    }
}

/// Whether a frame says anything that the one before does not.
fn differs(last: &Frame, next: &Frame) -> bool {
    !next.events.is_empty()
        || (last.delay, last.delay_back, last.loss) != (next.delay, next.delay_back, next.loss)
}

struct State {
    there: Duration,
    back: Duration,
    loss: Option<f64>,
    up: bool,
}

impl State {
    /// Takes a change in, and says what event it is, if it is one.
    fn apply(&mut self, change: Change, at: Instant) -> Option<PathEvent> {
        let kind = match change {
            Change::There(there) => {
                self.there = there;
                return None;
            }
            Change::Back(back) => {
                self.back = back;
                return None;
            }
            Change::Loss(loss) => {
                self.loss = Some(loss);
                return None;
            }
            Change::Down => {
                self.up = false;
                PathEventKind::Lost
            }
            Change::Up => {
                self.up = true;
                PathEventKind::Restored
            }
            Change::Handover => PathEventKind::End,
        };
        // Lost packets are part of the measurement: a handover takes down nothing more.
        Some(PathEvent { at, kind, hop: None, outage: Duration::ZERO })
    }

    fn frame(&self, at: Instant, events: Vec<PathEvent>) -> Frame {
        Frame {
            at,
            delay: self.up.then_some(self.there),
            delay_back: self.up.then_some(self.back),
            loss: self.loss,
            events,
            ..Frame::default()
        }
    }
}

/// How many probes of each window were answered and lost, outages aside.
struct LossPerWindow {
    window_ns: u64,
    /// The last window also has what is left of the series behind it.
    last: u64,
    counts: BTreeMap<u64, (u64, u64)>,
}

impl LossPerWindow {
    fn new(span_ns: u64, spacing_ns: u64) -> Self {
        let window_ns = spacing_ns.saturating_mul(PROBES_PER_RATIO).max(SECOND_NS);
        let last = (span_ns / window_ns).saturating_sub(1);
        Self { window_ns, last, counts: BTreeMap::new() }
    }

    fn count_answered(&mut self, at_ns: u64) {
        self.at(at_ns).0 += 1;
    }

    fn count_lost(&mut self, at_ns: u64, lost: u64) {
        self.at(at_ns).1 += lost;
    }

    fn at(&mut self, at_ns: u64) -> &mut (u64, u64) {
        self.counts.entry((at_ns / self.window_ns).min(self.last)).or_default()
    }

    /// The loss ratio from each window's beginning on.
    fn ratios(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        self.counts.iter().map(|(window, (answered, lost))| {
            (window * self.window_ns, *lost as f64 / (*answered + *lost).max(1) as f64)
        })
    }
}
