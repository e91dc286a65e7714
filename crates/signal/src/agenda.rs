//! Queue of upcoming announcements, used by the simulator, the live engine and the signal service.

use skyhop_units::{Duration, Instant, UtcInstant};

use crate::schedule::HandoverGrid;
use crate::{Announcement, Handover, Timing, TimingError};

/// Message to congestion controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement {
    /// Announcement of an upcoming handover.
    Announced(Announcement),
    /// Withdrawal of the last announcement, because it has turned out to be wrong.
    Withdrawn,
}

/// Queue of upcoming announcements. Sans-IO: the caller sleeps until [`Agenda::next`] and calls [`Agenda::pop`].
///
/// The queue contains the announcements given at its creation, those that [`Agenda::extend`] adds, and the next
/// announcement of the grid that [`Agenda::set_grid`] has set.
#[derive(Debug, Clone)]
pub struct Agenda {
    timing: Timing,
    /// UTC of time zero ([`Instant::START`]).
    start: UtcInstant,
    /// Announcements of individual handovers (not of the grid), in reverse order of time, so that
    /// the next one is popped from the end.
    listed: Vec<Announcement>,
    /// Grid of handovers, and the error of its times.
    grid: Option<(HandoverGrid, Duration)>,
    /// Next announcement of the grid, and the handover's time without the error of `timing`.
    pending: Option<(Announcement, Instant)>,
    /// Last announcement of the grid that was made, and the handover's time without the error of `timing`.
    last: Option<(Announcement, Instant)>,
    /// Number of random streams used so far, which is added to the seed: each list of handovers and
    /// each handover of a grid has its own stream.
    streams: u64,
    /// Whether the last announcement is to be withdrawn.
    withdraw: bool,
}

impl Agenda {
    /// Create an empty agenda of a run or a service that begins at `start`.
    pub fn new(timing: Timing, start: UtcInstant) -> Self {
        Self {
            timing,
            start,
            listed: Vec::new(),
            grid: None,
            pending: None,
            last: None,
            streams: 0,
            withdraw: false,
        }
    }

    /// Create an agenda of known announcements, which are ordered by the time at which they are made.
    pub fn from_announcements(announcements: &[Announcement]) -> Self {
        let timing = Timing::new(Duration::ZERO, TimingError::None, 0);
        let mut agenda = Self::new(timing, UtcInstant::from_unix_nanos(0));
        agenda.listed = announcements.iter().rev().copied().collect();
        agenda
    }

    /// Add handovers, whose times are counted from `from`. Announcements of handovers before `now` are dropped.
    pub fn extend(&mut self, now: Instant, from: UtcInstant, handovers: &[Handover]) {
        let moved = handovers.iter().filter_map(|one| {
            let at = from.after(one.at.saturating_since(Instant::START));
            let since_ns = at.unix_nanos() - self.start.unix_nanos();
            Some(Handover { at: Instant::from_nanos(u64::try_from(since_ns).ok()?), ..*one })
        });
        let announcements = self.next_timing().announce(moved, Instant::NEVER);
        self.streams += 1;
        self.listed.extend(announcements.into_iter().filter(|one| one.at >= now));
        self.listed.sort_by_key(|one| std::cmp::Reverse((one.announced, one.at)));
    }

    /// Remove the announcements of individual handovers, before the caller adds new ones. A grid stays.
    pub fn clear(&mut self) {
        self.listed.clear();
    }

    /// Set the grid, together with the error of its times, or replace it by a better estimate.
    ///
    /// `None` removes the grid; its last announcement is withdrawn if the handover has not happened yet.
    pub fn set_grid(&mut self, now: Instant, grid: Option<(HandoverGrid, Duration)>) {
        self.grid = grid;
        let is_ahead = self.last.is_some_and(|(last, _)| last.at > now);
        self.withdraw = self.grid.is_none() && is_ahead;
        self.pending = None;
        self.plan_next(now);
    }

    /// Set the UTC of time zero after the clock was set. Handovers of a grid move with UTC;
    /// announcements of individual handovers do not.
    pub fn set_start(&mut self, now: Instant, start: UtcInstant) {
        self.start = start;
        self.pending = None;
        self.plan_next(now);
    }

    /// Convert a time, counted from the start, to UTC.
    pub fn utc(&self, at: Instant) -> UtcInstant {
        self.start.after(at.saturating_since(Instant::START))
    }

    /// Time at which the next message is due; `None` if the queue is empty.
    pub fn next(&self) -> Option<Instant> {
        if self.withdraw {
            return Some(Instant::START);
        }
        let listed = self.listed.last().map(|one| one.announced);
        let pending = self.pending.map(|(one, _)| one.announced);
        listed.into_iter().chain(pending).min()
    }

    /// Return the next message that is due at `now`; call again until it returns `None`.
    pub fn pop(&mut self, now: Instant) -> Option<Statement> {
        if std::mem::take(&mut self.withdraw) {
            self.last = None;
            return Some(Statement::Withdrawn);
        }
        if self.listed.last().is_some_and(|one| one.announced <= now) {
            return self.listed.pop().map(Statement::Announced);
        }
        let (announcement, moment) = self.pending.filter(|(one, _)| one.announced <= now)?;
        self.last = Some((announcement, moment));
        self.pending = None;
        self.streams += 1;
        self.plan_next(now);
        Some(Statement::Announced(announcement))
    }

    /// Compute the announcement of the grid's first handover that is in the future and has not been announced.
    fn plan_next(&mut self, now: Instant) {
        const NS: Duration = Duration::from_nanos(1);
        let Some((grid, error)) = self.grid else { return };
        // According to a new estimate of the grid, the announced handover may be slightly later. Half a
        // period is skipped, so that the same handover is not announced twice.
        let announced = self.last.map(|(_, moment)| moment + grid.period / 2);
        let after = announced.map_or(now, |moment| moment.max(now));
        let horizon = Instant::START + grid.period + NS;
        let Some(handover) = grid.handovers(self.utc(after).after(NS), horizon).next() else {
            return;
        };
        let moment = after + handover.at.saturating_since(Instant::START) + NS;
        let handover = Handover { at: moment, ..handover };
        let announced = self.next_timing().announce([handover], Instant::NEVER);
        self.pending = announced.first().map(|one| {
            let announced = one.announced.max(now);
            (Announcement { announced, error: one.error.max(error), ..*one }, moment)
        });
    }

    /// Return the timing, with the seed of the next random stream.
    fn next_timing(&self) -> Timing {
        Timing { seed: self.timing.seed.wrapping_add(self.streams), ..self.timing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(15);

    fn at_s(seconds: f64) -> Instant {
        Instant::START + Duration::from_secs_f64(seconds)
    }

    fn utc(text: &str) -> UtcInstant {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    fn grid(offset_ms: u64) -> Option<(HandoverGrid, Duration)> {
        let grid = HandoverGrid { period: PERIOD, offset: Duration::from_millis(offset_ms) };
        Some((grid, Duration::from_millis(10)))
    }

    /// Agenda of a run that begins at 00:00:01 UTC.
    fn agenda(lead_ms: u64, error: TimingError) -> Agenda {
        let timing = Timing::new(Duration::from_millis(lead_ms), error, 1);
        Agenda::new(timing, utc("00:00:01"))
    }

    /// Pop `count` announcements, each when it is due; return the announced times.
    fn taken(agenda: &mut Agenda, count: usize) -> Vec<Instant> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let now = agenda.next().expect("there is something to come");
            match agenda.pop(now) {
                Some(Statement::Announced(one)) => taken.push(one.at),
                other => panic!("{other:?}"),
            }
        }
        taken
    }

    #[test]
    fn a_grid_goes_on_without_end_and_says_nothing_twice() {
        for lead_ms in [0, 500, 20_000] {
            let mut agenda = agenda(lead_ms, TimingError::None);
            agenda.set_grid(Instant::START, grid(12_000));
            let expected: Vec<Instant> = (0..5).map(|n| at_s(11.0 + 15.0 * f64::from(n))).collect();
            assert_eq!(taken(&mut agenda, 5), expected, "{lead_ms}");
        }
    }

    #[test]
    fn a_clock_that_is_set_moves_the_grid_and_leaves_the_list() {
        let mut agenda = agenda(500, TimingError::None);
        let listed = Announcement {
            announced: at_s(3.0),
            at: at_s(4.0),
            outage: Duration::ZERO,
            error: Duration::ZERO,
            kind: skyhop_model::HandoverKind::End,
        };
        agenda.listed = vec![listed];
        agenda.set_grid(Instant::START, grid(12_000));
        // The clock is set forward by five seconds.
        agenda.set_start(at_s(1.0), utc("00:00:06"));
        assert_eq!(taken(&mut agenda, 2), [at_s(4.0), at_s(6.0)]);
    }

    #[test]
    fn every_moment_of_a_grid_is_announced_once_however_wrong() {
        let mut agenda = agenda(500, TimingError::ReportTiming);
        agenda.set_grid(Instant::START, grid(12_000));
        let mut errors_ns: Vec<i128> = taken(&mut agenda, 40)
            .iter()
            .enumerate()
            .map(|(index, at)| {
                let exact = at_s(11.0 + 15.0 * index as f64);
                i128::from(at.as_nanos()) - i128::from(exact.as_nanos())
            })
            .collect();
        assert!(errors_ns.iter().all(|error| error.abs() <= 1_600_000_000), "{errors_ns:?}");
        errors_ns.sort_unstable();
        errors_ns.dedup();
        assert!(errors_ns.len() > 35, "the errors repeat: {errors_ns:?}");
    }

    #[test]
    fn a_clock_that_is_compared_again_and_again_loses_nothing_and_repeats_nothing() {
        for (lead_ms, drift_ns) in [(0, 90_000_i64), (500, -90_000), (20_000, 90_000)] {
            let mut agenda = agenda(lead_ms, TimingError::None);
            let start_ns = utc("00:00:01").unix_nanos();
            agenda.set_grid(Instant::START, grid(12_000));
            let mut said = Vec::new();
            // Every 0.2 s, while NTP slews by 0.45 ms per second.
            for step in 0..1_500 {
                let now = at_s(0.2 * f64::from(step));
                while let Some(Statement::Announced(one)) = agenda.pop(now) {
                    said.push(agenda.utc(one.at).unix_nanos());
                }
                let start = UtcInstant::from_unix_nanos(start_ns + drift_ns * i64::from(step));
                agenda.set_start(now, start);
            }
            let apart: Vec<i64> = said.windows(2).map(|two| two[1] - two[0]).collect();
            assert!(said.len() >= 20, "{lead_ms}: {said:?}");
            // With a long lead, UTC drifts by milliseconds between the announcement and the handover.
            let exact = |ns: &i64| (ns - 15_000_000_000).abs() < 15_000_000;
            assert!(apart.iter().all(exact), "{lead_ms}: {apart:?}");
        }
    }

    #[test]
    fn what_is_learned_is_announced_once_and_taken_back_when_it_was_wrong() {
        let mut agenda = agenda(1_000, TimingError::None);
        assert_eq!((agenda.next(), agenda.pop(at_s(99.0))), (None, None));
        agenda.set_grid(Instant::START, grid(12_000));
        assert_eq!(taken(&mut agenda, 1), [at_s(11.0)]);
        // A better estimate puts the handover slightly later: it is not announced again.
        agenda.set_grid(at_s(10.5), grid(12_004));
        assert_eq!(taken(&mut agenda, 1), [at_s(26.004)]);
        // The announced handover is over, so that nothing is withdrawn.
        agenda.set_grid(at_s(27.0), None);
        assert_eq!(agenda.next(), None);
        agenda.set_grid(at_s(30.0), grid(12_000));
        taken(&mut agenda, 1);
        agenda.set_grid(at_s(40.5), None);
        assert_eq!(agenda.pop(at_s(40.5)), Some(Statement::Withdrawn));
        assert_eq!((agenda.pop(at_s(40.5)), agenda.next()), (None, None));
    }

    #[test]
    fn what_is_added_comes_in_order_and_not_too_late() {
        let mut agenda = agenda(1_000, TimingError::None);
        let handovers = |seconds: &[f64]| -> Vec<Handover> {
            let one = |at: &f64| Handover {
                at: at_s(*at),
                outage: Duration::ZERO,
                error: Duration::ZERO,
                kind: skyhop_model::HandoverKind::End,
            };
            seconds.iter().map(one).collect()
        };
        agenda.extend(at_s(5.0), utc("00:00:03"), &handovers(&[1.0, 10.0]));
        agenda.extend(at_s(5.0), utc("00:00:00"), &handovers(&[0.5, 9.0]));
        assert_eq!(taken(&mut agenda, 2), [at_s(8.0), at_s(12.0)]);
        agenda.extend(at_s(20.0), utc("00:00:21"), &handovers(&[10.0]));
        agenda.clear();
        assert_eq!(agenda.next(), None);
    }
}
